//! Random operations on a packed blob beside std collections, with live snapshots. The operations
//! come from bytes, so that a fuzzer can write them too.

use std::collections::VecDeque;

use super::Packed;
use crate::hash::hash;

/// Snapshots kept alive beside the collection.
const SNAPSHOTS_MAX: usize = 3;

/// Reads operations from bytes; zeros after the end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first.into()
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.byte() << 8 | self.byte()) % limit
    }

    /// Mostly short entries, seldom longer than a narrow length column can tell.
    fn entry(&mut self) -> Vec<u8> {
        let length = match self.byte() {
            0..=200 => self.below(20),
            201..=250 => self.below(100),
            _ => self.below(900),
        };
        let fill = self.byte() as u8;
        (0..length).map(|index| fill.wrapping_add(index as u8)).collect()
    }

    fn range(&mut self, limit: usize) -> std::ops::Range<usize> {
        let (a, b) = (self.below(limit + 1), self.below(limit + 1));
        a.min(b)..a.max(b)
    }
}

fn check(packed: &Packed, model: &VecDeque<Vec<u8>>) {
    packed.check_invariants();
    assert_eq!(packed.len(), model.len());
    assert_eq!(packed.data_bytes(), model.iter().map(Vec::len).sum::<usize>());
    assert!(packed.iter().eq(model.iter().map(Vec::as_slice)));
    assert!(packed.iter().rev().eq(model.iter().rev().map(Vec::as_slice)));
}

/// Runs the operations that `ops` tells on a list or a set, and panics where the model disagrees.
pub fn drive(ops: &[u8]) {
    let mut script = Script(ops);
    if script.byte().is_multiple_of(2) {
        drive_list(&mut script);
    } else {
        drive_set(&mut script);
    }
}

fn drive_list(script: &mut Script<'_>) {
    let (mut packed, mut model) = (Packed::new(), VecDeque::new());
    let mut snapshots: VecDeque<(Packed, VecDeque<Vec<u8>>)> = VecDeque::new();
    // Most steps either grow or shrink the list, so that all sizes occur.
    let mut grow = 0;
    while !script.0.is_empty() {
        let mut kind = script.byte();
        if kind >= 250 {
            grow = 1 - grow;
        }
        if grow == 0 && (40..120).contains(&kind) {
            kind -= 40;
        }
        list_step(script, kind, &mut packed, &mut model);
        if kind % 16 == 15 {
            snapshots.push_back((packed.clone(), model.clone()));
            if snapshots.len() > SNAPSHOTS_MAX {
                snapshots.pop_front();
            }
        }
        check(&packed, &model);
    }
    snapshots.iter().for_each(|(packed, model)| check(packed, model));
}

fn list_step(
    script: &mut Script<'_>,
    kind: usize,
    packed: &mut Packed,
    model: &mut VecDeque<Vec<u8>>,
) {
    match kind {
        0..=79 => {
            let entry = script.entry();
            if packed.is_full_for(&entry) {
                assert!(packed.len() == 128 || packed.data_bytes() + entry.len() > 3500);
                return;
            }
            let index = match kind % 3 {
                0 => packed.len(),
                1 => 0,
                _ => script.below(packed.len() + 1),
            };
            match index {
                0 if kind.is_multiple_of(2) => packed.push_front(&entry),
                _ if index == packed.len() => packed.push_back(&entry),
                _ => packed.insert_at(index, &entry),
            }
            model.insert(index, entry);
        }
        80..=99 => {
            let removed = model.pop_front();
            assert_eq!(
                packed.pop_front(|entry| assert_eq!(Some(entry), removed.as_deref())),
                removed.is_some()
            );
        }
        100..=119 => {
            let removed = model.pop_back();
            assert_eq!(
                packed.pop_back(|entry| assert_eq!(Some(entry), removed.as_deref())),
                removed.is_some()
            );
        }
        120..=159 if !model.is_empty() => {
            let index = script.below(model.len());
            model.remove(index);
            packed.remove_at(index);
        }
        160..=199 if !model.is_empty() => {
            let (index, entry) = (script.below(model.len()), script.entry());
            if packed.can_set(index, &entry) {
                packed.set(index, &entry);
                model[index] = entry;
            }
        }
        240..=243 => {
            let range = script.range(model.len());
            let detached = packed.detach_range(range.clone());
            check(&detached, &model.drain(range).collect());
        }
        244..=247 => {
            let mark = script.byte() as u8;
            packed.set_encoding(mark);
            assert_eq!(packed.encoding(), mark);
        }
        _ => {
            let range = script.range(model.len());
            assert!(packed.iter_range(range.clone()).eq(model.range(range)));
        }
    }
}

fn drive_set(script: &mut Script<'_>) {
    let (mut packed, mut model) = (Packed::new(), VecDeque::<Vec<u8>>::new());
    let mut snapshots: VecDeque<(Packed, VecDeque<Vec<u8>>)> = VecDeque::new();
    let mut favour_insert = true;
    while !script.0.is_empty() {
        let kind = script.byte();
        let member = script.entry();
        let hash = hash(&member);
        let present = model.iter().position(|entry| *entry == member);
        assert_eq!(packed.find(hash, &member), present);
        if kind >= 252 {
            favour_insert = !favour_insert;
        }
        if kind.is_multiple_of(4) != favour_insert {
            if present.is_some() || !packed.is_full_for(&member) {
                assert_eq!(packed.insert(hash, &member), present.is_none());
                if present.is_none() {
                    model.push_back(member);
                }
            }
        } else if kind.is_multiple_of(3) && !model.is_empty() {
            let gone = model.remove(script.below(model.len())).expect("below the length");
            assert!(packed.remove(crate::hash::hash(&gone), &gone));
        } else {
            assert_eq!(packed.remove(hash, &member), present.is_some());
            present.map(|index| model.remove(index));
        }
        if kind % 32 == 31 {
            snapshots.push_back((packed.clone(), model.clone()));
            if snapshots.len() > SNAPSHOTS_MAX {
                snapshots.pop_front();
            }
        }
        check(&packed, &model);
    }
    snapshots.iter().for_each(|(packed, model)| check(packed, model));
}

#[cfg(test)]
mod unit {
    use super::*;

    /// The next pseudo-random number (splitmix64).
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    #[test]
    fn random_operations_match_the_model() {
        let rounds =
            std::env::var("EVENKEEL_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(1));
        for seed in 0..60 * rounds {
            let mut state = seed;
            let ops: Vec<u8> = (0..8000).map(|_| random(&mut state) as u8).collect();
            eprintln!("seed {seed}");
            drive(&ops);
        }
    }

    #[test]
    fn empty_needs_no_allocation() {
        let mut packed = Packed::new();
        assert_eq!((packed.bytes(), packed.len(), packed.get(0)), (0, 0, None));
        assert!(!packed.pop_front(|_| unreachable!()));
        assert!(!packed.remove(1, b"x"));
        packed.push_back(b"x");
        assert_eq!(packed.bytes(), 32);
        assert_eq!(size_of::<Packed>(), 8);
        shared_by_threads(&packed);
    }

    fn shared_by_threads(_: &(impl Send + Sync)) {}

    #[test]
    fn limits() {
        let mut packed = Packed::new();
        for index in 0..128u8 {
            assert!(!packed.is_full_for(&[index]));
            packed.push_back(&[index]);
        }
        assert!(packed.is_full_for(b""));
        // 16 bytes of header, 1 + 1 bytes per entry.
        assert!(packed.bytes() <= 320, "{}", packed.bytes());
        // A byte more is kept for the fingerprint: an empty block may become a set.
        assert!(!Packed::new().is_full_for(&[0; 4096 - 16 - 3]));
        assert!(Packed::new().is_full_for(&[0; 4096 - 16 - 2]));
    }

    /// A set whose first member took the last byte had no room for the fingerprint, and panicked.
    #[test]
    fn the_first_member_of_a_set_may_be_as_long_as_the_block() {
        for length in 4000..4096 - 16 {
            let mut packed = Packed::new();
            let member = vec![7; length];
            if !packed.is_full_for(&member) {
                packed.insert(hash(&member), &member);
                packed.check_invariants();
            }
        }
    }

    #[test]
    fn encoding_mark_survives() {
        let mut packed = Packed::new();
        packed.set_encoding(7);
        for index in 0..100u8 {
            packed.push_front(&[index; 20]);
        }
        let detached = packed.detach_range(10..90);
        packed.remove_range(0..20);
        assert_eq!((packed.encoding(), detached.encoding()), (7, 7));
    }

    #[test]
    fn queue_does_not_grow() {
        let mut packed = Packed::new();
        for index in 0..10_000u32 {
            packed.push_back(&index.to_le_bytes());
            if index >= 10 {
                packed.pop_front(|entry| assert_eq!(entry, (index - 10).to_le_bytes()));
            }
        }
        assert!(packed.bytes() <= 128, "{}", packed.bytes());
    }
}
