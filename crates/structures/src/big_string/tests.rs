//! Tests of big strings: cases of their own, and random operations against a `Vec<u8>`.

use super::*;

#[test]
fn the_empty_string_allocates_nothing() {
    let string = BigString::new();
    assert_eq!((string.len(), string.bytes(), string.weight()), (0, 0, 0));
    assert!(string.chunk_at(0).is_empty());
    assert!(string.equals(b""));
}

#[test]
fn a_write_at_512_mb_allocates_one_path() {
    let mut string = BigString::new();
    string.append(b"begin");
    string.write_at((512 << 20) - 3, b"end");
    assert_eq!(string.len(), 512 << 20);
    assert_eq!(string.weight(), 1 + 2 + 1 + 3 + 3, "root, two leaves, a top, two paths below");
    assert!(string.bytes() < 11_000);
    assert_eq!(string.chunk_at(1 << 20), &[0; CHUNK_BYTES][..string.chunk_at(1 << 20).len()]);
    assert!(string.equals_at((512 << 20) - 4, b"\0end"));
    string.check_invariants();
}

#[test]
fn work_of_a_write_after_a_snapshot_is_bounded() {
    let mut string = BigString::new();
    for _ in 0..4096 {
        string.append(&[b'x'; CHUNK_BYTES]);
    }
    let snapshot = string.clone();
    let before = work::counted();
    string.write_at(8 << 20, b"y");
    let cold = work::counted() - before;
    string.write_at(8 << 20, b"z");
    let warm = work::counted() - before - cold;
    assert!(cold < 800, "{cold}");
    assert!(warm < 50, "{warm}");
    assert!(snapshot.equals_at(8 << 20, b"x"));
    assert!(!snapshot.same_version(&string));
}

#[test]
fn drop_step_keeps_its_budget_and_shared_chunks() {
    let mut string = BigString::new();
    for _ in 0..2000 {
        string.append(&[b'x'; CHUNK_BYTES]);
    }
    let mut snapshot = string.clone();
    assert!(snapshot.drop_step(1), "a shared root is only released");
    let mut snapshot = string.clone();
    string.write_at(0, b"y");
    assert!(string.equals_at(0, b"yx"));
    while !snapshot.drop_step(10) {}
    string.check_invariants();
    let mut steps = 0;
    let before = work::counted();
    while !string.drop_step(100) {
        steps += 1;
        assert!(work::counted() - before <= steps * 110 * work::UNITS_PER_ALLOCATION);
    }
    assert!((15..=30).contains(&steps), "{steps}");
}

#[test]
fn random_operations_match_a_vec() {
    let rounds = std::env::var("EVENKEEL_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(1));
    for seed in 0..60 * rounds {
        let mut state: u64 = seed * 2 + 1;
        let input: Vec<u8> = (0..400)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            })
            .collect();
        let result = std::panic::catch_unwind(|| drive(&input));
        assert!(result.is_ok(), "failed with seed {seed}");
    }
}
