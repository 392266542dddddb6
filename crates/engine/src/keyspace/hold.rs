//! Hot path. A hold: the latches of some keys, taken together, and what may be done under them.
//!
//! Nothing in here waits, logs, or frees anything large. What must happen after the latches are
//! released (frees, wake-ups, publishing records) is noted in the [`Ledger`] and settled by the
//! worker. The work of every hold is counted and, in debug and test builds, asserted.

use arrayvec::ArrayVec;
use structures::object::Object;
use structures::table::{EntryMut, EntryRef, Expire, NewValue, OwnedEntry};
use structures::work;

use super::database::{Database, NEVER, Shard};
use super::gate::Slot;
use super::key::Key;
use super::locks::{Access, Address, NOBODY, Owner};
use super::watches::WatchedKey;
use super::{HELD_KEYS_MAX, HELD_SHARDS_MAX, HOLD_UNITS_MAX, Keyspace};
use crate::effects::collected::Collected;
use crate::effects::{Body, Record, Words};
use crate::sync::MutexGuard;

/// A key that a command wants to touch, and how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Whether the command reads or writes it.
    pub access: Access,
}

/// On whose behalf a hold is taken.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The worker that takes it; it must be the calling thread's.
    pub worker: usize,
    /// The index of the client's database.
    pub database: u8,
    /// The lock set that the command holds, [`NOBODY`] in the normal case.
    pub owner: Owner,
    /// Unix time in milliseconds: the same for all that one command sees.
    pub now_ms: i64,
}

/// Somebody else holds one of the keys, or the whole database: take key locks and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked;

/// What a hold leaves to be done after its latches.
#[derive(Default)]
pub struct Ledger {
    /// Effects, numbered, not yet published.
    pub records: Vec<Record>,
    /// Set while a transaction collects its effects into one record.
    pub transaction: Option<Collected>,
    /// Values that left the keyspace.
    pub dropped: Vec<Object>,
    /// Connections that were granted a lock.
    pub woken: Vec<Address>,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Units of work of the largest hold since this was last cleared.
    pub largest_units: u64,
    /// Holds since the same time.
    pub holds: u32,
}

struct HeldShard<'h> {
    shard: u16,
    keys_before: usize,
    expires_before: usize,
    guard: MutexGuard<'h, Shard>,
}

/// A hold of one key must not pay for the room that one of many keys needs.
enum Held<'h> {
    One(HeldShard<'h>),
    /// Ascending by shard.
    Many(Vec<HeldShard<'h>>),
}

impl<'h> Held<'h> {
    #[inline]
    fn as_mut_slice(&mut self) -> &mut [HeldShard<'h>] {
        match self {
            Held::One(held) => std::slice::from_mut(held),
            Held::Many(held) => held,
        }
    }
}

/// The latches of a command's keys.
pub struct Hold<'h> {
    held: Held<'h>,
    database: &'h Database,
    keyspace: &'h Keyspace,
    wanted: &'h [Wanted<'h>],
    scope: Scope,
    ledger: &'h mut Ledger,
}

impl Keyspace {
    /// Takes the caller's gate slot and the latches of all `wanted` keys, in ascending order, runs
    /// `step` and releases them.
    ///
    /// # Errors
    /// [`Locked`] when a key or the database is held by somebody else; nothing was done then.
    #[inline]
    pub fn hold<R>(
        &self,
        scope: Scope,
        wanted: &[Wanted<'_>],
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> Result<R, Locked> {
        self.hold_through(&self.gate.enter(scope.worker), scope, wanted, ledger, step)
    }

    /// The same for a caller that has entered the gate.
    ///
    /// # Errors
    /// As [`Keyspace::hold`].
    #[inline]
    pub(crate) fn hold_through<R>(
        &self,
        slot: &Slot,
        scope: Scope,
        wanted: &[Wanted<'_>],
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> Result<R, Locked> {
        let reserved = slot.reserved[scope.database as usize];
        if reserved != NOBODY && reserved != scope.owner {
            return Err(Locked);
        }
        let database = &*slot.databases[scope.database as usize];
        self.hold_in(database, scope, wanted, ledger, step)
    }

    /// The same in a database object that the caller keeps alive, current or not.
    ///
    /// # Errors
    /// As [`Keyspace::hold`].
    #[inline]
    pub fn hold_in<R>(
        &self,
        database: &Database,
        scope: Scope,
        wanted: &[Wanted<'_>],
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> Result<R, Locked> {
        let held = match wanted {
            [only] => Held::One(take_latch(database, only.key.shard)),
            _ => Held::Many(take_latches(database, wanted)),
        };
        self.run_held(database, scope, held, wanted, ledger, step)
    }

    /// One shard of a database object, whatever of it is locked: for walks and expiry.
    pub fn hold_shard<R>(
        &self,
        database: &Database,
        scope: Scope,
        shard: u16,
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> R {
        let held = Held::One(take_latch(database, shard));
        match self.run_held(database, scope, held, &[], ledger, step) {
            Ok(result) => result,
            Err(Locked) => unreachable!("no key is asked for"),
        }
    }

    #[inline]
    fn run_held<R>(
        &self,
        database: &Database,
        scope: Scope,
        held: Held<'_>,
        wanted: &[Wanted<'_>],
        ledger: &mut Ledger,
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> Result<R, Locked> {
        let before = work::counted();
        ledger.holds += 1;
        let mut hold = Hold { held, database, keyspace: self, wanted, scope, ledger };
        if !hold.admits() {
            return Err(Locked);
        }
        let result = step(&mut hold);
        hold.update_counts();
        let units = work::counted().wrapping_sub(before);
        hold.ledger.largest_units = hold.ledger.largest_units.max(units);
        if cfg!(all(debug_assertions, not(shuttle))) {
            assert!(units <= HOLD_UNITS_MAX, "a hold did {units} units of work");
        }
        Ok(result)
    }
}

#[inline(never)]
fn take_latches<'h>(database: &'h Database, wanted: &[Wanted<'_>]) -> Vec<HeldShard<'h>> {
    let mut shards: ArrayVec<u16, HELD_SHARDS_MAX> = ArrayVec::new();
    for one in wanted {
        if let Err(at) = shards.binary_search(&one.key.shard) {
            shards.insert(at, one.key.shard);
        }
    }
    #[cfg(all(shuttle, planted_bug = "latch"))]
    shards.sort_by_key(|&shard| wanted.iter().position(|one| one.key.shard == shard));
    // The room is there before the first latch.
    let mut held = Vec::with_capacity(shards.len());
    held.extend(shards.into_iter().map(|shard| take_latch(database, shard)));
    #[cfg(all(shuttle, planted_bug = "latch"))]
    held.sort_unstable_by_key(|held: &HeldShard<'_>| held.shard);
    held
}

#[inline]
fn take_latch(database: &Database, shard: u16) -> HeldShard<'_> {
    let guard = database.shard(shard).lock();
    let (keys_before, expires_before) = (guard.table.len(), guard.table.expires_len());
    HeldShard { shard, keys_before, expires_before, guard }
}

impl<'h> Hold<'h> {
    /// The time of the command, Unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.scope.now_ms
    }

    /// The database object that the latches belong to.
    pub fn database(&self) -> &'h Database {
        self.database
    }

    /// The entry of `key`, unless it is absent or its time has come; then it is taken out, or hidden.
    #[inline]
    pub fn read(&mut self, key: Key<'_>) -> Option<EntryRef<'_, Object>> {
        if self.hides(key) {
            return None;
        }
        self.shard(key).table.find(key.hash, key.bytes)
    }

    /// The same, to be changed in place.
    #[inline]
    pub fn write(&mut self, key: Key<'_>) -> Option<EntryMut<'_, Object>> {
        if self.hides(key) {
            return None;
        }
        self.shard(key).table.find_mut(key.hash, key.bytes)
    }

    /// The same as [`Hold::read`], counted as a hit or a miss.
    #[inline]
    pub fn look_up(&mut self, key: Key<'_>) -> Option<EntryRef<'_, Object>> {
        if self.hides(key) {
            self.ledger.misses += 1;
            return None;
        }
        let ledger = &mut *self.ledger;
        let shard = match &self.held {
            Held::One(only) => &only.guard,
            Held::Many(all) => &all.iter().find(|held| held.shard == key.shard)?.guard,
        };
        let entry = shard.table.find(key.hash, key.bytes);
        match entry {
            Some(_) => ledger.hits += 1,
            None => ledger.misses += 1,
        }
        entry
    }

    /// The same as [`Hold::look_up`] for several keys, whose entries can then be read together.
    pub fn look_up_all(
        &mut self,
        keys: &[Wanted<'_>],
    ) -> ArrayVec<Option<EntryRef<'_, Object>>, HELD_KEYS_MAX> {
        let hidden: ArrayVec<bool, HELD_KEYS_MAX> =
            keys.iter().map(|wanted| self.hides(wanted.key)).collect();
        let held = &*self.held.as_mut_slice();
        let mut found = ArrayVec::new();
        for (Wanted { key, .. }, is_hidden) in keys.iter().zip(hidden) {
            let shard = held.iter().find(|held| !is_hidden && held.shard == key.shard);
            let entry = shard.and_then(|held| held.guard.table.find(key.hash, key.bytes));
            match entry {
                Some(_) => self.ledger.hits += 1,
                None => self.ledger.misses += 1,
            }
            found.push(entry);
        }
        found
    }

    /// Sets the value of a key that may exist, with any type. Returns whether it did.
    #[inline]
    pub fn upsert(&mut self, key: Key<'_>, value: NewValue<'_, Object>, expire: Expire) -> bool {
        let shard = self.shard(key);
        let upserted = shard.table.upsert(key.hash, key.bytes, value, expire);
        let (existed, old) = (upserted.existed, upserted.old);
        shard.watches.touch(key.bytes);
        if let Some(old) = old {
            self.discard(old);
        }
        existed
    }

    /// Adds a key that is absent.
    pub fn insert(&mut self, key: Key<'_>, value: NewValue<'_, Object>, expire_ms: Option<i64>) {
        self.shard(key).table.insert(key.hash, key.bytes, value, expire_ms);
    }

    /// Removes `key` with its value. Returns whether it was there.
    pub fn delete(&mut self, key: Key<'_>) -> bool {
        match self.shard(key).table.remove(key.hash, key.bytes) {
            Some(removed) => {
                self.discard_removed(removed);
                true
            }
            None => false,
        }
    }

    /// Hands a value that left the keyspace to whoever frees it after the latches.
    #[inline]
    pub fn discard(&mut self, object: Object) {
        self.ledger.dropped.push(object);
    }

    /// Tells everybody who watches `key` that it changed.
    #[inline]
    pub fn touched(&mut self, key: Key<'_>) {
        self.shard(key).watches.touch(key.bytes);
    }

    /// The change is the client's command as it was sent.
    #[inline]
    pub fn verbatim(&mut self, args: resp::Args<'_>) {
        self.record(|| Body::Sent { words: args.len().into(), more: Vec::new() });
    }

    /// The change is the first words of the client's command, with others behind them.
    pub fn verbatim_beginning(&mut self, words: impl Into<Words>, more: &[&[u8]]) {
        self.record(|| Body::Sent {
            words: words.into(),
            more: more.iter().map(|&word| word.into()).collect(),
        });
    }

    /// The change is this command instead of the client's.
    pub fn replaced_by(&mut self, words: &[&[u8]]) {
        self.record(|| Body::Command(crate::effects::command(words)));
    }

    /// The client's command is over, and another one follows in the same hold: the changes that
    /// refer to its words keep a copy of them.
    #[inline]
    pub(crate) fn copy_words(&mut self, args: resp::Args<'_>) {
        for record in &mut self.ledger.records {
            record.body.copy(args);
        }
    }

    /// Begins to watch `key`, live or absent: its counter of writes.
    pub fn watch(&mut self, key: Key<'_>) -> WatchedKey {
        let (watched, is_new) = self.shard(key).watches.watch(key.bytes);
        if is_new {
            self.database.add_watched(1);
        }
        watched
    }

    /// The latched part of a shard, for walks and lock sets.
    ///
    /// # Panics
    /// If the shard is not held.
    #[inline]
    pub fn shard_mut(&mut self, shard: u16) -> &mut Shard {
        match &mut self.held {
            Held::One(only) => {
                assert_eq!(only.shard, shard, "the shard is not held");
                &mut only.guard
            }
            Held::Many(all) => match all.binary_search_by_key(&shard, |held| held.shard) {
                Ok(at) => &mut all[at].guard,
                Err(_) => panic!("the shard is not held"),
            },
        }
    }

    /// What is left to do after the latches.
    pub fn ledger(&mut self) -> &mut Ledger {
        self.ledger
    }

    /// Removes an entry whose time has come, with its effect and its watchers told.
    pub fn expire(&mut self, removed: OwnedEntry<Object>, shard: u16) {
        self.ledger.expired += 1;
        self.shard_mut(shard).watches.expire(removed.key());
        self.replaced_by(&[b"DEL", removed.key()]);
        self.discard_removed(removed);
    }

    #[inline]
    fn shard(&mut self, key: Key<'_>) -> &mut Shard {
        self.shard_mut(key.shard)
    }

    /// Takes out an entry whose time has come. Returns true if it has to stay and must not be seen.
    #[inline]
    pub fn hides(&mut self, key: Key<'_>) -> bool {
        self.shard(key).table.expires_len() != 0 && self.hides_expired(key)
    }

    fn hides_expired(&mut self, key: Key<'_>) -> bool {
        let now_ms = self.scope.now_ms;
        let table = &self.shard(key).table;
        let entry = table.find(key.hash, key.bytes);
        if entry.is_none_or(|entry| entry.expire_at().is_none_or(|at_ms| at_ms >= now_ms)) {
            return false;
        }
        if self.keyspace.keeps_expired(now_ms) && !self.may_write(key) {
            return true;
        }
        if let Some(removed) = self.shard(key).table.remove(key.hash, key.bytes) {
            self.expire(removed, key.shard);
        }
        false
    }

    fn may_write(&self, key: Key<'_>) -> bool {
        self.wanted.iter().any(|one| {
            one.access == Access::Exclusive
                && one.key.hash == key.hash
                && one.key.bytes == key.bytes
        })
    }

    fn discard_removed(&mut self, removed: OwnedEntry<Object>) {
        if let Some(object) = removed.into_object() {
            self.discard(object);
        }
    }

    /// Numbers an effect, or adds it to those of the transaction; it is made only if somebody
    /// listens.
    #[inline]
    fn record(&mut self, body: impl FnOnce() -> Body) {
        let (database, outlet) = (self.scope.database, &self.keyspace.outlet);
        let is_attached = outlet.is_attached();
        if let Some(transaction) = &mut self.ledger.transaction {
            return transaction.add(database, is_attached.then(body));
        }
        let sequence = outlet.next(self.scope.worker);
        if is_attached {
            self.ledger.records.push(Record { sequence, database, body: body() });
        }
    }

    /// Ends a transaction that collected its effects: they become one record, numbered now.
    pub fn end_transaction(&mut self) {
        if let Some(collected) = self.ledger.transaction.take()
            && !collected.is_empty()
        {
            self.record(|| Body::Transaction(collected));
        }
    }

    #[inline]
    fn admits(&mut self) -> bool {
        if let Held::One(only) = &self.held
            && only.guard.locks.is_empty()
        {
            return true;
        }
        self.admits_all()
    }

    fn admits_all(&mut self) -> bool {
        self.wanted.iter().all(|one| {
            let owner = self.scope.owner;
            let locks = &self.shard(one.key).locks;
            locks.is_empty() || locks.admits(one.key.bytes, one.access, owner)
        })
    }

    /// Publishes what changed in the shards, for who looks without a latch.
    #[inline]
    fn update_counts(&mut self) {
        for held in self.held.as_mut_slice() {
            let (keys, expires) = (held.guard.table.len(), held.guard.table.expires_len());
            if keys == held.keys_before && expires == held.expires_before && expires == 0 {
                continue;
            }
            let added = keys as i64 - held.keys_before as i64;
            let timed = expires as i64 - held.expires_before as i64;
            self.database.counters(self.scope.worker).add(added, timed);
            if (keys == 0) != (held.keys_before == 0) {
                self.database.set_non_empty(held.shard, keys != 0);
            }
            // Without expiries the table's own bound may be left over from one that is gone.
            let bound = held.guard.table.earliest().filter(|_| expires != 0);
            let earliest = bound.unwrap_or(NEVER);
            if self.database.earliest(held.shard) != earliest {
                self.database.set_earliest(held.shard, earliest);
            }
        }
    }
}
