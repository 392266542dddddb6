//! Random operations on a member table beside std's `HashSet`, with live snapshots, walks and
//! scans. The operations come from bytes, so that a fuzzer can write them too.

use std::collections::{HashMap, HashSet, VecDeque};

use super::part::Part;
use super::{
    HASH_BITS, LargeMember, MEMBER_INLINE_MAX, Members, ROOT_BYTES, Shape, Sizes, Taken, Walk,
    branches, segment,
};

/// Snapshots kept alive beside the table.
const SNAPSHOTS_MAX: usize = 3;

/// Few members make many levels.
pub(super) struct Tiny;

impl Shape for Tiny {
    const LEVEL_BITS: u32 = 2;
    const SEGMENT_BYTES_MAX: usize = 768;

    fn hash(member: &[u8]) -> u64 {
        crate::hash::hash(member)
    }
}

/// Few different hashes: segments that cannot be split, long runs of equal positions.
pub(super) struct Poor;

impl Shape for Poor {
    const LEVEL_BITS: u32 = 3;
    const SEGMENT_BYTES_MAX: usize = 1024;

    fn hash(member: &[u8]) -> u64 {
        crate::hash::hash(member) & 0x8100_0000_0001_8003
    }
}

type Model = HashSet<Vec<u8>>;

impl<S: Shape> Members<S> {
    pub(super) fn check_invariants(&self) {
        let root = self.root.head();
        let mut sizes = Sizes { bytes: ROOT_BYTES as u64, parts: 1 };
        let all = (0, u64::MAX);
        let length = check_part::<S>(&root.top, HASH_BITS, all, &mut sizes);
        assert_eq!(length, root.length);
        assert_eq!((sizes.bytes, sizes.parts), (root.sizes.bytes, root.sizes.parts));
    }
}

/// Checks a part whose hashes are in a range of bounds, and returns its length.
fn check_part<S: Shape>(part: &Part, shift: u32, bounds: (u64, u64), sizes: &mut Sizes) -> u64 {
    sizes.add(part.head().size.into());
    if !part.is_node() {
        segment::check_invariants::<S>(part);
        for index in 0..part.slots().len() {
            let entry = segment::entry(part, index);
            let hash = S::hash(entry.member());
            assert!(bounds.0 <= hash && hash <= bounds.1);
            entry.outside().iter().for_each(|large| sizes.add(large.allocated()));
        }
        return part.slots().len() as u64;
    }
    assert!(part.kids().len() >= 2);
    let shift = shift - S::LEVEL_BITS;
    let (mut start, mut length) = (0, 0);
    for (index, kid) in part.kids().iter().enumerate() {
        assert_eq!(part.kid_index(start), index);
        let run = part.run(start, branches::<S>());
        assert!(run.start == start && run.length.is_power_of_two());
        assert!(start.is_multiple_of(run.length));
        assert!(!kid.is_node() || run.length == 1);
        let low = bounds.0 + (u64::from(start) << shift);
        let high = low + ((u64::from(run.length) << shift) - 1);
        length += check_part::<S>(kid, shift, (low, high), sizes);
        start += run.length;
    }
    assert_eq!(start, branches::<S>());
    length
}

/// Everything that a walk sees, in batches of `limit`.
fn walk_all<S: Shape>(mut walk: Walk<S>, limit: usize) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    loop {
        let before = seen.len();
        let more = walk.next_batch(limit, |member| seen.push(member.to_vec()));
        assert!(seen.len() - before <= limit);
        if !more {
            return seen;
        }
    }
}

fn check<S: Shape>(members: &Members<S>, model: &Model) {
    members.check_invariants();
    assert_eq!(members.len(), model.len() as u64);
    let seen = walk_all(members.walk(), 7);
    assert_eq!(seen.len(), model.len());
    for member in &seen {
        assert!(model.contains(member));
        assert!(members.contains(S::hash(member), member));
    }
}

/// A scan under way, and what it must and may return.
#[derive(Default)]
struct Scan {
    cursor: u64,
    /// Members that were present all the time, and whether they were returned.
    expected: HashMap<Vec<u8>, bool>,
    /// Members returned that came or went meanwhile.
    returned: HashSet<Vec<u8>>,
    /// The cursor has been in the middle of a segment.
    met_merge: bool,
}

impl Scan {
    fn begin(model: &Model) -> Self {
        let expected = model.iter().map(|member| (member.clone(), false)).collect();
        Self { expected, ..Self::default() }
    }

    /// A member was added or removed: it may be returned once more, or not at all.
    fn disturbed(&mut self, member: &[u8]) {
        self.expected.remove(member);
        self.returned.remove(member);
    }

    /// True when the scan has ended.
    fn step<S: Shape>(&mut self, members: &Members<S>, model: &Model) -> bool {
        let next = members.scan(self.cursor, |member| {
            assert!(model.contains(member));
            match self.expected.get_mut(member) {
                Some(seen) => assert!(!std::mem::replace(seen, true), "returned twice"),
                None => assert!(self.returned.insert(member.to_vec()), "returned twice"),
            }
        });
        let Some(next) = next else {
            assert!(self.expected.values().all(|seen| *seen), "missed");
            return true;
        };
        assert!(next > self.cursor);
        self.cursor = next;
        false
    }
}

/// The state that a script changes.
struct Harness<S: Shape> {
    members: Members<S>,
    model: Model,
    snapshots: VecDeque<(Members<S>, Model)>,
    scan: Scan,
    /// Scans that ended after having met a segment that was merged under the cursor.
    scans_over_merges: usize,
}

impl<S: Shape> Harness<S> {
    fn new() -> Self {
        Self {
            members: Members::with_shape(),
            model: Model::new(),
            snapshots: VecDeque::new(),
            scan: Scan::default(),
            scans_over_merges: 0,
        }
    }

    fn insert(&mut self, member: Vec<u8>) {
        let added = self.members.insert(S::hash(&member), &member);
        if added {
            self.scan.disturbed(&member);
        }
        assert_eq!(added, self.model.insert(member));
    }

    fn remove(&mut self, member: &[u8]) {
        let removed = match self.members.take(S::hash(member), member) {
            Taken::Absent => false,
            Taken::Inline => true,
            Taken::Outside(large) => large.as_bytes() == member,
        };
        if removed {
            self.scan.disturbed(member);
        }
        assert_eq!(removed, self.model.remove(member));
    }

    fn step_scan(&mut self) {
        let from = self.scan.cursor << 16;
        self.scan.met_merge |= self.members.locate(from).start != from;
        if self.scan.step(&self.members, &self.model) {
            self.scans_over_merges += usize::from(self.scan.met_merge);
            self.scan = Scan::begin(&self.model);
        }
    }

    fn snapshot(&mut self) {
        self.snapshots.push_back((self.members.clone(), self.model.clone()));
        if self.snapshots.len() > SNAPSHOTS_MAX {
            let (members, model) = self.snapshots.pop_front().expect("just filled");
            check(&members, &model);
            let mut remains = members.into_remains();
            while !remains.drop_step(2) {}
        }
    }

    fn finish(self) {
        check(&self.members, &self.model);
        self.snapshots.iter().for_each(|(members, model)| check(members, model));
    }
}

/// A member made of two numbers: which one, and how long.
fn member_of(number: usize, kind: usize) -> Vec<u8> {
    let length = match kind {
        0..=220 => number % 23,
        221..=245 => 200 + number % 100,
        246..=251 => MEMBER_INLINE_MAX - 1 + number % 3,
        _ => 1000 + number % 1000,
    };
    let mut member = format!("{number}:").into_bytes();
    member.resize(member.len().max(length), b'x');
    member
}

/// Runs the operations that `ops` tells, and panics where the model disagrees.
pub fn drive(ops: &[u8]) {
    match ops.split_first() {
        Some((first, rest)) if first % 2 == 0 => drive_shape::<Tiny>(rest),
        Some((_, rest)) => drive_shape::<Poor>(rest),
        None => {}
    }
}

fn drive_shape<S: Shape>(ops: &[u8]) {
    let mut harness = Harness::<S>::new();
    let mut favour_insert = true;
    for op in ops.chunks_exact(4) {
        let number = usize::from(op[1]) << 8 | usize::from(op[2]);
        // Not more than the segments of the poor shape can hold.
        let member = member_of(number % 1200, if number % 1200 < 900 { 0 } else { op[3].into() });
        match op[0] {
            0..=99 if favour_insert => harness.insert(member),
            0..=99 => harness.remove(&member),
            100..=139 => harness.insert(member),
            140..=179 => harness.remove(&member),
            180..=229 => harness.step_scan(),
            230..=233 => favour_insert = !favour_insert,
            234..=239 => harness.snapshot(),
            240 => {
                harness.members.scan(u64::from(op[1]) << 56 | number as u64, |_| {});
                harness.members.scan(number as u64 * 0xFF_FFFF_FFF1, |_| {});
            }
            241 => check(&harness.members, &harness.model),
            _ => {
                let hash = S::hash(&member);
                let present = harness.model.contains(&member);
                assert_eq!(harness.members.contains(hash, &member), present);
            }
        }
    }
    harness.finish();
}

#[cfg(test)]
mod unit {
    use super::super::Standard;
    use super::*;
    use crate::packed::Packed;

    /// The next pseudo-random number (splitmix64).
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn rounds() -> u64 {
        std::env::var("EVENKEEL_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(1))
    }

    #[test]
    fn random_operations_match_the_model() {
        for seed in 0..40 * rounds() {
            let mut state = seed;
            let ops: Vec<u8> = (0..40_001).map(|_| random(&mut state) as u8).collect();
            eprintln!("seed {seed}");
            drive(&ops);
        }
    }

    /// Between any two steps of a scan, a burst of changes lets the table grow to thousands of
    /// members or shrink to none, so that splits and merges happen under the cursor.
    #[test]
    fn scan_sees_each_member_once_across_splits_and_merges() {
        scan_across_bursts::<Tiny>(rounds() * 12, 3000);
        scan_across_bursts::<Standard>(rounds() * 3, 40_000);
    }

    fn scan_across_bursts<S: Shape>(rounds: u64, members: u64) {
        for seed in 0..rounds {
            eprintln!("seed {seed}");
            let mut state = seed;
            let mut harness = Harness::<S>::new();
            let mut target = members / 2;
            while harness.scans_over_merges < 2 {
                for _ in 0..random(&mut state) % 32 {
                    harness.step_scan();
                }
                if random(&mut state).is_multiple_of(16) {
                    target = random(&mut state) % 3 * members / 4;
                }
                for _ in 0..random(&mut state) % (members / 30) {
                    let member = (random(&mut state) % members).to_string().into_bytes();
                    if (harness.model.len() as u64) < target {
                        harness.insert(member);
                    } else {
                        harness.remove(&member);
                    }
                }
            }
            harness.finish();
        }
    }

    #[test]
    fn space_follows_the_members() {
        let mut members = Members::new();
        let member = |index: u64| format!("member:{index:05}").into_bytes();
        let mut worst = 0;
        for index in 0..100_000 {
            let bytes = member(index);
            assert!(members.insert(crate::hash::hash(&bytes), &bytes));
            if index >= 5000 {
                worst = worst.max(members.bytes() * 10 / members.len());
            }
        }
        assert!(worst < 240, "{worst} tenths of a byte per member of 12");
        let full = members.clone();
        for index in 0..100_000 {
            let bytes = member(index);
            assert!(members.remove(crate::hash::hash(&bytes), &bytes));
            if index % 10_000 == 0 {
                members.check_invariants();
            }
            if members.len() == 10_000 {
                let each = members.bytes() / members.len();
                assert!(each < 40, "{each} bytes per member after removing most");
            }
        }
        assert_eq!((members.len(), members.weight(), members.bytes()), (0, 2, 48 + 256));
        assert_eq!(full.len(), 100_000);
        full.check_invariants();
    }

    #[test]
    fn large_members_are_shared_not_copied() {
        let mut members = Members::new();
        let large: Vec<LargeMember> =
            (0..500u32).map(|index| LargeMember::new(&index.to_le_bytes().repeat(300))).collect();
        for member in &large {
            assert!(members.insert_large(crate::hash::hash(member.as_bytes()), member));
        }
        let snapshot = members.clone();
        for member in &large {
            let bytes = member.as_bytes();
            match members.take(crate::hash::hash(bytes), bytes) {
                Taken::Outside(taken) => {
                    assert!(std::ptr::eq(taken.as_bytes().as_ptr(), bytes.as_ptr()));
                }
                other => panic!("{other:?}"),
            }
        }
        members.check_invariants();
        assert!(members.is_empty());
        assert_eq!(walk_all(snapshot.walk(), 100).len(), 500);
        snapshot.check_invariants();
    }

    #[test]
    fn snapshots_are_read_by_other_threads() {
        let mut members = Members::new();
        let add = |members: &mut Members, range: std::ops::Range<u32>| {
            for index in range {
                let bytes = index.to_string().into_bytes();
                members.insert(crate::hash::hash(&bytes), &bytes);
            }
        };
        add(&mut members, 0..5000);
        std::thread::scope(|scope| {
            for start in 0..4 {
                let walk = members.walk();
                let expected = members.len();
                scope.spawn(move || assert_eq!(walk_all(walk, 100).len() as u64, expected));
                add(&mut members, 5000 + start * 1000..6000 + start * 1000);
            }
        });
        assert_eq!(size_of::<Members>(), 8);
    }

    #[test]
    fn samples_are_even() {
        const MEMBERS: u64 = 1000;
        const DRAWS: u64 = 200_000;
        let mut members = Members::<Tiny>::with_shape();
        assert_eq!(members.sample(|| 1), None);
        for index in 0..MEMBERS {
            let bytes = index.to_le_bytes();
            members.insert(Tiny::hash(&bytes), &bytes);
        }
        let mut state = 1;
        let mut drawn = vec![0u64; MEMBERS as usize];
        for _ in 0..DRAWS {
            let member = members.sample(|| random(&mut state)).expect("not empty");
            drawn[u64::from_le_bytes(member.try_into().expect("8 bytes")) as usize] += 1;
        }
        let expected = (DRAWS / MEMBERS) as f64;
        let squares: f64 = drawn.iter().map(|&n| (n as f64 - expected).powi(2)).sum();
        let spread = squares / expected / MEMBERS as f64;
        assert!((0.8..1.2).contains(&spread), "chi-square {spread} per degree of freedom");
        // The last member is found by whatever numbers.
        for index in 1..MEMBERS {
            let bytes = index.to_le_bytes();
            members.remove(Tiny::hash(&bytes), &bytes);
        }
        assert_eq!(members.sample(|| u64::MAX), Some(&0u64.to_le_bytes()[..]));
    }

    #[test]
    fn a_full_packed_set_becomes_a_table() {
        let mut packed = Packed::new();
        for index in 0..128u32 {
            let bytes = format!("member {index}").into_bytes();
            packed.insert(crate::hash::hash(&bytes), &bytes);
        }
        let members = Members::<Standard>::from_packed(&packed);
        members.check_invariants();
        assert_eq!((members.len(), members.weight()), (128, 2));
        assert!(packed.iter().all(|member| members.contains(crate::hash::hash(member), member)));
    }

    #[test]
    fn taking_apart_is_bounded_per_step() {
        let mut members = Members::<Tiny>::with_shape();
        for index in 0..5000u32 {
            let bytes = index.to_string().into_bytes();
            members.insert(Tiny::hash(&bytes), &bytes);
        }
        let snapshot = members.clone();
        let parts = members.weight();
        assert!(members.into_remains().drop_step(1), "another version has everything");
        let mut remains = snapshot.into_remains();
        let mut steps = 1;
        while !remains.drop_step(10) {
            steps += 1;
        }
        assert!(steps >= parts / 10, "{steps} steps for {parts} parts");
    }
}
