//! Transactions: commands that wait for EXEC, and the keys that it depends on.

use resp::Request;

use crate::execution::command::{Command, Flags, Locks};
use crate::keyspace::Keyspace;
use crate::keyspace::hold::{Hold, Ledger, Locked, Scope, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::keyspace::watches::{WatchedKey, same_writes};
use crate::lanes::Discard;
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
    /// What decides whether EXEC waits while clients are paused; `None` if none of its commands would.
    pub paused_as: Option<Flags>,
}

impl Transaction {
    /// Adds a command at the end.
    pub fn push(&mut self, queued: Queued) {
        self.bytes += queued.request.args().total_bytes();
        let locks = queued.command.row.locks;
        self.takes_databases |= matches!(locks, Locks::AllDatabases | Locks::NamedDatabases);
        let flags = queued.command.row.flags;
        if !flags.has(Flags::NEVER_PAUSED) {
            let writes = if flags.has(Flags::WRITE) { Flags::WRITE } else { Flags::NONE };
            self.paused_as = Some(self.paused_as.unwrap_or(Flags::NONE).with(writes));
        }
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

    /// The same, to move its request elsewhere when it has run.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Queued> {
        self.pieces.get_mut(index / PIECE)?.get_mut(index % PIECE)
    }

    /// All commands in order.
    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.pieces.iter().flatten()
    }
}

impl Discard for Transaction {
    fn discard_step(&mut self, nodes: usize) -> bool {
        for _ in 0..nodes {
            let Some(piece) = self.pieces.last_mut() else { return true };
            let Some(queued) = piece.last_mut() else {
                self.pieces.pop();
                continue;
            };
            if !queued.request.drop_step(nodes) {
                return false;
            }
            piece.pop();
        }
        self.pieces.is_empty()
    }
}

/// A key that a session watches.
pub struct Watch {
    /// The index of the database it was watched in.
    pub database: u8,
    /// The key.
    pub name: Box<[u8]>,
    watched: WatchedKey,
    seen: u64,
    /// The key's time had come, but it had to stay: that it goes is no change.
    was_hidden: bool,
}

impl Watch {
    /// Begins to watch `name`.
    ///
    /// # Errors
    /// Somebody else holds the key or the database.
    pub fn begin(
        keyspace: &Keyspace,
        scope: Scope,
        name: &[u8],
        ledger: &mut Ledger,
    ) -> Result<Watch, Locked> {
        let wanted = [Wanted { key: keyspace.key(name), access: Access::Shared }];
        let (watched, seen, was_hidden) = keyspace.hold(scope, &wanted, ledger, |hold| {
            // A key whose time has come goes now: later that would count as a change.
            let was_hidden = hold.hides(wanted[0].key);
            let watched = hold.watch(wanted[0].key);
            // Read under the latch: a write behind it must be noticed.
            let seen = watched.load(Ordering::Relaxed);
            (watched, seen, was_hidden)
        })?;
        Ok(Watch { database: scope.database, name: name.into(), watched, seen, was_hidden })
    }

    /// What a hold must cover to check this watch.
    pub fn wanted(&self, keyspace: &Keyspace) -> Wanted<'_> {
        Wanted { key: keyspace.key(&self.name), access: Access::Shared }
    }

    /// Whether the key has changed. The hold covers the key in the database that the watch names.
    pub fn is_spoiled(&self, hold: &mut Hold<'_>, key: Key<'_>) -> bool {
        let is_hidden = hold.hides(key);
        let now = self.watched.load(Ordering::Relaxed);
        // Its time may have come, which is a change.
        if self.was_hidden { !same_writes(self.seen, now) } else { is_hidden || now != self.seen }
    }

    /// Stops watching.
    pub fn end(self, keyspace: &Keyspace, scope: Scope) {
        let Watch { database, name, watched, .. } = self;
        keyspace.unwatch(Scope { database, ..scope }, &name, watched);
    }
}
