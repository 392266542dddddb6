//! Hot path. The keyspace of one shard: keys with a value and an optional expiry.
//!
//! ```text
//!  Table           node (2^b words)        segment, 4 KiB           entry, one allocation
//!  +----------+    +------+-----------+    +-----------------+     +--------------------------+
//!  | root  ---+--->| word | deadline  |    | bucket 0, 64 B  |     | header | [expiry] | key  |
//!  | deadline |    | word-+-----------+--->|  slot: tag|addr-+---->|        | value, or a word |
//!  | len ...  |    | ...  |           |    |  ... 8 slots    |     +--------------------------+
//!  +----------+    +------+-----------+    | bucket 63       |     overflow bucket, 64 B: 8 slots
//!                                          +-----------------+
//! ```
//!
//! A hash table of extendible hashing: the prefix of the hash leads through a trie to a segment, the
//! low 6 bits to a bucket of one cache line, 16 tag bits to a slot, and only that entry is read.
//! Growth splits one segment at a time by the tags that the slots keep, so no insertion ever
//! rehashes the table; removals merge segments again. See `trie.rs` for the directory, `bucket.rs`
//! for the chains, `entry.rs` for the entries, `core.rs` for splits and merges, `scan.rs` for
//! positions, `expiry.rs` for deadlines.
//!
//! The type of objects is a parameter: anything that is one machine word and four bits, as a tagged
//! pointer is. Strings and integers are in the entry itself.
//!
//! Costs, cold: a lookup reads the root, one to five directory lines, one bucket (1.3 on the
//! average), one or two lines of the entry. An insertion adds one allocation, at most one split (a
//! segment of 4 KiB and a node of 1 KiB allocated, 200 lines moved). Memory: 60 bytes per key with 16 +
//! 16 bytes of key and value, with expiry or without.
//!
//! Hashes: every `hash` argument must be [`crate::hash::hash`] of the key. Its top 10 bits are not
//! used here, the caller may choose the table by them.

mod bucket;
mod core;
#[cfg(any(test, fuzzing))]
mod drive;
mod entry;
mod expiry;
mod scan;
#[cfg(test)]
mod tests;
mod trie;
mod value;

use std::marker::PhantomData;

use self::core::{Core, Found, SPLIT_LIMIT};
use self::entry::{Changed, RawEntry};
use self::value::take_object;
use crate::work;

#[cfg(any(test, fuzzing))]
pub use self::drive::drive;
pub use self::expiry::ExpiryStep;
pub use self::scan::Position;
pub use self::value::{EntryRef, NewValue, ObjectMut, ObjectRef, OwnedEntry, Value, Word};

/// What becomes of an entry's expiry when its value is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expire {
    /// It stays as it is; a new entry has none.
    Keep,
    /// The entry does not expire any more.
    Clear,
    /// The entry expires at this time, milliseconds since 1970.
    At(i64),
}

/// See the top of the file. Does not allocate before the first insertion.
pub struct Table<O: Word> {
    core: Core,
    objects: PhantomData<O>,
}

/// What [`Table::lookup`] has found.
pub enum Lookup<'a, 'k, O: Word> {
    /// The entry of the key.
    Occupied(EntryMut<'a, O>),
    /// There is none; here it can be inserted.
    Vacant(Vacant<'a, 'k, O>),
}

/// What [`Table::upsert`] has done.
pub struct Upserted<'a, O: Word> {
    /// The key was there before.
    pub existed: bool,
    /// The object that was overwritten, to be dropped outside of the latch.
    pub old: Option<O>,
    /// The entry with its new value.
    pub entry: EntryMut<'a, O>,
}

impl<O: Word> Table<O> {
    /// A table without memory.
    pub const fn new() -> Self {
        Self::with_split_limit(SPLIT_LIMIT)
    }

    /// A table whose segments split when they have `limit` entries.
    const fn with_split_limit(limit: u16) -> Self {
        Self { core: Core::new(limit), objects: PhantomData }
    }

    /// Number of keys, expired ones included.
    pub fn len(&self) -> usize {
        self.core.totals.len
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys with an expiry.
    pub fn expires_len(&self) -> usize {
        self.core.totals.expires
    }

    /// Bytes that the table has from the allocator, in size classes. Objects are not counted.
    pub fn allocated_bytes(&self) -> usize {
        self.core.allocated()
    }

    /// Loads the bucket of a hash ahead of its use: first step of a pipeline.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.core.prefetch_bucket(hash);
    }

    /// Loads the entry of a hash ahead of its use: second step, when the bucket has arrived, with
    /// `links` 0. Returns whether that was all; if not, an overflow bucket is on its way, and the
    /// next step is the same with one link more.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64, links: usize) -> bool {
        self.core.prefetch_entry(hash, links)
    }

    /// The entry of a key.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<EntryRef<'_, O>> {
        let found = self.core.find(hash, key)?;
        // SAFETY: the entry is the table's, which is borrowed for as long as the reference lives.
        Some(unsafe { EntryRef::new(found.entry()) })
    }

    /// The entry of a key, to be changed.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<EntryMut<'_, O>> {
        let found = self.core.find(hash, key)?;
        Some(self.occupied(hash, found))
    }

    /// The entry of a key, or the place for it: one search for commands that decide by what there
    /// is.
    #[inline]
    pub fn lookup<'k>(&mut self, hash: u64, key: &'k [u8]) -> Lookup<'_, 'k, O> {
        match self.core.find(hash, key) {
            Some(found) => Lookup::Occupied(self.occupied(hash, found)),
            None => {
                let core = &mut self.core;
                Lookup::Vacant(Vacant { core, hash, key, objects: PhantomData })
            }
        }
    }

    fn occupied(&mut self, hash: u64, found: Found) -> EntryMut<'_, O> {
        EntryMut { core: &mut self.core, hash, found, objects: PhantomData }
    }

    /// Adds an entry for a key that is absent.
    pub fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: NewValue<'_, O>,
        expire_at: Option<i64>,
    ) -> EntryMut<'_, O> {
        self.insert_entry(hash, OwnedEntry::new(key, value, expire_at))
    }

    /// Adds an entry that was made before, or that comes from another table; its key must be
    /// absent.
    pub fn insert_entry(&mut self, hash: u64, entry: OwnedEntry<O>) -> EntryMut<'_, O> {
        debug_assert!(hash == crate::hash::hash(entry.key()), "the hash of another key");
        debug_assert!(self.core.find(hash, entry.key()).is_none(), "the key is there already");
        let found = self.core.insert(hash, entry.into_raw());
        self.occupied(hash, found)
    }

    /// Sets the value of a key, whether it is there or not.
    pub fn upsert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: NewValue<'_, O>,
        expire: Expire,
    ) -> Upserted<'_, O> {
        match self.lookup(hash, key) {
            Lookup::Occupied(mut entry) => {
                let expire_at = match expire {
                    Expire::Keep => entry.expire_at(),
                    Expire::Clear => None,
                    Expire::At(expire_at) => Some(expire_at),
                };
                let old = entry.overwrite(value, expire_at);
                Upserted { existed: true, old, entry }
            }
            Lookup::Vacant(vacant) => {
                let expire_at = match expire {
                    Expire::Keep | Expire::Clear => None,
                    Expire::At(expire_at) => Some(expire_at),
                };
                let entry = vacant.insert(value, expire_at);
                Upserted { existed: false, old: None, entry }
            }
        }
    }

    /// Takes a key out of the table. What is given can be dropped outside of the latch.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<OwnedEntry<O>> {
        Some(self.find_mut(hash, key)?.remove())
    }

    /// One step of a walk: visits the keys of one bucket of one segment (8 to 10 on the average, or
    /// none) and gives the position of the next step, `None` at the end.
    ///
    /// A walk from [`Position::START`] visits no key twice and misses none that stays, whatever
    /// happens to the table between the steps. Every position is accepted.
    pub fn scan(&self, from: Position, mut visit: impl FnMut(EntryRef<'_, O>)) -> Option<Position> {
        // SAFETY: the entry is the table's, which is borrowed while `visit` has the reference.
        self.core.scan(from, |entry| visit(unsafe { EntryRef::new(entry) }))
    }

    /// A random entry, each with the same probability; `random` gives 64 random bits per call.
    pub fn sample(&self, random: impl FnMut() -> u64) -> Option<EntryRef<'_, O>> {
        // SAFETY: the entry is the table's, which is borrowed for as long as the reference lives.
        self.core.sample(random).map(|entry| unsafe { EntryRef::new(entry) })
    }

    /// No key expires before this time, milliseconds since 1970. It can be earlier than the first
    /// expiry, then [`Table::take_expired`] corrects it.
    pub fn earliest(&self) -> Option<i64> {
        let earliest = self.core.directory.earliest();
        (earliest != i64::MAX).then_some(earliest)
    }

    /// One step of active expiry: looks at about `limit` keys with an expiry (at most a bucket more)
    /// of the segment that is due, and moves those to `removed` that expire before `now_ms`.
    ///
    /// A key for which `keep` is true stays; it is looked at again when `now_ms` has increased.
    /// Repeat while the result says that there is more, at once or later.
    pub fn take_expired(
        &mut self,
        now_ms: i64,
        limit: usize,
        keep: impl FnMut(&[u8]) -> bool,
        removed: &mut Vec<OwnedEntry<O>>,
    ) -> ExpiryStep {
        // SAFETY: the table gives the entry away.
        let take = |entry| removed.push(unsafe { OwnedEntry::from_raw(entry) });
        self.core.take_expired(now_ms, limit, keep, take)
    }

    /// Moves about `limit` keys (at most a bucket more) to `removed`. True when none is left.
    pub fn take_some(&mut self, limit: usize, removed: &mut Vec<OwnedEntry<O>>) -> bool {
        // SAFETY: the table gives the entry away.
        self.core.drain(limit, |entry| removed.push(unsafe { OwnedEntry::from_raw(entry) }))
    }

    /// Drops about `budget` keys. True when the table is empty and without memory. This is for tables
    /// that are too large to be dropped in one go.
    pub fn drop_step(&mut self, budget: usize) -> bool {
        // SAFETY: the table gives the entry away.
        self.core.drain(budget, |entry| drop(unsafe { OwnedEntry::<O>::from_raw(entry) }))
    }
}

impl<O: Word> Default for Table<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Word> Drop for Table<O> {
    fn drop(&mut self) {
        self.drop_step(usize::MAX);
    }
}

/// The place for a key that is not there.
pub struct Vacant<'a, 'k, O: Word> {
    core: &'a mut Core,
    hash: u64,
    key: &'k [u8],
    objects: PhantomData<O>,
}

impl<'a, O: Word> Vacant<'a, '_, O> {
    /// Adds the entry.
    pub fn insert(self, value: NewValue<'_, O>, expire_at: Option<i64>) -> EntryMut<'a, O> {
        debug_assert!(self.hash == crate::hash::hash(self.key), "the hash of another key");
        let entry = OwnedEntry::new(self.key, value, expire_at);
        let found = self.core.insert(self.hash, entry.into_raw());
        EntryMut { core: self.core, hash: self.hash, found, objects: PhantomData }
    }
}

/// An entry of a table, to be changed.
pub struct EntryMut<'a, O: Word> {
    core: &'a mut Core,
    hash: u64,
    found: Found,
    objects: PhantomData<O>,
}

impl<'a, O: Word> EntryMut<'a, O> {
    fn raw(&self) -> RawEntry {
        // SAFETY: the table is borrowed, and no method changes it otherwise than by this entry.
        unsafe { self.found.entry() }
    }

    /// The entry for reading.
    pub fn as_ref(&self) -> EntryRef<'_, O> {
        // SAFETY: the table is borrowed for as long as the reference lives.
        unsafe { EntryRef::new(self.raw()) }
    }

    /// The entry for reading, for as long as the table is borrowed.
    pub fn into_ref(self) -> EntryRef<'a, O> {
        // SAFETY: the table is borrowed for as long as the reference lives.
        unsafe { EntryRef::new(self.raw()) }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.as_ref().key()
    }

    /// The value.
    pub fn value(&self) -> Value<'_, O> {
        self.as_ref().value()
    }

    /// When the entry expires, milliseconds since 1970.
    pub fn expire_at(&self) -> Option<i64> {
        self.as_ref().expire_at()
    }

    /// The 24 bits that LRU or LFU keep of the last access.
    pub fn access(&self) -> u32 {
        self.as_ref().access()
    }

    /// Sets the 24 bits that LRU or LFU keep of the last access.
    #[inline]
    pub fn set_access(&mut self, access: u32) {
        // SAFETY: the entry is borrowed mutably.
        unsafe { self.raw().set_access(access) }
    }

    /// The value if it is an object, to be changed or replaced.
    pub fn object_mut(&mut self) -> Option<ObjectMut<'_, O>> {
        // SAFETY: the entry is borrowed mutably for as long as the guard lives.
        unsafe { ObjectMut::new(self.raw()) }
    }

    /// The value if it is bytes, to be changed in place.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let entry = self.raw();
        // SAFETY: the entry is borrowed mutably for as long as the reference lives.
        unsafe { (entry.encoding() == entry::BYTES).then(|| entry.bytes()) }
    }

    /// Overwrites an integer by another one, in place. False if the value is not an integer.
    pub fn set_int(&mut self, int: i64) -> bool {
        let entry = self.raw();
        // SAFETY: the entry is borrowed mutably.
        unsafe {
            let is_int = entry.encoding() == entry::INT;
            if is_int {
                entry.set_word(entry::INT, int as u64);
            }
            is_int
        }
    }

    /// Overwrites the value and keeps the expiry. Gives the old value if it was an object, to be
    /// dropped outside of the latch.
    pub fn set_value(&mut self, value: NewValue<'_, O>) -> Option<O> {
        let expire_at = self.expire_at();
        self.overwrite(value, expire_at)
    }

    /// Overwrites value and expiry. Gives the old value if it was an object.
    pub fn overwrite(&mut self, value: NewValue<'_, O>, expire_at: Option<i64>) -> Option<O> {
        // SAFETY: the slot is the entry's, which is borrowed mutably; an old object is taken.
        unsafe {
            let old = take_object(self.raw());
            let payload = value.into_payload();
            self.core.rewrite(self.hash, self.found, &payload, expire_at);
            old
        }
    }

    /// Sets the time when the entry expires, or that it does not.
    pub fn set_expire(&mut self, expire_at: Option<i64>) {
        // SAFETY: the slot is the entry's, which is borrowed mutably.
        unsafe {
            self.core.change(self.hash, self.found, |entry| entry.set_expiry(expire_at));
        }
    }

    /// Gives a value of bytes another length, for APPEND and SETRANGE: the bytes that there are stay,
    /// new ones are zero. `None`, and no change, if the value is not bytes.
    pub fn resize_bytes(&mut self, length: usize) -> Option<&mut [u8]> {
        self.bytes_mut()?;
        // SAFETY: the slot is the entry's, which is borrowed mutably; the value is bytes.
        unsafe { self.core.change(self.hash, self.found, |entry| entry.resize(length)) }
        self.bytes_mut()
    }

    /// Puts another entry of the same key in place of this one, which is given. So a large value
    /// can be allocated and freed outside of the latch.
    pub fn replace(&mut self, entry: OwnedEntry<O>) -> OwnedEntry<O> {
        debug_assert!(entry.key() == self.key(), "an entry of another key");
        let old = self.raw();
        // SAFETY: the slot is the entry's, which is borrowed mutably; the old one leaves the table.
        unsafe {
            let grown = entry.allocated_bytes() as isize - self.as_ref().allocated_bytes() as isize;
            let entry = entry.into_raw();
            self.core.change(self.hash, self.found, |_| Changed { entry, grown });
            OwnedEntry::from_raw(old)
        }
    }

    /// Takes the entry out of the table.
    pub fn remove(self) -> OwnedEntry<O> {
        work::nodes(1);
        // SAFETY: the slot is the entry's; the table gives the entry away.
        unsafe { OwnedEntry::from_raw(self.core.remove(self.hash, self.found)) }
    }
}
