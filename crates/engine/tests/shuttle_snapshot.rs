//! Replies that are encoded piece by piece, and walks, while others write.
//!
//! A reply is the value at one moment between the command and its end, in the order in which the
//! moments of one client follow each other. A walk stays in the database in which it began.
#![cfg(shuttle)]

mod support;

use support::node::Client;
use support::world::{Lanes, World};

/// Elements of a value that is a tree and needs several pieces of output.
const LONG: usize = 140;

fn padded(command: &str, range: std::ops::Range<usize>) -> String {
    range.fold(command.to_owned(), |line, at| format!("{line} {}", support::padded(at)))
}

fn number(element: &Option<String>) -> usize {
    let digits = element.as_deref().unwrap().trim_start_matches('e');
    digits.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn a_list_is_sent_as_it_was() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        world.ask(&[padded("RPUSH l", 0..LONG)]);
        let reading = vec![Client::new(&["LRANGE l 0 -1", "LRANGE l 0 -1", "LRANGE l 0 -1"])];
        // After each write the list is another range of numbers.
        let push = |at| padded("RPUSH l", at..at + 1);
        let writing = [push(LONG), "LPOP l".into(), push(LONG + 1), "LPOP l 30".into()];
        let states = [0..LONG, 0..LONG + 1, 1..LONG + 1, 1..LONG + 2, 31..LONG + 2];
        let (reading, writing) =
            (world.spawn(0, reading), world.spawn(1, vec![Client::new(&writing)]));
        let (read, _) = (reading.join().unwrap(), writing.join().unwrap());
        let mut last = 0;
        for reply in &read[0] {
            let numbers: Vec<usize> = support::texts(reply).iter().map(number).collect();
            let same = |state: &std::ops::Range<usize>| state.clone().eq(numbers.iter().copied());
            let now = states.iter().position(same).expect("the list was never like that");
            assert!(last <= now, "time runs backwards");
            last = now;
        }
        world.rest();
    });
}

#[test]
fn a_set_is_sent_as_it_was() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        world.ask(&[padded("SADD s", 0..LONG)]);
        let reading = vec![Client::new(&["SMEMBERS s", "SMEMBERS s"])];
        let add = |at| padded("SADD s", at..at + 1);
        let writing = [add(LONG), add(LONG + 1), padded("SADD s", LONG + 2..LONG + 42)];
        let (reading, writing) =
            (world.spawn(0, reading), world.spawn(1, vec![Client::new(&writing)]));
        let (read, _) = (reading.join().unwrap(), writing.join().unwrap());
        let mut last = LONG;
        for reply in &read[0] {
            let mut numbers: Vec<usize> = support::texts(reply).iter().map(number).collect();
            numbers.sort_unstable();
            assert!((0..numbers.len()).eq(numbers.iter().copied()), "{numbers:?}");
            let now = numbers.len();
            assert!([LONG, LONG + 1, LONG + 2, LONG + 42].contains(&now), "{now} members");
            assert!(last <= now, "time runs backwards");
            last = now;
        }
        world.rest();
    });
}

#[test]
fn a_string_is_sent_as_it_was() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        let of = |byte: &str| byte.repeat(150_000);
        world.ask(&[format!("SET t {}", of("a"))]);
        let reading = vec![Client::new(&["GET t", "GET t"])];
        let writing = [format!("SETRANGE t 0 {}", of("b")), "APPEND t b".into(), "SET t b".into()];
        let (reading, writing) =
            (world.spawn(0, reading), world.spawn(1, vec![Client::new(&writing)]));
        let (read, _) = (reading.join().unwrap(), writing.join().unwrap());
        for reply in &read[0] {
            let value = support::text(reply).unwrap();
            let first = value.as_bytes()[0];
            assert!(value.bytes().all(|byte| byte == first), "half of a write");
            assert!([1, 150_000, 150_001].contains(&value.len()));
        }
        world.rest();
    });
}

#[test]
fn a_walk_stays_in_its_database() {
    support::check(300, || {
        let world = World::new(2, 2, Lanes::Served);
        let fill = |prefix: &str| {
            (0..40).fold("MSET".to_owned(), |line, at| format!("{line} {prefix}{at} 1"))
        };
        world.ask(&[fill("old")]);
        let walking = vec![Client::new(&["KEYS *"]), Client::new(&["KEYS *"]).leaves()];
        let replacing = vec![Client::new(&["FLUSHALL".to_owned(), fill("new")])];
        let (walking, replacing) = (world.spawn(0, walking), world.spawn(1, replacing));
        let (walked, _) = (walking.join().unwrap(), replacing.join().unwrap());
        let names: Vec<String> = support::texts(&walked[0][0]).into_iter().flatten().collect();
        let old = names.iter().filter(|name| name.starts_with("old")).count();
        assert!(old == 0 || (old == 40 && names.len() == 40), "{names:?}");
        world.rest();
    });
}
