//! Walks: SCAN, KEYS, DEBUG DIGEST go through a database in bounded steps, one hold each.
//!
//! The order is (shard, bucket, hash prefix), see `structures::table`: no key twice, and none that
//! stays from beginning to end is missed, whatever is inserted, deleted, split or merged meanwhile.

use structures::object::Object;
use structures::table::{EntryRef, Position};

use super::database::Database;
use super::hold::{Hold, Ledger, Scope};
use super::locks::NOBODY;
use super::{Keyspace, SHARDS};
use crate::sync::Arc;

/// Where a walk goes on: shard 10 bits | bucket 6 bits | hash prefix 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    shard: u16,
    position: Position,
}

impl Cursor {
    /// The beginning.
    pub const START: Cursor = Cursor { shard: 0, position: Position::START };

    /// Reads a client's cursor. Any number is accepted; surplus bits are ignored.
    pub fn from_u64(cursor: u64) -> Cursor {
        let shard = (cursor >> Position::BITS) as usize % SHARDS;
        Cursor { shard: shard as u16, position: Position::from_bits(cursor) }
    }

    /// The number for the client. Only the start is 0, and it is never a place to go on from.
    pub fn to_u64(self) -> u64 {
        u64::from(self.shard) << Position::BITS | self.position.to_bits()
    }
}

impl Keyspace {
    /// One hold of a walk: visits the live entries of one bucket chain from `cursor` on. Returns
    /// where to go on, `None` at the end.
    pub fn walk_step(
        &self,
        database: &Database,
        scope: Scope,
        cursor: Cursor,
        ledger: &mut Ledger,
        mut visit: impl FnMut(EntryRef<'_, Object>),
    ) -> Option<Cursor> {
        let shard = database.next_non_empty(cursor.shard)?;
        let position = if shard == cursor.shard { cursor.position } else { Position::START };
        let next = self.hold_shard(database, scope, shard, ledger, |hold| {
            hold.shard_mut(shard).table.scan(position, |entry| {
                if entry.expire_at().is_none_or(|at_ms| at_ms >= scope.now_ms) {
                    visit(entry);
                }
            })
        });
        match next {
            Some(position) => Some(Cursor { shard, position }),
            None => {
                let shard = database.next_non_empty(shard + 1)?;
                Some(Cursor { shard, position: Position::START })
            }
        }
    }

    /// Finds the first shard from `from` on, among those that the scope's worker cares for, that has
    /// an expiry which is due, and runs `step` in a hold of it. Returns the shard.
    pub fn expire_next(
        &self,
        scope: Scope,
        from: usize,
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>, u16),
    ) -> Option<usize> {
        let slot = self.gate.enter(scope.worker);
        let database = &*slot.databases[scope.database as usize];
        // Who has reserved the database has not locked its keys one by one, and must not see them go.
        if database.len().1 == 0 || slot.reserved[scope.database as usize] != NOBODY {
            return None;
        }
        let is_due = |&shard: &usize| database.earliest(shard as u16) < scope.now_ms;
        let own = |&shard: &usize| shard % self.workers == scope.worker;
        let shard = (from..SHARDS).filter(own).find(is_due)?;
        self.hold_shard(database, scope, shard as u16, ledger, |hold| step(hold, shard as u16));
        Some(shard)
    }

    /// The database object that is now at the scope's index.
    pub fn current(&self, scope: Scope) -> Arc<Database> {
        Arc::clone(&self.gate.enter(scope.worker).databases[scope.database as usize])
    }

    /// Keys, and keys with an expiry, of the database that is now at the scope's index.
    pub fn key_counts(&self, scope: Scope) -> (u64, u64) {
        self.gate.enter(scope.worker).databases[scope.database as usize].len()
    }
}
