//! Computed stores: SUNIONSTORE pins its inputs, the slow lane unites them, a hold installs the
//! result if nothing has changed.
//!
//! Markers are added in turn to one and the other input, so every state of both together is a
//! beginning of one sequence: what is installed is the union at one moment.
#![cfg(shuttle)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use support::node::Client;
use support::world::{Lanes, World};

/// Members of an input that is too large for one hold.
const LARGE: usize = 140;

fn sadd(key: &str, prefix: &str) -> String {
    (0..LARGE).fold(format!("SADD {key}"), |line, at| format!("{line} {prefix}{at}"))
}

/// Markers m0, m1, ... added in turn to s, t and u, which is absent at first.
fn markers(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("SADD {} m{at}", ["s", "t", "u"][at % 3])).collect()
}

fn inputs() -> [String; 2] {
    [sadd("s", "x"), sadd("t", "y")]
}

fn world(databases: usize) -> World {
    let world = World::new(2, databases, Lanes::Served);
    world.ask(&inputs());
    world
}

/// The number of markers in a union, which is large and has the markers of a beginning.
fn check_union(members: &[Option<String>]) -> usize {
    let of = |prefix| {
        let named = members.iter().flatten().filter(|name| name.starts_with(prefix));
        named.map(|name| name[1..].parse().unwrap()).collect::<std::collections::BTreeSet<usize>>()
    };
    assert_eq!((of("x").len(), of("y").len()), (LARGE, LARGE));
    let markers = of("m");
    assert!((0..markers.len()).eq(markers.iter().copied()), "never together: {markers:?}");
    assert_eq!(members.len(), 2 * LARGE + markers.len());
    markers.len()
}

#[test]
fn a_union_is_of_one_moment() {
    static RESTARTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    support::check(600, || {
        let world = world(1);
        let mut merger = world.engine.keyspace.outlet().attach();
        let mut stream = support::stream_of(&inputs());
        let storing = Client::new(&["SUNIONSTORE d s t u", "SMEMBERS d"]);
        let storing = world.spawn(0, vec![storing]);
        let writing = world.spawn(1, vec![Client::new(&markers(6))]);
        let (stored, _) = (storing.join().unwrap(), writing.join().unwrap());
        let members = support::texts(&stored[0][1]);
        check_union(&members);
        assert_eq!(support::int(&stored[0][0]) as usize, members.len());
        let restarts = world.engine.stats.sum(|worker| &worker.restarts);
        RESTARTS[restarts as usize].fetch_add(1, Ordering::Relaxed);
        world.check_effects(&mut merger, &mut stream);
        world.rest();
    });
    let seen = RESTARTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(seen.iter().all(|&count| count > 0), "schedules by restarts: {seen:?}");
}

#[test]
fn two_unions_of_each_other() {
    support::check(300, || {
        let world = world(1);
        let mut merger = world.engine.keyspace.outlet().attach();
        let mut stream = support::stream_of(&inputs());
        let first = vec![Client::new(&["SUNIONSTORE s s t", "SADD s m0"])];
        let second = vec![Client::new(&["SUNIONSTORE t t s", "SADD t m1"])];
        let (first, second) = (world.spawn(0, first), world.spawn(1, second));
        let counts = [first.join().unwrap(), second.join().unwrap()]
            .map(|replies| support::int(&replies[0][0]) as usize);
        assert!(counts.iter().all(|&count| count >= 2 * LARGE), "{counts:?}");
        world.check_effects(&mut merger, &mut stream);
        world.rest();
    });
}

#[test]
fn a_store_meets_a_flush() {
    support::check(400, || {
        let world = world(2);
        let mut merger = world.engine.keyspace.outlet().attach();
        let mut stream = support::stream_of(&inputs());
        let storing = Client::new(&["SUNIONSTORE d s t", "SMEMBERS d"]);
        let replacing = Client::new(&["SADD s m0", "FLUSHALL", "SADD t m1", "SWAPDB 0 1"]);
        let (storing, replacing) = (world.spawn(0, vec![storing]), world.spawn(1, vec![replacing]));
        let (stored, _) = (storing.join().unwrap(), replacing.join().unwrap());
        let count = support::int(&stored[0][0]);
        assert!([0, 1, 280, 281].contains(&count), "{count}");
        world.check_effects(&mut merger, &mut stream);
        world.rest();
    });
}

#[test]
fn an_accepted_store_completes_without_its_client() {
    support::check(300, || {
        let world = world(1);
        let leaving = vec![Client::new(&["SUNIONSTORE d s t u"]).leaves()];
        let writing = vec![Client::new(&markers(3))];
        let (leaving, writing) = (world.spawn(0, leaving), world.spawn(1, writing));
        leaving.join().unwrap();
        writing.join().unwrap();
        check_union(&support::texts(&world.ask(&["SMEMBERS d"])[0]));
        world.rest();
    });
}
