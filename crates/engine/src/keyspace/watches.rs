//! Watched keys: what WATCH looks at, and what becomes of it when databases are exchanged.
//!
//! A watch belongs to a key at the index of a database, not to the object that happens to be there.
//! Each shard of the object counts the writes to its watched keys. FLUSHALL and SWAPDB put other
//! objects in place: then the counters move to them, and every watched key that exists in the old
//! object or in the new one counts as written. That is an [`Exchange`], in bounded steps, while the
//! databases are closed to everybody else. Without watched keys, which is the normal case, there is
//! none.

use std::collections::BTreeMap;
use std::ops::Bound;

use structures::hash::hash;
use structures::work;

use super::SHARDS;
use super::database::{Database, Shard};
use super::hold::Scope;
use super::{Keyspace, key::Key};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Shards that one step of an exchange looks at.
const SHARDS_PER_STEP: u16 = 64;

/// Watched keys that one hold of an exchange looks up.
const KEYS_PER_STEP: usize = 16;

/// The number of writes that a watched key has seen since it was first watched, in the lower 40
/// bits, and how often its time came, above them. Every watcher of the key shares it, so a write to
/// a key with ten thousand watchers costs one increment.
pub type WatchedKey = Arc<AtomicU64>;

/// What a key counts when its time comes.
const EXPIRATION: u64 = 1 << 40;

/// Whether the writes of a watched key are the same in two of its states.
pub fn same_writes(before: u64, now: u64) -> bool {
    (before ^ now).is_multiple_of(EXPIRATION)
}

/// The watched keys of one shard.
#[derive(Default)]
pub struct Watches {
    // Absent while nothing is watched, like the key locks.
    #[allow(clippy::box_collection, reason = "one word in a shard where the map is absent")]
    table: Option<Box<BTreeMap<Box<[u8]>, WatchedKey>>>,
}

impl Watches {
    /// The counter of `key`, to be compared with its later value, and whether it is new.
    pub(super) fn watch(&mut self, key: &[u8]) -> (WatchedKey, bool) {
        work::nodes(2);
        work::allocations(2);
        let table = self.table.get_or_insert_default();
        if let Some(watched) = table.get(key) {
            return (Arc::clone(watched), false);
        }
        let watched = WatchedKey::default();
        table.insert(key.into(), Arc::clone(&watched));
        (watched, true)
    }

    /// Gives a counter back. Returns whether it was the last watcher's.
    fn unwatch(&mut self, key: &[u8], watched: WatchedKey) -> bool {
        work::nodes(2);
        drop(watched);
        self.remove_abandoned(key)
    }

    /// Removes a counter that nobody has any more. Returns whether it did.
    fn remove_abandoned(&mut self, key: &[u8]) -> bool {
        let Some(table) = &mut self.table else { return false };
        let is_abandoned = table.get(key).is_some_and(|mine| Arc::strong_count(mine) == 1);
        if is_abandoned {
            table.remove(key);
        }
        if table.is_empty() {
            self.table = None;
        }
        is_abandoned
    }

    /// Records a write to `key`.
    #[inline]
    pub fn touch(&self, key: &[u8]) {
        self.add(key, 1);
    }

    /// Records that the time of `key` came.
    pub fn expire(&self, key: &[u8]) {
        self.add(key, EXPIRATION);
    }

    #[inline]
    fn add(&self, key: &[u8], count: u64) {
        if let Some(table) = &self.table {
            work::nodes(2);
            if let Some(watched) = table.get(key) {
                watched.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    fn len(&self) -> i64 {
        self.table.as_ref().map_or(0, |table| table.len() as i64)
    }

    /// Some of the watched keys, in order, from behind `after` on.
    fn some_after(&self, after: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest =
            self.table.iter().flat_map(|table| table.range::<[u8], _>((from, Bound::Unbounded)));
        rest.take(KEYS_PER_STEP).map(|(name, _)| name.clone()).collect()
    }
}

impl Keyspace {
    /// Ends the watch of a key in the scope's database.
    pub(crate) fn unwatch(&self, scope: Scope, name: &[u8], watched: WatchedKey) {
        let Key { shard, .. } = self.key(name);
        let slot = self.gate.enter(scope.worker);
        let database = &slot.databases[scope.database as usize];
        // During an exchange the counter may still be with the other object: it is removed when it
        // has moved.
        if database.shard(shard).lock().watches.unwatch(name, watched) {
            database.add_watched(-1);
        }
    }
}

/// The way of counters from one database object to another, and back if both stay in use. The
/// objects have been exchanged already; the caller keeps others out until the last step.
pub(crate) struct Exchange {
    objects: [Arc<Database>; 2],
    shard: u16,
    /// The shard's counters have moved.
    moved: bool,
    /// Which object's watched keys are looked up, and the last one that was.
    of: usize,
    after: Option<Box<[u8]>>,
}

impl Exchange {
    /// The beginning.
    pub(crate) fn new(one: Arc<Database>, other: Arc<Database>) -> Exchange {
        Exchange { objects: [one, other], shard: 0, moved: false, of: 0, after: None }
    }

    /// Takes a step. Returns whether there is more to do.
    pub(crate) fn step(&mut self) -> bool {
        let Exchange { objects: [one, other], .. } = self;
        for _ in 0..SHARDS_PER_STEP {
            if usize::from(self.shard) == SHARDS {
                return false;
            }
            // Nobody else takes latches of two objects, and of these two only this one does.
            let mut latches = [one.shard(self.shard).lock(), other.shard(self.shard).lock()];
            let [first, second] = &mut latches;
            let mut pair = [&mut **first, &mut **second];
            let looked_up = pair.iter().map(|shard| shard.watches.len()).sum::<i64>();
            if !std::mem::replace(&mut self.moved, true) {
                // Before they are looked at: a watch that ends from now on finds its counter.
                let moved = pair[0].watches.len() - pair[1].watches.len();
                one.add_watched(-moved);
                other.add_watched(moved);
                let [first, second] = &mut pair;
                std::mem::swap(&mut first.watches, &mut second.watches);
            }
            if look_up([one, other], pair, &mut self.of, &mut self.after) {
                return true;
            }
            (self.shard, self.moved, self.of) = (self.shard + 1, false, 0);
            if looked_up > 0 {
                return true;
            }
        }
        true
    }

    /// The objects, to be let go.
    pub(crate) fn into_objects(self) -> [Arc<Database>; 2] {
        self.objects
    }
}

/// Looks some watched keys up in both shards, and removes the counters that nobody has any more.
/// Returns whether there are more.
fn look_up(
    objects: [&Database; 2],
    pair: [&mut Shard; 2],
    of: &mut usize,
    after: &mut Option<Box<[u8]>>,
) -> bool {
    while *of < pair.len() {
        let names = pair[*of].watches.some_after(after.as_deref());
        for name in &names {
            if pair[*of].watches.remove_abandoned(name) {
                objects[*of].add_watched(-1);
                continue;
            }
            let hashed = hash(name);
            let exists = pair.iter().any(|shard| shard.table.find(hashed, name).is_some());
            if exists && !cfg!(all(shuttle, planted_bug = "watch")) {
                pair[*of].watches.touch(name);
            }
        }
        *after = names.into_iter().last();
        if after.is_some() {
            return true;
        }
        *of += 1;
    }
    false
}
