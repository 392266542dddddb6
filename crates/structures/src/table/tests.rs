//! Tests of the table against std collections, by random operations and by special cases.

use std::collections::{HashMap, HashSet};

use super::drive::{Plain, Thing, drive};
use super::trie::prefix_of;
use super::*;
use crate::hash::hash;

/// A small generator, so that a failure is repeated by its seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }
}

fn rounds() -> u64 {
    std::env::var("EVENKEEL_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

type Small = Table<Thing>;

fn add(table: &mut Small, number: u64) {
    let key = number.to_string();
    table.insert(hash(key.as_bytes()), key.as_bytes(), NewValue::Int(number as i64), None);
}

fn remove(table: &mut Small, number: u64) -> bool {
    let key = number.to_string();
    table.remove(hash(key.as_bytes()), key.as_bytes()).is_some()
}

fn has(table: &Small, number: u64) -> bool {
    let key = number.to_string();
    table.find(hash(key.as_bytes()), key.as_bytes()).is_some()
}

fn number_of(entry: EntryRef<'_, Thing>) -> u64 {
    std::str::from_utf8(entry.key()).unwrap().parse().unwrap()
}

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..32 * rounds() {
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        let length = 2000 + random.below(10_000);
        let mut ops: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        ops[0] = seed as u8;
        drive(&ops);
    }
}

#[test]
fn a_new_table_has_no_memory() {
    static TABLE: Small = Table::new();
    assert_eq!((TABLE.len(), TABLE.expires_len(), TABLE.allocated_bytes()), (0, 0, 0));
    assert!(TABLE.is_empty() && TABLE.earliest().is_none());
    assert!(!has(&TABLE, 1));
    assert_eq!(TABLE.scan(Position::START, |_| panic!("there is no entry")), None);
    assert!(TABLE.sample(|| 0).is_none());
}

#[test]
fn grows_and_shrinks_to_one_segment() {
    let mut table = Small::new();
    for number in 0..30_000 {
        add(&mut table, number);
    }
    table.check_invariants();
    let full = table.allocated_bytes();
    assert!(full / 30_000 < 64, "{} bytes per key", full / 30_000);
    for number in 0..30_000 {
        assert!(remove(&mut table, number));
        assert!(!has(&table, number));
        if number % 3000 == 0 {
            table.check_invariants();
        }
    }
    table.check_invariants();
    assert!(table.allocated_bytes() < 3 * 4096, "{} bytes", table.allocated_bytes());
}

/// Keys whose prefixes share their first 16 bits make the directory deep: the windows of the tags
/// move at depths from 10 and from 20 on, where splits and merges hash the keys again.
#[test]
fn deep_segments_move_their_tags() {
    let deep: Vec<u64> = (0..12_000_000)
        .filter(|n: &u64| prefix_of(hash(n.to_string().as_bytes())) >> 16 == 99)
        .collect();
    assert!(deep.len() > 100);
    let mut table = Small::with_split_limit(2);
    for &number in &deep {
        add(&mut table, number);
        assert!(has(&table, number));
    }
    for number in 20_000_000..20_010_000 {
        add(&mut table, number);
    }
    table.check_invariants();
    assert!(table.core.directory.deepest() > 21, "{}", table.core.directory.deepest());
    for &number in &deep {
        assert!(remove(&mut table, number));
    }
    table.check_invariants();
    for number in 20_000_000..20_010_000 {
        assert!(remove(&mut table, number));
    }
    table.check_invariants();
}

/// Between any two steps of a walk many keys come and go: the table swings from empty to full.
#[test]
fn scan_neither_repeats_nor_misses_a_key() {
    for seed in 0..4 * rounds() {
        for limit in [6, 128, 384, 640] {
            eprintln!("seed {seed} limit {limit}");
            walk_while_it_changes(&mut Random::new(seed), limit);
        }
    }
}

fn walk_while_it_changes(random: &mut Random, limit: u16) {
    let mut table = Small::with_split_limit(limit);
    let universe = 60 * u64::from(limit);
    let mut present = HashSet::new();
    let mut target = 0;
    for _ in 0..3 {
        let mut staying = present.clone();
        let mut seen = HashSet::new();
        let mut position = Some(Position::START);
        while let Some(from) = position {
            if random.below(8) == 0 {
                target = random.below(2) * random.below(universe as usize);
            }
            for _ in 0..random.below(2) * random.below(2 * usize::from(limit)) {
                let number = random.next() % universe;
                if present.len() < target && present.insert(number) {
                    add(&mut table, number);
                } else if present.len() > target && present.remove(&number) {
                    assert!(remove(&mut table, number));
                    staying.remove(&number);
                    seen.remove(&number);
                }
            }
            position = table.scan(from, |entry| {
                let number = number_of(entry);
                assert!(present.contains(&number), "{number} is not there");
                assert!(seen.insert(number), "{number} was visited twice");
            });
        }
        assert!(staying.is_subset(&seen), "a key was missed");
        table.check_invariants();
        assert_eq!(table.len(), present.len());
        target = universe as usize / 2;
    }
}

#[test]
fn every_position_is_accepted() {
    let mut table = Small::with_split_limit(8);
    for number in 0..3000 {
        add(&mut table, number);
    }
    let mut random = Random::new(5);
    for _ in 0..2000 {
        let from = Position { bucket: random.next() as u8, prefix: random.next() as u32 };
        table.scan(from, |_| ());
        let from = Position::from_bits(random.next());
        let next = table.scan(from, |_| ());
        assert!(next.is_none_or(|next| next.to_bits() > from.to_bits()));
    }
}

#[test]
fn expiry_finds_what_is_due_and_no_more() {
    let mut table = Small::new();
    for number in 0..20_000_i64 {
        let key = number.to_string();
        let expire_at = (number % 2 == 0).then_some(number);
        table.insert(hash(key.as_bytes()), key.as_bytes(), NewValue::Int(number), expire_at);
    }
    assert_eq!((table.expires_len(), table.earliest()), (10_000, Some(0)));
    let mut removed = Vec::new();
    let locked = |key: &[u8]| key == b"500";
    let (mut examined, mut more, mut steps) = (0, true, 0);
    while more {
        let before = removed.len();
        let step = table.take_expired(9_000, 64, locked, &mut removed);
        examined += step.examined;
        assert!(step.examined < 64 + 40 && removed.len() - before <= step.examined);
        more = step.more;
        steps += 1;
        assert!(steps < 2_000, "expiry does not come to an end");
    }
    assert_eq!(removed.len(), 4_499);
    assert!(removed.iter().all(|entry| entry.expire_at().is_some_and(|at| at < 9_000)));
    assert!(examined <= 2 * 10_000, "{examined}");
    assert_eq!((table.len(), table.expires_len()), (15_501, 5_501));
    table.check_after_expiry(9_000);
    // The locked key is not looked at again before time goes on.
    let step = table.take_expired(9_000, 64, locked, &mut removed);
    assert_eq!(step, ExpiryStep { examined: 0, more: false });
    while table.take_expired(9_001, 64, |_| false, &mut removed).more {}
    assert_eq!((removed.len(), table.earliest()), (4_501, Some(9_002)));
}

#[test]
fn a_stale_deadline_is_corrected() {
    let mut table = Small::new();
    let key = b"key";
    table.insert(hash(key), key, NewValue::Bytes(b"value"), Some(10));
    table.find_mut(hash(key), key).unwrap().set_expire(None);
    assert_eq!(table.earliest(), Some(10));
    let mut removed = Vec::new();
    let step = table.take_expired(20, 64, |_| false, &mut removed);
    assert_eq!((step, table.earliest()), (ExpiryStep { examined: 0, more: false }, None));
    assert!(removed.is_empty() && table.len() == 1);
}

#[test]
fn an_entry_that_comes_during_an_examination_is_not_forgotten() {
    let mut table = Small::new();
    let mut insert = |number: i64, expire_at| {
        let key = number.to_string();
        table.insert(hash(key.as_bytes()), key.as_bytes(), NewValue::Int(0), Some(expire_at));
    };
    (0..300).for_each(|number| insert(number, 1_000_000));
    insert(300, 5);
    let mut removed = Vec::new();
    assert!(table.take_expired(10, 150, |_| false, &mut removed).more);
    for number in 301..330 {
        let key = number.to_string();
        table.insert(hash(key.as_bytes()), key.as_bytes(), NewValue::Int(0), Some(20));
    }
    while table.take_expired(10, 150, |_| false, &mut removed).more {}
    assert_eq!(table.earliest(), Some(20));
    while table.take_expired(21, 150, |_| false, &mut removed).more {}
    assert_eq!((removed.len(), table.earliest()), (30, Some(1_000_000)));
}

#[test]
fn a_leaked_guard_leaves_an_integer() {
    let mut table = Small::new();
    let key = b"key";
    table.insert(hash(key), key, NewValue::Object(Thing::Number(Box::new(1))), None);
    let mut entry = table.find_mut(hash(key), key).unwrap();
    let mut guard = entry.object_mut().unwrap();
    *guard = Thing::Plain(7);
    std::mem::forget(guard);
    assert_eq!(Plain::of(&entry.value()), Plain::Int(0));
}

#[test]
fn entries_move_between_tables() {
    let (mut from, mut to) = (Small::new(), Small::new());
    let (key, thing) = (b"key", Thing::Text(Box::new("text".into())));
    from.insert(hash(key), key, NewValue::Object(thing.clone()), Some(9)).set_access(77);
    let entry = from.remove(hash(key), key).unwrap();
    let entry = to.insert_entry(hash(key), entry).into_ref();
    assert_eq!(Plain::of(&entry.value()), Plain::Object(thing));
    assert_eq!((entry.expire_at(), entry.access()), (Some(9), 77));
    assert_eq!((from.len(), from.expires_len(), to.len(), to.expires_len()), (0, 0, 1, 1));
}

#[test]
fn samples_are_uniform() {
    let mut table = Small::with_split_limit(100);
    const KEYS: u64 = 400;
    const DRAWS: u64 = 100;
    (0..KEYS).for_each(|number| add(&mut table, number));
    let mut random = Random::new(1);
    let mut drawn = HashMap::new();
    for _ in 0..KEYS * DRAWS {
        let entry = table.sample(|| random.next()).unwrap();
        *drawn.entry(number_of(entry)).or_insert(0_u64) += 1;
    }
    let square = |number| drawn.get(&number).map_or(0, |&times: &u64| times).abs_diff(DRAWS).pow(2);
    let chi2 = (0..KEYS).map(square).sum::<u64>() as f64 / DRAWS as f64;
    // Mean KEYS, standard deviation sqrt(2 * KEYS) = 28.
    assert!((chi2 - KEYS as f64).abs() < 5.0 * 28.3, "chi-square {chi2}");
}

#[test]
fn drop_steps_are_bounded() {
    let mut table = Small::with_split_limit(200);
    (0..20_000).for_each(|number| add(&mut table, number));
    let mut steps = 0;
    loop {
        let before = table.len();
        let done = table.drop_step(500);
        assert!(before - table.len() <= 540);
        steps += 1;
        if done {
            break;
        }
        assert!(table.len() < before);
        if steps % 8 == 0 {
            table.check_invariants();
        }
        // Nodes are freed on the way, so that the last step is no longer than the others.
        let nodes_left = table.core.directory.node_bytes;
        assert!(table.len() > 1000 || nodes_left <= 2048, "{nodes_left} bytes of nodes");
    }
    assert!((20..80).contains(&steps), "{steps}");
    assert_eq!(table.allocated_bytes(), 0);
}

#[test]
fn the_table_is_send() {
    fn send<T: Send + Sync>() {}
    send::<Table<Thing>>();
    send::<OwnedEntry<Thing>>();
}

/// All keys of a database in one shard, as under one cluster hash tag.
#[test]
fn two_million_keys_in_one_shard() {
    if rounds() < 10 {
        return;
    }
    const KEYS: u64 = 2_000_000;
    let mut table = Small::new();
    (0..KEYS).for_each(|number| add(&mut table, number));
    table.check_invariants();
    let (mut position, mut seen) = (Some(Position::START), 0);
    while let Some(from) = position {
        position = table.scan(from, |_| seen += 1);
    }
    assert_eq!(seen, KEYS);
    for number in (0..KEYS).filter(|number| number % 10 != 0) {
        assert!(remove(&mut table, number));
    }
    table.check_invariants();
    assert!((0..KEYS).all(|number| has(&table, number) == (number % 10 == 0)));
}
