//! Transactions: commands that wait for EXEC, and the keys that it depends on.

use resp::Request;

use crate::execution::command::{Command, Locks};
use crate::keyspace::Keyspace;
use crate::keyspace::database::{Database, WatchedKey};
use crate::keyspace::hold::{Hold, Ledger, Scope, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Queued commands in one piece of the queue, so that no long queue is ever copied to grow.
const PIECE: usize = 256;

/// A command that waits for EXEC.
pub struct Queued {
    /// Which command.
    pub command: &'static Command,
    /// Its arguments, the name included.
    pub request: Request,
}

/// What was sent since MULTI.
#[derive(Default)]
pub struct Transaction {
    pieces: Vec<Vec<Queued>>,
    len: usize,
    /// Bytes of all arguments.
    pub bytes: usize,
    /// A command was refused while queueing: EXEC fails.
    pub spoiled: bool,
    /// One of the commands locks whole databases.
    pub takes_databases: bool,
}

impl Transaction {
    /// Adds a command at the end.
    pub fn push(&mut self, queued: Queued) {
        self.bytes += queued.request.args().total_bytes();
        let locks = queued.command.row.locks;
        self.takes_databases |= matches!(locks, Locks::AllDatabases | Locks::NamedDatabases);
        self.len += 1;
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(queued),
            _ => {
                let mut piece = Vec::with_capacity(if self.len == 1 { 4 } else { PIECE });
                piece.push(queued);
                self.pieces.push(piece);
            }
        }
    }

    /// Number of queued commands.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The command at `index`.
    pub fn get(&self, index: usize) -> Option<&Queued> {
        self.pieces.get(index / PIECE)?.get(index % PIECE)
    }

    /// All commands in order.
    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.pieces.iter().flatten()
    }
}

/// A key that a session watches.
pub struct Watch {
    /// The index of the database it was watched in.
    pub database: u8,
    /// The key.
    pub name: Box<[u8]>,
    /// The database object of that time.
    object: Arc<Database>,
    /// How many database objects were at the index before it.
    predecessors: u64,
    watched: WatchedKey,
    seen: u64,
    existed: bool,
}

impl Watch {
    /// Begins to watch `name`.
    pub fn begin(keyspace: &Keyspace, scope: Scope, name: &[u8], ledger: &mut Ledger) -> Watch {
        let (object, predecessors) = keyspace.current_stay(scope);
        let key = keyspace.key(name);
        let begun = keyspace.hold_shard(&object, scope, key.shard, ledger, |hold| {
            // Only looked at, not removed if its time has come: the object may no longer be at this
            // index, and the effect of a removal would name the wrong database.
            let now_ms = hold.now_ms();
            let entry = hold.shard_mut(key.shard).table.find(key.hash, key.bytes);
            let is_live = |at_ms: Option<i64>| at_ms.is_none_or(|at_ms| at_ms >= now_ms);
            let existed = entry.is_some_and(|entry| is_live(entry.expire_at()));
            let watched = hold.shard_mut(key.shard).watches.watch(name);
            // Read in the hold that has looked at the key: a write behind it must be noticed.
            let seen = watched.load(Ordering::Relaxed);
            (existed, watched, seen)
        });
        let (existed, watched, seen) = begun;
        #[cfg(all(shuttle, planted_bug = "watch"))]
        let seen = watched.load(Ordering::Relaxed);
        let (database, name) = (scope.database, name.into());
        Watch { database, name, object, predecessors, watched, seen, existed }
    }

    /// What a hold must cover to check this watch.
    pub fn wanted(&self, keyspace: &Keyspace) -> Wanted<'_> {
        Wanted { key: keyspace.key(&self.name), access: Access::Shared }
    }

    /// Whether the key has changed. The hold covers the key in the database that the watch names.
    ///
    /// After FLUSHALL or SWAPDB the index names another object: the key has changed unless it is
    /// absent in both, and was absent in between. That is certain only if there was one exchange,
    /// and no key of the shard was ever written in the new object: else EXEC is refused, which costs
    /// its client another attempt.
    pub fn is_spoiled(&self, hold: &mut Hold<'_>, key: Key<'_>) -> bool {
        let exists = hold.read(key).is_some();
        if self.watched.load(Ordering::Relaxed) != self.seen {
            return true;
        }
        let exchanges = hold.database().predecessors() - self.predecessors;
        let is_written = hold.shard_mut(key.shard).watches.is_written();
        exchanges > 0 && (self.existed || exists || exchanges > 1 || is_written)
    }

    /// Stops watching. Returns the database object of that time if only the reaper may drop it.
    #[must_use]
    pub fn end(
        self,
        keyspace: &Keyspace,
        scope: Scope,
        ledger: &mut Ledger,
    ) -> Option<Arc<Database>> {
        let Watch { database, name, object, watched, .. } = self;
        let shard = keyspace.key(&name).shard;
        keyspace.hold_shard(&object, scope, shard, ledger, |hold| {
            hold.shard_mut(shard).watches.unwatch(&name, watched);
        });
        keyspace.let_go(Scope { database, ..scope }, object)
    }
}
