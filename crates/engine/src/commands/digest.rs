//! DEBUG DIGEST: a checksum of all databases that a Redis server with the same data answers too.
//!
//! ```text
//! xor(d, data): d ^= SHA1(data)              mix(d, data): xor(d, data); d = SHA1(d)
//!
//! final = 0
//! for each database that has keys:           mix(final, index as 4 bytes)
//!   for each key, in any order:              d = 0; mix(d, key); mix(d, type as 4 bytes)
//!     string: mix(d, text)                   list: mix(d, element) in order
//!     set: xor(d, member)                    with an expiry: xor(d, "!!expire!!")
//!                                            xor(final, d)
//! ```
//!
//! A step either takes snapshots of one bucket chain, in one hold, or computes over a bounded number
//! of bytes of them with no latch. So the digest of a database that changes meanwhile is that of no
//! moment; of one that does not it is exact.

use std::ops::ControlFlow;

use sha1::{Digest as _, Sha1};
use structures::big_string::BigString;
use structures::list::{Item, List};
use structures::members::Members;
use structures::object::Object;
use structures::packed::Packed;
use structures::table::Value;
use structures::work;

use crate::errors::Result;
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::database::Database;
use crate::keyspace::hold::Scope;
use crate::keyspace::walk::Cursor;
use crate::lanes::Discard;
use crate::lanes::DroppedObject;
use crate::sync::Arc;

/// Bytes that one step computes over: some 20 microseconds.
const STEP_BYTES: usize = 8 * 1024;

/// What a checksum of its own costs beside its bytes, in bytes.
const CHECKSUM_BYTES: usize = 128;

/// What a hold costs, in bytes.
const HOLD_BYTES: usize = 512;

/// Bytes of values that one hold copies. What lies beyond is looked up again by its key.
const COPIED_BYTES: usize = 32 * 1024;

/// Bytes of a checksum for one unit of work.
const BYTES_PER_UNIT: usize = 4;

/// Twenty bytes of SHA-1.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Digest([u8; 20]);

impl Digest {
    fn of(data: &[u8]) -> Digest {
        Digest(Sha1::digest(data).into())
    }

    fn xor(&mut self, checksum: Digest) {
        self.0.iter_mut().zip(checksum.0).for_each(|(byte, other)| *byte ^= other);
    }

    fn mix(&mut self, checksum: Digest) {
        self.xor(checksum);
        *self = Digest::of(&self.0);
    }

    fn hexadecimal(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The checksum of one text, as far as it has been computed.
#[derive(Default)]
struct Checksum {
    hasher: Sha1,
    offset: u64,
}

impl Checksum {
    /// Goes on over `bytes`. Returns the checksum at their end, and is then as new; `None` when the
    /// budget is used up.
    fn over(&mut self, bytes: &[u8], budget: &mut usize) -> Option<Digest> {
        let rest = &bytes[self.offset as usize..];
        let part = &rest[..rest.len().min(*budget)];
        self.update(part, budget);
        (part.len() == rest.len()).then(|| self.finish(budget))
    }

    /// The same over a long string.
    fn over_big(&mut self, string: &BigString, budget: &mut usize) -> Option<Digest> {
        while self.offset < string.len() {
            if *budget == 0 {
                return None;
            }
            let chunk = string.chunk_at(self.offset);
            self.update(&chunk[..chunk.len().min(*budget)], budget);
        }
        Some(self.finish(budget))
    }

    fn over_item(&mut self, item: Item<'_>, budget: &mut usize) -> Option<Digest> {
        match item {
            Item::Bytes(bytes) => self.over(bytes, budget),
            Item::Big(string) => self.over_big(string, budget),
        }
    }

    fn update(&mut self, part: &[u8], budget: &mut usize) {
        self.hasher.update(part);
        self.offset += part.len() as u64;
        *budget -= part.len();
    }

    fn finish(&mut self, budget: &mut usize) -> Digest {
        *budget = budget.saturating_sub(CHECKSUM_BYTES);
        self.offset = 0;
        Digest(self.hasher.finalize_reset().into())
    }
}

/// A value outside of the keyspace, and how much of it has been seen.
enum Snapshot {
    Text(Vec<u8>),
    BigString(BigString),
    /// The next element, and all.
    PackedList(usize, Packed),
    List(u64, List),
    PackedSet(usize, Packed),
    Set(SetProgress),
}

impl Snapshot {
    fn of(object: Object) -> Snapshot {
        match object {
            Object::PackedList(packed) => Snapshot::PackedList(0, packed),
            Object::List(list) => Snapshot::List(0, list),
            Object::PackedSet(packed) => Snapshot::PackedSet(0, packed),
            Object::Set(members) => Snapshot::Set(SetProgress { members, cursor: 0, done: 0 }),
            Object::BigString(string) => Snapshot::BigString(string),
        }
    }

    /// The number of the type, as files and digests have it.
    fn type_number(&self) -> u32 {
        match self {
            Snapshot::Text(_) | Snapshot::BigString(_) => 0,
            Snapshot::PackedList(..) | Snapshot::List(..) => 1,
            Snapshot::PackedSet(..) | Snapshot::Set(_) => 2,
        }
    }

    /// Adds more of the value to the digest of its key. Returns true at the end, false when the
    /// budget is used up.
    fn step(&mut self, digest: &mut Digest, sum: &mut Checksum, budget: &mut usize) -> bool {
        match self {
            Snapshot::Text(text) => sum.over(text, budget).map(|sum| digest.mix(sum)).is_some(),
            Snapshot::BigString(string) => {
                sum.over_big(string, budget).map(|sum| digest.mix(sum)).is_some()
            }
            Snapshot::PackedList(next, packed) => {
                step_packed(packed, next, sum, budget, |sum| digest.mix(sum))
            }
            Snapshot::PackedSet(next, packed) => {
                step_packed(packed, next, sum, budget, |sum| digest.xor(sum))
            }
            Snapshot::List(next, list) => step_list(list, next, digest, sum, budget),
            Snapshot::Set(set) => set.step(digest, sum, budget),
        }
    }

    /// What is left of a value, which may be large if it has been deleted meanwhile.
    fn into_garbage(self) -> Option<Box<dyn Discard>> {
        let object = match self {
            Snapshot::BigString(string) => Object::BigString(string),
            Snapshot::List(_, list) => Object::List(list),
            Snapshot::Set(set) => Object::Set(set.members),
            Snapshot::Text(_) | Snapshot::PackedList(..) | Snapshot::PackedSet(..) => return None,
        };
        Some(Box::new(DroppedObject::new(object)))
    }
}

fn step_packed(
    packed: &Packed,
    next: &mut usize,
    sum: &mut Checksum,
    budget: &mut usize,
    mut add: impl FnMut(Digest),
) -> bool {
    for entry in packed.iter_range(*next..packed.len()) {
        if *budget == 0 {
            return false;
        }
        let Some(sum) = sum.over(entry, budget) else { return false };
        add(sum);
        *next += 1;
    }
    true
}

fn step_list(
    list: &List,
    next: &mut u64,
    digest: &mut Digest,
    sum: &mut Checksum,
    budget: &mut usize,
) -> bool {
    if *next < list.len() {
        list.for_each_from(*next, |item| {
            let Some(sum) = sum.over_item(item, budget) else { return ControlFlow::Break(()) };
            digest.mix(sum);
            *next += 1;
            if *budget == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    *next == list.len()
}

/// Where a computation over a set stands. Its snapshot does not change, so a scan from the same
/// cursor meets the same members again.
struct SetProgress {
    members: Members,
    cursor: u64,
    /// Members of the scan's step that are in the digest.
    done: usize,
}

impl SetProgress {
    fn step(&mut self, digest: &mut Digest, sum: &mut Checksum, budget: &mut usize) -> bool {
        while *budget > 0 {
            let (mut position, mut is_complete) = (0, true);
            let next = self.members.scan(self.cursor, |member| {
                if position == self.done && is_complete {
                    match sum.over(member, budget) {
                        Some(sum) => {
                            digest.xor(sum);
                            self.done += 1;
                        }
                        None => is_complete = false,
                    }
                }
                position += 1;
            });
            if !is_complete {
                return false;
            }
            let Some(next) = next else { return true };
            (self.cursor, self.done) = (next, 0);
        }
        false
    }
}

/// A key that a hold has found.
struct Found {
    key: Vec<u8>,
    /// `None`: too long to be copied with the others.
    value: Option<Snapshot>,
    has_expiry: bool,
}

/// The computation for one key.
struct Entry {
    found: Found,
    digest: Digest,
    sum: Checksum,
    is_begun: bool,
}

impl Entry {
    fn new(found: Found) -> Entry {
        let (digest, sum, is_begun) = (Digest::default(), Checksum::default(), false);
        Entry { found, digest, sum, is_begun }
    }

    /// Returns true at the end, false when the budget is used up.
    fn step(&mut self, budget: &mut usize) -> bool {
        let Some(value) = &mut self.found.value else { return true };
        if !self.is_begun {
            let Some(sum) = self.sum.over(&self.found.key, budget) else { return false };
            self.digest.mix(sum);
            self.digest.mix(Digest::of(&value.type_number().to_be_bytes()));
            self.is_begun = true;
        }
        if !value.step(&mut self.digest, &mut self.sum, budget) {
            return false;
        }
        if self.found.has_expiry {
            self.digest.xor(Digest::of(b"!!expire!!"));
        }
        true
    }
}

/// A database that is being walked.
struct Walk {
    database: Arc<Database>,
    /// `None` at the end.
    cursor: Option<Cursor>,
    has_keys: bool,
}

/// The whole computation.
#[derive(Default)]
pub(super) struct DigestTask {
    digest: Digest,
    /// The index of the database.
    database: usize,
    walk: Option<Walk>,
    /// Keys of the last hold that wait for their turn.
    found: Vec<Found>,
    entry: Option<Entry>,
}

impl DigestTask {
    /// Takes one hold, or goes on to the next database. Returns false after the last one.
    fn walk_on(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let engine = cx.worker.engine.clone();
        let keyspace = &engine.keyspace;
        if self.database == keyspace.databases() {
            return false;
        }
        let scope = self.scope(cx);
        let walk = self.walk.get_or_insert_with(|| Walk {
            database: keyspace.current(scope),
            cursor: Some(Cursor::START),
            has_keys: false,
        });
        if let Some(cursor) = walk.cursor {
            let (found, mut copied) = (&mut self.found, 0);
            let ledger = &mut cx.worker.ledger;
            walk.cursor = keyspace.walk_step(&walk.database, scope, cursor, ledger, |entry| {
                found.push(Found {
                    key: entry.key().to_vec(),
                    value: snapshot_within(&entry.value(), &mut copied),
                    has_expiry: entry.expire_at().is_some(),
                });
            });
            if !walk.has_keys && !found.is_empty() {
                walk.has_keys = true;
                self.digest.mix(Digest::of(&(self.database as u32).to_be_bytes()));
            }
        } else {
            let former = self.walk.take().map(|walk| super::databases::garbage(walk.database));
            cx.worker.garbage.extend(former);
            self.database += 1;
        }
        true
    }

    fn scope(&self, cx: &TaskContext<'_>) -> Scope {
        Scope { database: self.database as u8, ..cx.scope() }
    }

    /// Copies a value that was too long to be copied with others. A key that is gone is passed
    /// over.
    fn look_up_again(&self, found: &mut Found, cx: &mut TaskContext<'_>) {
        let (Some(walk), scope) = (&self.walk, self.scope(cx)) else { return };
        let engine = cx.worker.engine.clone();
        let key = engine.keyspace.key(&found.key);
        let ledger = &mut cx.worker.ledger;
        let (database, shard) = (&walk.database, key.shard);
        found.value = engine.keyspace.hold_shard(database, scope, shard, ledger, |hold| {
            hold.read(key).and_then(|entry| snapshot_within(&entry.value(), &mut 0))
        });
    }

    fn finish(&mut self, entry: Entry, cx: &mut TaskContext<'_>) {
        if let Some(value) = entry.found.value {
            self.digest.xor(Digest::of(&entry.digest.0));
            cx.worker.garbage.extend(value.into_garbage());
        }
    }
}

/// A snapshot of a value, unless it would have to be copied and enough has been copied already.
fn snapshot_within(value: &Value<'_, Object>, copied: &mut usize) -> Option<Snapshot> {
    match value {
        Value::Int(int) => Some(Snapshot::Text(int.to_string().into())),
        Value::Object(object) => Some(Snapshot::of(Object::clone(object))),
        Value::Bytes(bytes) => {
            // The first is copied whatever its length.
            if *copied > 0 && *copied + bytes.len() > COPIED_BYTES {
                return None;
            }
            *copied += bytes.len();
            work::bytes(bytes.len());
            Some(Snapshot::Text(bytes.to_vec()))
        }
    }
}

impl Task for DigestTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let mut budget = STEP_BYTES;
        while budget > 0 {
            if let Some(entry) = &mut self.entry {
                if entry.step(&mut budget)
                    && let Some(entry) = self.entry.take()
                {
                    self.finish(entry, cx);
                }
            } else if let Some(mut found) = self.found.pop() {
                if found.value.is_none() {
                    self.look_up_again(&mut found, cx);
                }
                self.entry = Some(Entry::new(found));
            } else if self.walk_on(cx) {
                budget = budget.saturating_sub(HOLD_BYTES);
            } else {
                cx.session.reply().writer().simple(&self.digest.hexadecimal());
                return Ok(Step::Done);
            }
        }
        work::add((STEP_BYTES / BYTES_PER_UNIT) as u64);
        Ok(Step::Again)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        let mut pieces = Vec::new();
        pieces.extend(self.walk.map(|walk| super::databases::garbage(walk.database)));
        let values = self.found.into_iter().chain(self.entry.map(|entry| entry.found));
        pieces.extend(values.filter_map(|found| found.value?.into_garbage()));
        if pieces.is_empty() { None } else { Some(Box::new(Pieces(pieces))) }
    }
}

/// What an abandoned computation leaves.
struct Pieces(Vec<Box<dyn Discard>>);

impl Discard for Pieces {
    fn discard_step(&mut self, nodes: usize) -> bool {
        if let Some(piece) = self.0.last_mut()
            && piece.discard_step(nodes)
        {
            self.0.pop();
        }
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::list::{self, End};
    use crate::types::set;
    use structures::list::Element;

    fn found(key: &str, value: Snapshot) -> Found {
        Found { key: key.into(), value: Some(value), has_expiry: false }
    }

    fn text(key: &str, text: &[u8]) -> Found {
        found(key, Snapshot::Text(text.to_vec()))
    }

    fn big(bytes: &[u8]) -> BigString {
        let mut string = BigString::new();
        string.append(bytes);
        string
    }

    fn list(elements: impl Iterator<Item = String>) -> Object {
        let mut object = list::new();
        elements
            .for_each(|text| list::push(&mut object, End::Right, list::element(text.as_bytes())));
        object
    }

    fn set(members: impl Iterator<Item = String>) -> Object {
        let mut object = set::new();
        members.for_each(|text| {
            set::insert(&mut object, text.as_bytes());
        });
        object
    }

    /// The digest of databases, each by its index, computed with this budget for a step.
    fn digest_of(databases: Vec<(u32, Vec<Found>)>, step: usize) -> String {
        let mut digest = Digest::default();
        for (index, keys) in databases {
            digest.mix(Digest::of(&index.to_be_bytes()));
            for found in keys {
                let mut entry = Entry::new(found);
                while !entry.step(&mut { step }) {}
                digest.xor(Digest::of(&entry.digest.0));
            }
        }
        digest.hexadecimal()
    }

    fn words(words: &str) -> impl Iterator<Item = String> {
        words.split(' ').map(str::to_owned)
    }

    fn numbered(letter: char) -> impl Iterator<Item = String> {
        (0..5000).map(move |number| format!("{letter}{number}"))
    }

    fn small() -> Vec<(u32, Vec<Found>)> {
        let expiring = Found { has_expiry: true, ..text("e", b"1") };
        let list = found("l", Snapshot::of(list(words("a b a -7"))));
        let set = found("s", Snapshot::of(set(words("x y 17"))));
        vec![(0, vec![text("n", b"12345"), text("k", b"v")]), (3, vec![set, expiring, list])]
    }

    fn large() -> Vec<(u32, Vec<Found>)> {
        let mut all = small();
        all[0].1.push(found("big", Snapshot::BigString(big(&b"abc".repeat(30_000)))));
        let mut mixed = list(words("a"));
        list::push(&mut mixed, End::Right, Element::Big(big(&[b'z'; 50_000])));
        list::push(&mut mixed, End::Right, Element::Bytes(b"b"));
        let keys = vec![
            found("M", Snapshot::of(mixed)),
            found("L", Snapshot::of(list(numbered('e')))),
            found("S", Snapshot::of(set(numbered('m')))),
        ];
        all.push((5, keys));
        all
    }

    /// Answers of redis-server 7.0.15 for the same data.
    #[test]
    fn digests_are_those_of_redis() {
        let one = vec![(0, vec![text("k", b"v")])];
        assert_eq!(digest_of(one, STEP_BYTES), "264ccf65edec66bccfa7cc659414ccca432057d2");
        for step in [1, 100, STEP_BYTES, usize::MAX] {
            assert_eq!(digest_of(small(), step), "f480d31ed22cd3f1cb00ad8d6434500c77828dd5");
        }
        for step in [7, 1000, STEP_BYTES, usize::MAX] {
            assert_eq!(digest_of(large(), step), "952da6e5d45cf781972077e83ba6dca4ed130fd5");
        }
        assert_eq!(digest_of(Vec::new(), STEP_BYTES), "0".repeat(40));
    }

    #[test]
    fn a_long_member_of_a_set_takes_several_steps() {
        let member = "r".repeat(70_000);
        let whole = |step| {
            let members = words("q s").chain([member.clone()]);
            digest_of(vec![(0, vec![found("T", Snapshot::of(set(members)))])], step)
        };
        assert_eq!(whole(64), whole(usize::MAX));
    }
}
