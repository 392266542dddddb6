//! One database: 1024 shards, each behind its latch, with what walks and counts need.
//!
//! A database is replaced, never emptied: FLUSHALL and SWAPDB exchange pointers under the gate, and
//! whoever still works on the old object keeps it alive by its reference.

use crossbeam_utils::CachePadded;
use structures::object::Object;
use structures::table::Table;

use super::SHARDS;
use super::locks::KeyLocks;
use super::watches::Watches;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::sync::{Mutex, OnceLock};

/// No entry of the shard has an expiry.
pub const NEVER: i64 = i64::MAX;

/// The contents of one shard, reached only through its latch.
#[derive(Default)]
pub struct Shard {
    /// The keys and their values.
    pub table: Table<Object>,
    /// Keys that a multi-step command holds.
    pub locks: KeyLocks,
    /// Keys that some transaction watches.
    pub watches: Watches,
}

/// Keys and expiries that one worker added minus those it removed.
#[derive(Default)]
pub struct Counters {
    keys: AtomicI64,
    expires: AtomicI64,
}

impl Counters {
    /// Adds differences. Only the owning worker calls this, so no read-modify-write is needed.
    #[inline]
    pub(super) fn add(&self, keys: i64, expires: i64) {
        self.keys.store(self.keys.load(Ordering::Relaxed) + keys, Ordering::Relaxed);
        self.expires.store(self.expires.load(Ordering::Relaxed) + expires, Ordering::Relaxed);
    }
}

struct Shards {
    cells: Box<[CachePadded<Mutex<Shard>>]>,
    /// The earliest expiry in each shard, readable without its latch.
    earliest: Box<[AtomicI64]>,
}

/// A database object. Empty ones cost a few hundred bytes: shards come with [`Database::prepare`].
pub struct Database {
    shards: OnceLock<Shards>,
    non_empty: [AtomicU64; SHARDS / 64],
    counters: Box<[CachePadded<Counters>]>,
    /// Watched keys of all shards, changed under their latches.
    watched: AtomicI64,
}

impl Database {
    /// An empty database for a server with `workers` workers.
    pub fn new(workers: usize) -> Database {
        Database {
            shards: OnceLock::new(),
            non_empty: std::array::from_fn(|_| AtomicU64::new(0)),
            counters: (0..workers).map(|_| CachePadded::default()).collect(),
            watched: AtomicI64::new(0),
        }
    }

    /// Makes the shards, as the first access would. It takes a quarter of a millisecond, which no
    /// hold should last.
    pub fn prepare(&self) {
        self.shards();
    }

    /// Whether the shards are there.
    pub fn is_prepared(&self) -> bool {
        self.shards.get().is_some()
    }

    /// The latch of a shard.
    #[inline]
    pub fn shard(&self, shard: u16) -> &Mutex<Shard> {
        &self.shards().cells[shard as usize]
    }

    /// Keys and keys with an expiry, summed over the workers: no latch, exact when nobody writes.
    pub fn len(&self) -> (u64, u64) {
        let sum = |field: fn(&Counters) -> &AtomicI64| {
            self.counters.iter().map(|one| field(one).load(Ordering::Relaxed)).sum::<i64>().max(0)
        };
        (sum(|one| &one.keys) as u64, sum(|one| &one.expires) as u64)
    }

    /// The first shard at or after `from` that holds a key.
    pub fn next_non_empty(&self, from: u16) -> Option<u16> {
        let mut word = from as usize / 64;
        let mut bits = self.non_empty.get(word)?.load(Ordering::Relaxed) & (!0 << (from % 64));
        while bits == 0 {
            word += 1;
            bits = self.non_empty.get(word)?.load(Ordering::Relaxed);
        }
        Some((word * 64) as u16 + bits.trailing_zeros() as u16)
    }

    /// The earliest expiry in a shard, [`NEVER`] if it has none. May be too early, never too late.
    pub fn earliest(&self, shard: u16) -> i64 {
        match self.shards.get() {
            Some(shards) => shards.earliest[shard as usize].load(Ordering::Relaxed),
            None => NEVER,
        }
    }

    /// Whether a transaction watches any key. Exact for who keeps others out.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    pub(super) fn add_watched(&self, keys: i64) {
        self.watched.fetch_add(keys, Ordering::Relaxed);
    }

    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// Called under the shard's latch when the shard became empty or stopped being so.
    pub(super) fn set_non_empty(&self, shard: u16, non_empty: bool) {
        let bit = 1u64 << (shard % 64);
        let word = &self.non_empty[shard as usize / 64];
        if non_empty {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Called under the shard's latch when its earliest expiry changed.
    pub(super) fn set_earliest(&self, shard: u16, at_ms: i64) {
        self.shards().earliest[shard as usize].store(at_ms, Ordering::Relaxed);
    }

    #[inline]
    fn shards(&self) -> &Shards {
        self.shards.get_or_init(|| Shards {
            cells: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::default()))).collect(),
            earliest: (0..SHARDS).map(|_| AtomicI64::new(NEVER)).collect(),
        })
    }

    /// Takes the contents apart for the reaper; only when nobody else holds the object.
    pub(crate) fn into_tables(self) -> impl Iterator<Item = Table<Object>> {
        let cells = self.shards.into_inner().map(|shards| shards.cells).unwrap_or_default();
        cells.into_iter().map(|cell| std::mem::take(&mut cell.lock().table))
    }
}
