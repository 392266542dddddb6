//! The keyspace: databases of 1024 shards, each behind a latch; key locks, the gate, walks.
//!
//! The modules are listed in the order in which to read them; `hold` is the one way in.

pub mod key;
pub mod database;
pub mod hold;
pub mod locks;
pub mod lockset;
pub mod gate;
pub mod walk;
pub mod watches;

use self::gate::Gate;
use self::hold::Scope;
use self::key::{Key, ShardBy};
use self::locks::{Lock, Owner};
use crate::effects::Outlet;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Shards of a database.
pub const SHARDS: usize = 1024;

/// Keys that one hold may cover: more go by key locks, in steps.
pub const HELD_KEYS_MAX: usize = 64;

/// The longest key, bytes: what one hold may copy and compare several times.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Latches that one hold may take.
pub const HELD_SHARDS_MAX: usize = HELD_KEYS_MAX;

/// Units of work of one hold (see `structures::work`): about 50 microseconds on a cold machine.
pub const HOLD_UNITS_MAX: u64 = 5000;

/// All databases, with what orders and publishes their changes.
pub struct Keyspace {
    pub(crate) gate: Gate,
    pub(crate) outlet: Outlet,
    /// Per index, the database-wide lock: shared by every lock set, exclusive for FLUSHALL and
    /// SWAPDB. Ordinary commands never look at it.
    wide: Box<[Mutex<Lock>]>,
    owners: AtomicU64,
    /// Until when keys whose time has come stay, Unix milliseconds.
    expired_kept_until_ms: AtomicI64,
    shard_by: ShardBy,
    workers: usize,
}

impl Keyspace {
    /// A keyspace of `databases` empty databases, for `workers` threads.
    pub fn new(workers: usize, databases: usize, shard_by: ShardBy) -> Keyspace {
        let keyspace = Keyspace {
            gate: Gate::new(workers, databases),
            outlet: Outlet::new(workers),
            wide: (0..databases).map(|_| Mutex::new(Lock::default())).collect(),
            owners: AtomicU64::new(0),
            expired_kept_until_ms: AtomicI64::new(0),
            shard_by,
            workers,
        };
        keyspace.prepare(0, 0);
        keyspace
    }

    /// Makes the shards of the database at `index` if it was never used.
    pub(crate) fn prepare(&self, worker: usize, index: usize) {
        self.gate.enter(worker).databases[index].prepare();
    }

    /// The outlet of all changes.
    pub fn outlet(&self) -> &Outlet {
        &self.outlet
    }

    /// Number of databases.
    pub fn databases(&self) -> usize {
        self.wide.len()
    }

    /// Number of threads that take latches.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Hashes a key and chooses its shard.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.shard_by.key(bytes)
    }

    /// Loads what commands on `keys` will look at, so that their cache misses overlap. A shard whose
    /// latch is taken by somebody else is passed over.
    pub fn prefetch(&self, scope: Scope, keys: &[Key<'_>]) {
        let slot = self.gate.enter(scope.worker);
        let database = &*slot.databases[scope.database as usize];
        for key in keys {
            if let Some(shard) = database.shard(key.shard).try_lock() {
                shard.table.prefetch(key.hash);
            }
        }
        // Most entries are in the first bucket of their chain, nearly all others in the second.
        let mut further = !0u64;
        for links in 0..2 {
            for (at, key) in keys.iter().enumerate().take(64) {
                if further >> at & 1 == 1
                    && let Some(shard) = database.shard(key.shard).try_lock()
                    && shard.table.prefetch_entry(key.hash, links)
                {
                    further &= !(1 << at);
                }
            }
        }
    }

    /// Until then nothing changes that no command changes: a key whose time has come is hidden from
    /// those who read it, but stays.
    pub fn keep_expired_until(&self, until_ms: i64) {
        self.expired_kept_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Whether keys whose time has come stay at this moment.
    pub(crate) fn keeps_expired(&self, now_ms: i64) -> bool {
        now_ms < self.expired_kept_until_ms.load(Ordering::Relaxed)
    }

    /// A number for a new lock set.
    pub fn new_owner(&self) -> Owner {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn wide(&self, database: u8) -> &Mutex<Lock> {
        &self.wide[database as usize]
    }
}
