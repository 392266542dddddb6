//! Interprets bytes as operations on a table and on a model of std collections, and compares the
//! two: for the randomized tests here, and for fuzzing.

use std::collections::{BTreeMap, BTreeSet};

use super::bucket;
use super::trie::{bucket_of, prefix_of, span, start_of, tag_of};
use super::{EntryRef, Expire, Lookup, NewValue, OwnedEntry, Position, Table, Value, Word};
use crate::hash::hash;

/// Invariants of the whole table are checked after so many operations.
const CHECK_INTERVAL: usize = 512;
/// Keys of a bulk operation.
const BULK_MAX: u16 = 256;

/// An object of the tests: two that own memory, and one whose word is arbitrary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    #[expect(clippy::box_collection, reason = "a word is a thin pointer")]
    Text(Box<String>),
    Number(Box<u64>),
    Plain(u64),
}

const TAG_TEXT: u8 = 0;
const TAG_NUMBER: u8 = 7;
const TAG_PLAIN: u8 = 15;

// SAFETY: each tag has its own representation, and boxes keep their address.
unsafe impl Word for Thing {
    fn into_word(self) -> (u8, u64) {
        match self {
            Thing::Text(text) => (TAG_TEXT, Box::into_raw(text).expose_provenance() as u64),
            Thing::Number(number) => (TAG_NUMBER, Box::into_raw(number).expose_provenance() as u64),
            Thing::Plain(word) => (TAG_PLAIN, word),
        }
    }

    unsafe fn from_word(tag: u8, word: u64) -> Self {
        let address = word as usize;
        // SAFETY: the caller promises that the tag and the word come from `into_word`.
        unsafe {
            match tag {
                TAG_TEXT => {
                    Thing::Text(Box::from_raw(std::ptr::with_exposed_provenance_mut(address)))
                }
                TAG_NUMBER => {
                    Thing::Number(Box::from_raw(std::ptr::with_exposed_provenance_mut(address)))
                }
                TAG_PLAIN => Thing::Plain(word),
                _ => panic!("tag {tag}"),
            }
        }
    }
}

/// The value of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Bytes(Vec<u8>),
    Int(i64),
    Object(Thing),
}

impl Plain {
    pub(super) fn of(value: &Value<'_, Thing>) -> Self {
        match value {
            Value::Bytes(bytes) => Plain::Bytes(bytes.to_vec()),
            Value::Int(int) => Plain::Int(*int),
            Value::Object(object) => Plain::Object((**object).clone()),
        }
    }

    pub(super) fn as_new(&self) -> NewValue<'_, Thing> {
        match self {
            Plain::Bytes(bytes) => NewValue::Bytes(bytes),
            Plain::Int(int) => NewValue::Int(*int),
            Plain::Object(object) => NewValue::Object(object.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    value: Plain,
    expire_at: Option<i64>,
    access: u32,
}

impl Expected {
    fn of(entry: EntryRef<'_, Thing>) -> Self {
        let (expire_at, access) = (entry.expire_at(), entry.access());
        Self { value: Plain::of(&entry.value()), expire_at, access }
    }
}

/// A walk in progress.
struct Walk {
    position: Position,
    /// Keys that have been there since it began.
    staying: BTreeSet<Vec<u8>>,
    /// Keys that it has visited, and that have not been removed since.
    seen: BTreeSet<Vec<u8>>,
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn pair(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn value(&mut self) -> Plain {
        let (kind, argument) = (self.byte(), self.pair());
        match kind % 8 {
            0..=2 => Plain::Bytes(vec![kind; usize::from(argument % 300)]),
            3 => Plain::Bytes(vec![kind; usize::from(argument) * 4]),
            4 => Plain::Int(i64::from(argument) - 30_000),
            5 => Plain::Object(Thing::Text(Box::new(format!("text {argument}")))),
            6 => Plain::Object(Thing::Number(Box::new(u64::from(argument)))),
            _ => Plain::Object(Thing::Plain(u64::MAX - u64::from(argument))),
        }
    }
}

fn key_of(number: u16) -> Vec<u8> {
    match number % 64 {
        0 => format!("{number:0>300}").into_bytes(),
        1 => number.to_le_bytes().to_vec(),
        _ => format!("key:{number}").into_bytes(),
    }
}

struct Driver {
    table: Table<Thing>,
    model: BTreeMap<Vec<u8>, Expected>,
    walk: Option<Walk>,
    now_ms: i64,
    removed: Vec<OwnedEntry<Thing>>,
    /// Number of different keys.
    universe: u16,
}

/// Runs the operations that `ops` stands for; panics if the table is wrong.
pub fn drive(ops: &[u8]) {
    let mut bytes = Bytes(ops);
    let choice = usize::from(bytes.byte());
    let limit = [2, 3, 8, 20, 60, 200, 640, 640][choice % 8];
    let mut driver = Driver {
        table: Table::with_split_limit(limit),
        model: BTreeMap::new(),
        walk: None,
        now_ms: 0,
        removed: Vec::new(),
        universe: [200, 2000, 8000, 16000][choice / 8 % 4],
    };
    for count in 1.. {
        if bytes.0.is_empty() {
            break;
        }
        driver.operate(&mut bytes);
        if count % CHECK_INTERVAL == 0 {
            driver.check();
        }
    }
    driver.check();
    driver.finish_walk();
    while !driver.table.drop_step(5000) {
        driver.table.check_after_expiry(driver.now_ms);
    }
    assert_eq!(driver.table.allocated_bytes(), 0);
}

impl Driver {
    fn operate(&mut self, bytes: &mut Bytes<'_>) {
        let (operation, number) = (bytes.byte(), bytes.pair() % self.universe);
        let key = key_of(number);
        match operation % 24 {
            0..=2 => self.upsert(&key, bytes),
            3 => self.insert_if_absent(&key, bytes),
            4..=5 => self.remove(&key),
            6 => self.change_object(&key, bytes),
            7 => self.set_value(&key, bytes),
            8..=9 => self.set_expire(&key, bytes),
            10 => self.resize(&key, bytes),
            11 => self.set_int_and_access(&key, bytes),
            12 => self.replace(&key, bytes),
            13..=16 => self.step_walk(),
            17 => self.expire(bytes),
            18..=19 => self.insert_many(number, bytes),
            20..=21 => self.remove_many(number, bytes),
            22 => self.sample(number),
            _ if number % 64 == 0 => self.take_some(bytes),
            _ => self.find(&key),
        }
    }

    fn find(&self, key: &[u8]) {
        let hash = hash(key);
        self.table.prefetch(hash);
        self.table.prefetch_entry(hash, 0);
        self.table.prefetch_entry(hash, 1);
        let found = self.table.find(hash, key).map(Expected::of);
        assert_eq!(found.as_ref(), self.model.get(key));
    }

    fn upsert(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let value = bytes.value();
        let expire = match bytes.byte() % 4 {
            0 | 1 => Expire::Keep,
            2 => Expire::Clear,
            _ => Expire::At(self.now_ms + i64::from(bytes.pair())),
        };
        let before = self.model.get(key);
        let upserted = self.table.upsert(hash(key), key, value.as_new(), expire);
        assert_eq!(upserted.existed, before.is_some());
        match before.map(|before| &before.value) {
            Some(Plain::Object(object)) => assert_eq!(upserted.old.as_ref(), Some(object)),
            _ => assert!(upserted.old.is_none()),
        }
        let expire_at = match expire {
            Expire::Keep => before.and_then(|before| before.expire_at),
            Expire::Clear => None,
            Expire::At(expire_at) => Some(expire_at),
        };
        let access = before.map_or(0, |before| before.access);
        let expected = Expected { value, expire_at, access };
        assert_eq!(Expected::of(upserted.entry.into_ref()), expected);
        self.model.insert(key.to_vec(), expected);
    }

    fn insert_if_absent(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let value = bytes.value();
        match self.table.lookup(hash(key), key) {
            Lookup::Occupied(entry) => {
                assert_eq!(Some(&Expected::of(entry.as_ref())), self.model.get(key));
                return;
            }
            Lookup::Vacant(vacant) => drop(vacant.insert(value.as_new(), None)),
        }
        let expected = Expected { value, expire_at: None, access: 0 };
        assert!(self.model.insert(key.to_vec(), expected).is_none());
    }

    fn remove(&mut self, key: &[u8]) {
        let removed = self.table.remove(hash(key), key);
        self.note_removed(key);
        let expected = self.model.remove(key);
        assert_eq!(removed.as_ref().map(|entry| Expected::of(entry.as_ref())), expected);
        if let (Some(removed), Some(Plain::Object(object))) =
            (removed, expected.map(|expected| expected.value))
        {
            assert_eq!(removed.into_object(), Some(object));
        }
    }

    fn note_removed(&mut self, key: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.staying.remove(key);
            walk.seen.remove(key);
        }
    }

    fn change_object(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let argument = bytes.pair();
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        let Some(mut object) = entry.object_mut() else { return };
        match &mut *object {
            Thing::Text(text) if argument.is_multiple_of(2) => text.push('!'),
            Thing::Number(number) if argument.is_multiple_of(2) => **number += 1,
            other => *other = Thing::Plain(argument.into()),
        }
        let changed = object.clone();
        drop(object);
        self.model.get_mut(key).expect("it is in the table").value = Plain::Object(changed);
    }

    fn set_value(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let value = bytes.value();
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        drop(entry.set_value(value.as_new()));
        self.model.get_mut(key).expect("it is in the table").value = value;
        self.find(key);
    }

    fn set_expire(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let expire_at = match bytes.byte() % 3 {
            0 => None,
            _ => Some(self.now_ms + i64::from(bytes.pair())),
        };
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        entry.set_expire(expire_at);
        self.model.get_mut(key).expect("it is in the table").expire_at = expire_at;
        self.find(key);
    }

    fn resize(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let length = usize::from(bytes.pair() % 600);
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        let resized = entry.resize_bytes(length);
        match &mut self.model.get_mut(key).expect("it is in the table").value {
            Plain::Bytes(expected) => {
                expected.resize(length, 0);
                let resized = resized.expect("the value is bytes");
                assert_eq!(resized, expected);
                resized.fill(b'r');
                expected.fill(b'r');
            }
            _ => assert!(resized.is_none()),
        }
    }

    fn set_int_and_access(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let (int, access) = (i64::from(bytes.pair()), u32::from(bytes.pair()));
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        let expected = self.model.get_mut(key).expect("it is in the table");
        let is_int = matches!(expected.value, Plain::Int(_));
        assert_eq!(entry.set_int(int), is_int);
        entry.set_access(access);
        expected.access = access;
        if is_int {
            expected.value = Plain::Int(int);
        }
    }

    fn replace(&mut self, key: &[u8], bytes: &mut Bytes<'_>) {
        let value = bytes.value();
        let expire_at = bytes.byte().is_multiple_of(2).then_some(self.now_ms + 100);
        let Some(mut entry) = self.table.find_mut(hash(key), key) else { return };
        let old = entry.replace(OwnedEntry::new(key, value.as_new(), expire_at));
        let expected = Expected { value, expire_at, access: 0 };
        let before = self.model.insert(key.to_vec(), expected);
        assert_eq!(Some(Expected::of(old.as_ref())), before);
    }

    fn insert_many(&mut self, number: u16, bytes: &mut Bytes<'_>) {
        let (count, expiry) = (bytes.pair() % BULK_MAX, bytes.pair());
        for number in (0..count).map(|index| (number + index) % self.universe) {
            let key = key_of(number);
            let expire_at =
                expiry.is_multiple_of(2).then_some(self.now_ms + i64::from(expiry ^ number));
            let value = Plain::Int(i64::from(number));
            let expire = expire_at.map_or(Expire::Clear, Expire::At);
            let access = self.table.upsert(hash(&key), &key, value.as_new(), expire).entry.access();
            self.model.insert(key, Expected { value, expire_at, access });
        }
    }

    fn remove_many(&mut self, number: u16, bytes: &mut Bytes<'_>) {
        for index in 0..bytes.pair() % BULK_MAX {
            self.remove(&key_of((number + index) % self.universe));
        }
    }

    fn step_walk(&mut self) {
        let walk = self.walk.get_or_insert_with(|| Walk {
            position: Position::START,
            staying: self.model.keys().cloned().collect(),
            seen: BTreeSet::new(),
        });
        let position = Position::from_bits(walk.position.to_bits());
        let next = self.table.scan(position, |entry| {
            assert_eq!(Some(&Expected::of(entry)), self.model.get(entry.key()));
            assert!(walk.seen.insert(entry.key().to_vec()), "a key was visited twice");
        });
        match next {
            Some(next) => {
                assert!(next.to_bits() > walk.position.to_bits(), "a walk goes forward");
                walk.position = next;
            }
            None => {
                assert!(walk.staying.is_subset(&walk.seen), "a key was missed");
                self.walk = None;
            }
        }
    }

    fn finish_walk(&mut self) {
        while self.walk.is_some() {
            self.step_walk();
        }
    }

    fn expire(&mut self, bytes: &mut Bytes<'_>) {
        self.now_ms += i64::from(bytes.pair() / 8);
        let (limit, steps) = (usize::from(bytes.byte()), bytes.byte() % 8);
        let locked = |key: &[u8]| key.last().is_some_and(|last| last % 4 == 0);
        let mut more = true;
        for _ in 0..steps {
            let mut removed = std::mem::take(&mut self.removed);
            let step = self.table.take_expired(self.now_ms, limit, locked, &mut removed);
            for entry in removed.drain(..) {
                let expected = self.model.remove(entry.key()).expect("it was in the table");
                assert_eq!(Expected::of(entry.as_ref()), expected);
                assert!(expected.expire_at.is_some_and(|expire_at| expire_at < self.now_ms));
                assert!(!locked(entry.key()));
                self.note_removed(entry.key());
            }
            self.removed = removed;
            more = step.more;
        }
        if !more {
            let mut due = self.model.iter().filter(|(_, expected)| {
                expected.expire_at.is_some_and(|expire_at| expire_at < self.now_ms)
            });
            assert!(due.all(|(key, _)| locked(key)), "an expired key stays");
        }
    }

    fn take_some(&mut self, bytes: &mut Bytes<'_>) {
        let mut removed = std::mem::take(&mut self.removed);
        let empty = self.table.take_some(bytes.byte().into(), &mut removed);
        for entry in removed.drain(..) {
            assert!(self.model.remove(entry.key()).is_some());
            self.note_removed(entry.key());
        }
        self.removed = removed;
        assert_eq!(empty, self.model.is_empty());
    }

    fn sample(&self, seed: u16) {
        let mut state = u64::from(seed) + 1;
        let sample = self.table.sample(|| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            state ^ state >> 32
        });
        assert_eq!(sample.is_none(), self.model.is_empty());
        assert!(sample.is_none_or(|entry| self.model.contains_key(entry.key())));
    }

    fn check(&self) {
        self.table.check_after_expiry(self.now_ms);
        assert_eq!(self.table.len(), self.model.len());
        let expires = self.model.values().filter(|expected| expected.expire_at.is_some());
        assert_eq!(self.table.expires_len(), expires.count());
        for key in self.model.keys() {
            self.find(key);
        }
    }
}

impl<O: Word> Table<O> {
    /// Checks every word, slot and entry against each other and the totals; panics if one is wrong.
    pub fn check_invariants(&self) {
        self.check_after_expiry(i64::MIN);
    }

    /// The same for a table where expiry at `now_ms` may have left out locked keys.
    pub(super) fn check_after_expiry(&self, now_ms: i64) {
        let (mut len, mut expires, mut links, mut entry_bytes) = (0, 0, 0, 0);
        let mut next = 0;
        for seen in self.core.directory.check() {
            assert_eq!(u64::from(seen.prefix), next, "segments cover all prefixes");
            let depth = seen.child.depth();
            next += span(depth);
            let mut count = 0;
            let mut earliest = i64::MAX;
            if seen.child.pointer().is_null() {
                assert_eq!(seen.child.count(), 0);
                continue;
            }
            for index in 0..bucket::BUCKETS {
                // SAFETY: the directory leads to segments of valid chains and entries.
                unsafe {
                    let head = seen.child.pointer().add(index);
                    let (entries, overflow) = bucket::check(head);
                    count += entries;
                    links += overflow;
                    bucket::for_each(head, |location| {
                        let entry = location.entry();
                        let hash = hash(entry.key());
                        assert_eq!(start_of(prefix_of(hash), depth), seen.prefix);
                        assert_eq!(bucket_of(hash), index);
                        let tag = tag_of(prefix_of(hash), depth, index);
                        assert_eq!(bucket::tag(location.slot()), tag);
                        let flagged = location.slot() & bucket::EXPIRES != 0;
                        assert_eq!(flagged, entry.expire_at().is_some());
                        expires += usize::from(flagged);
                        entry_bytes += entry.allocated();
                        earliest = earliest.min(entry.expire_at().unwrap_or(i64::MAX));
                    });
                }
            }
            assert_eq!(count, seen.child.count());
            assert!(seen.deadline <= earliest.max(now_ms), "a deadline that is too late");
            len += count;
        }
        assert_eq!(next, span(0));
        let totals = &self.core.totals;
        assert_eq!((len, expires), (totals.len, totals.expires));
        assert_eq!(entry_bytes, totals.entry_bytes);
        assert_eq!(links, self.core.links.used());
    }
}
