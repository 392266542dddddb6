//! Randomized comparison with a model (see the driver), and the promises of the list one by one.

use std::ops::ControlFlow;

use super::drive::drive_with;
use super::*;
use crate::big_string::BigString;

/// Multiplies the rounds of randomized tests (environment variable EVENKEEL_TEST_ROUNDS).
fn rounds(count: u64) -> u64 {
    let factor = std::env::var("EVENKEEL_TEST_ROUNDS").ok().and_then(|it| it.parse().ok());
    count * factor.unwrap_or(1)
}

/// Random bytes by xorshift, the same for each seed.
fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Prints the seed when the round panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

fn random_rounds<const B: usize, const F: usize>(count: u64) {
    for seed in 0..rounds(count) {
        let _seed = Seed(seed);
        drive_with::<B, F>(&random_bytes(seed, 6000));
    }
}

#[test]
fn random_operations_tiny_nodes() {
    random_rounds::<48, 4>(40);
}

#[test]
fn random_operations_small_nodes() {
    random_rounds::<120, 7>(40);
}

#[test]
fn random_operations_wide_nodes() {
    random_rounds::<64, 19>(40);
}

#[test]
fn random_operations_real_nodes() {
    random_rounds::<LEAF_BUFFER_BYTES, FANOUT>(40);
}

fn list_of(count: u32, length: usize) -> List {
    let mut list = List::new();
    for number in 0..count {
        let mut bytes = vec![b'x'; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        list.push_back(Element::Bytes(&bytes));
    }
    list
}

fn number_at(list: &List, index: u64) -> Option<u32> {
    match list.get(index)? {
        Item::Bytes(bytes) => Some(u32::from_be_bytes(bytes[..4].try_into().unwrap())),
        Item::Big(_) => None,
    }
}

#[test]
fn pushes_leave_full_leaves() {
    for front in [false, true] {
        let mut list = List::new();
        for _ in 0..100_000 {
            match front {
                true => list.push_front(Element::Bytes(&[7; 100])),
                false => list.push_back(Element::Bytes(&[7; 100])),
            }
        }
        list.check_invariants();
        let per_element = list.bytes() as f64 / 100_000.0;
        assert!(per_element < 107.0, "{per_element} bytes per element, front: {front}");
    }
}

#[test]
fn indexes_and_ends() {
    let list = list_of(10_000, 100);
    assert_eq!(list.len(), 10_000);
    for index in (0..10_000).step_by(7) {
        assert_eq!(number_at(&list, index), Some(index as u32));
    }
    assert!(list.get(10_000).is_none());
    assert!(list.get(u64::MAX).is_none());
}

#[test]
fn a_queue_recycles_its_pages() {
    let mut list = list_of(1000, 100);
    let bytes = list.bytes();
    for _ in 0..10_000 {
        assert!(list.pop_front(|_| ()));
        list.push_back(Element::Bytes(&[1; 100]));
    }
    list.check_invariants();
    assert!(list.bytes() <= bytes + 2 * 4096, "one spare leaf and one partly filled at each end");
}

#[test]
fn work_of_single_operations_is_bounded() {
    let mut list = list_of(200_000, 100);
    // The dearest is a detach from a shared list: two cuts, each with a path of copies.
    const UNITS_MAX: u64 = 1200;
    let mut measured = |name: &str, operate: &mut dyn FnMut(&mut List)| {
        let pinned = list.clone();
        let before = work::counted();
        operate(&mut list);
        let units = work::counted() - before;
        assert!(units <= UNITS_MAX, "{name} took {units} units");
        drop(pinned);
    };
    measured("push", &mut |list| list.push_back(Element::Bytes(&[1; 1000])));
    measured("insert", &mut |list| list.insert(77_777, Element::Bytes(&[1; 1000])));
    measured("remove", &mut |list| assert!(list.remove(55_555, |_| ())));
    measured("detach", &mut |list| assert_eq!(list.detach(30_001..130_007).len(), 100_006));
    measured("split and append", &mut |list| {
        let right = list.split_off(12_345);
        list.append(right);
    });
    measured("set", &mut |list| assert!(list.set(4321, Element::Bytes(&[1; 4000]), |_| ())));
    measured("append itself", &mut |list| list.append(list.clone()));
    list.check_invariants();
}

#[test]
fn big_elements_come_out_as_they_went_in() {
    let mut list = List::new();
    let mut big = BigString::new();
    big.append(&vec![b'b'; 100_000]);
    list.push_back(Element::Big(big.clone()));
    list.push_back(Element::Block(Block::new(&[b'c'; 16_000])));
    list.push_back(Element::Bytes(&[b'd'; 2000]));
    list.push_back(Element::Bytes(&[b'e'; 9000]));
    list.check_invariants();
    assert!(list.bytes() > 100_000 + 16_000 + 2000 + 9000);
    let lengths: Vec<u64> = (0..4).map(|index| list.get(index).unwrap().len()).collect();
    assert_eq!(lengths, [100_000, 16_000, 2000, 9000]);
    assert_eq!(list.find_from(Cursor::at(0), &[b'e'; 9000], 100), Found::At(3));
    assert!(list.pop_front(|element| {
        assert!(matches!(element, Element::Big(popped) if popped.same_version(&big)));
    }));
    assert!(list.pop_front(|element| assert!(matches!(element, Element::Block(_)))));
}

#[test]
fn a_search_stops_inside_a_big_element() {
    let bytes = vec![b'b'; 1_000_000];
    let mut big = BigString::new();
    big.append(&bytes);
    let mut list = List::new();
    list.push_back(Element::Big(big));
    let mut cursor = Cursor::at(0);
    let mut steps = 0;
    while let Found::Pending(next) = list.find_from(cursor, &bytes, 64) {
        assert!(next.matched > cursor.matched);
        (cursor, steps) = (next, steps + 1);
    }
    assert!(steps > 20, "{steps} steps for 245 chunks");
    assert_eq!(list.find_from(cursor, &bytes, 64), Found::At(0));
}

#[test]
fn many_cuts_leave_no_tree_of_thin_nodes() {
    let mut list = list_of(50_000, 100);
    let bytes = list.bytes();
    for seed in 1..4000_u64 {
        let index = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % list.len();
        let right = list.split_off(index);
        list.append(right);
    }
    list.check_invariants();
    assert!(list.bytes() < bytes + bytes / 20, "{} bytes, {bytes} before", list.bytes());
    assert!((0..50_000).all(|index| number_at(&list, index) == Some(index as u32)));
}

#[test]
fn short_lists_appended_one_by_one_fill_leaves() {
    let mut list = List::new();
    for _ in 0..3000 {
        list.append(list_of(10, 100));
    }
    list.check_invariants();
    assert!(list.bytes() < 30_000 * 140, "{} bytes", list.bytes());
}

#[test]
fn the_reaper_frees_in_steps() {
    let mut list = list_of(100_000, 100);
    assert!(list.weight() > 2500 && list.weight() < 2800);
    let snapshot = list.clone();
    assert!(list.drop_step(10), "a shared list is released at once");
    let mut list = snapshot;
    let mut steps = 0;
    while !list.drop_step(100) {
        steps += 1;
    }
    assert!((20..40).contains(&steps), "{steps} steps");
    assert_eq!(list.weight(), 0);
}

#[test]
fn walks_stop_where_they_are_told() {
    let list = list_of(1000, 100);
    let mut seen = 0;
    list.for_each_from(990, |_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(seen, 10);
    list.for_each_run_back(0..1000, |_| {
        seen += 1;
        if seen == 13 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 13);
    list.for_each_from(1000, |_| panic!("beyond the end"));
    list.for_each_run_back(1000..1001, |_| panic!("beyond the end"));
}
