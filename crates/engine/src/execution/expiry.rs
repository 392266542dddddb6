//! Active expiry: keys whose time has come leave without anybody looking at them.
//!
//! Every worker cares for its share of the shards. A hold looks at a bounded number of keys of the
//! segment that is due; each removed key is an effect of its own. While clients are paused nothing is
//! removed.

use crate::execution::worker::Worker;
use crate::keyspace::SHARDS;
use crate::keyspace::hold::{Hold, Scope};
use crate::keyspace::locks::NOBODY;

/// Keys with an expiry that one hold looks at.
const KEYS_PER_HOLD: usize = 64;

/// Time between two rounds.
const ROUND_MS: i64 = 10;

/// Where a worker's round over its shards stands.
#[derive(Default)]
pub struct Round {
    database: u8,
    shard: usize,
    /// When the next round begins, Unix milliseconds.
    next_ms: i64,
}

impl Worker {
    /// Takes expired keys out, for about `us` microseconds or until none is left. Returns whether
    /// there is more to do at once.
    pub fn expire_some(&mut self, round: &mut Round, us: u64) -> bool {
        if self.now_ms < round.next_ms || self.engine.keyspace.keeps_expired(self.now_ms) {
            return false;
        }
        let deadline = self.ticks().wrapping_add(self.engine.clock.ticks_of_us(us));
        let engine = self.engine.clone();
        while usize::from(round.database) < engine.keyspace.databases() {
            if self.ticks().wrapping_sub(deadline) as i64 >= 0 {
                return true;
            }
            let (worker, database, now_ms) = (self.id, round.database, self.now_ms);
            let scope = Scope { worker, database, owner: NOBODY, now_ms };
            let due = engine.keyspace.expire_next(scope, round.shard, &mut self.ledger, expire_due);
            self.settle_rest();
            match due {
                Some(shard) => round.shard = shard,
                None => (round.database, round.shard) = (round.database + 1, 0),
            }
        }
        *round = Round { database: 0, shard: 0, next_ms: self.now_ms + ROUND_MS };
        false
    }
}

/// One hold's share of the keys of a shard whose time has come.
fn expire_due(hold: &mut Hold<'_>, shard: u16) {
    let now_ms = hold.now_ms();
    let mut removed = Vec::with_capacity(KEYS_PER_HOLD);
    let part = hold.shard_mut(shard);
    let locks = &part.locks;
    let keep = |key: &[u8]| !locks.is_empty() && locks.is_locked(key);
    part.table.take_expired(now_ms, KEYS_PER_HOLD, keep, &mut removed);
    removed.into_iter().for_each(|entry| hold.expire(entry, shard));
}

const _: () = assert!(SHARDS <= u16::MAX as usize, "a shard's number is an u16");
