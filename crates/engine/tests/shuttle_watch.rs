//! WATCH and EXEC against writers: a transaction runs only on what its client has seen.
//!
//! What a client reads between WATCH and MULTI is what its transaction reads, if that runs at all;
//! and it runs when nobody has written.
#![cfg(shuttle)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resp::reply::Reply;
use support::node::Client;
use support::world::{Lanes, World};

/// Pairs that make a transaction run in several steps.
fn many() -> String {
    support::on_many("MSET", 0..40, "1")
}

/// A client that watches `n`, reads it, and then reads it again in a transaction.
fn watching(inside: &str) -> Client {
    Client::new(&["WATCH n", "GET n", "MULTI", "GET n", inside, "INCR n", "EXEC"])
}

/// Checks what [`watching`] received. Returns whether its transaction ran.
fn check(replies: &[Reply]) -> bool {
    match &replies[6] {
        Reply::NullArray => false,
        Reply::Array(inside) => {
            assert_eq!(inside[0], replies[1], "the watched key has changed");
            assert!(matches!(inside[2], Reply::Int(_)));
            true
        }
        other => panic!("{other:?}"),
    }
}

/// Watchers on two workers and a client that writes. Returns in how many schedules the first
/// watcher's transaction did not run, and ran.
fn run(inside: &str, before: &'static [&'static str], writes: &[&str]) -> [usize; 2] {
    let ends = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let (inside, counted) = (inside.to_owned(), Arc::clone(&ends));
    let writes: Vec<String> = writes.iter().map(|&line| line.to_owned()).collect();
    support::check(400, move || {
        let world = World::new(2, 2, Lanes::Served);
        let mut merger = world.engine.keyspace.outlet().attach();
        world.ask(before);
        let first = vec![watching(&inside)];
        let second = vec![Client::new(&writes), watching(&inside)];
        let (first, second) = (world.spawn(0, first), world.spawn(1, second));
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        counted[usize::from(check(&first[0]))].fetch_add(1, Ordering::Relaxed);
        check(&second[1]);
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
    ends.each_ref().map(|count| count.load(Ordering::Relaxed))
}

fn assert_both(ends: [usize; 2]) {
    assert!(ends.iter().all(|&count| count > 0), "schedules without and with: {ends:?}");
}

#[test]
fn one_hold_against_writes() {
    assert_both(run("PING", &["SET n 1"], &["INCR n", "DEL n", "SET n 5"]));
}

#[test]
fn several_steps_against_writes() {
    assert_both(run(&many(), &["SET n 1"], &["INCR n", "MSET k1 2 n 7", "DEL n"]));
}

#[test]
fn one_hold_against_writes_in_several_steps() {
    assert_both(run("PING", &[], &[&format!("{} n 3", many()), "DEL n"]));
}

#[test]
fn one_hold_against_a_flush() {
    assert_both(run("PING", &["SET n 1"], &["FLUSHALL", "SET n 2"]));
}

#[test]
fn several_steps_against_exchanged_databases() {
    assert_both(run(&many(), &["SET n 1"], &["SWAPDB 0 1", "SET n 2", "SWAPDB 1 0"]));
}

#[test]
fn a_key_that_comes_and_goes() {
    assert_both(run("PING", &[], &["SET n 5", "FLUSHALL"]));
}

#[test]
fn a_key_that_comes_and_goes_behind_a_flush() {
    assert_both(run("PING", &[], &["FLUSHALL", "SET n 5", "DEL n"]));
}

#[test]
fn nobody_writes_the_watched_key() {
    support::check(400, || {
        let world = World::new(2, 1, Lanes::Idle);
        world.ask(&["SET n 1"]);
        let second = ["SET m 1", "MGET n m", &many(), "WATCH n", "UNWATCH", "DEL m"];
        let second = vec![Client::new(&second), Client::new(&["WATCH n"]).leaves()];
        let (first, second) = (world.spawn(0, vec![watching("PING")]), world.spawn(1, second));
        let (first, _) = (first.join().unwrap(), second.join().unwrap());
        assert!(check(&first[0]), "the key is as it was");
        world.rest();
    });
}

#[test]
fn who_leaves_leaves_no_half_of_a_transaction() {
    support::check(400, || {
        let world = World::new(2, 1, Lanes::Served);
        let mut merger = world.engine.keyspace.outlet().attach();
        world.ask(&["SET n 1"]);
        let multi = ["WATCH n", "MULTI", &many(), "INCR n", "EXEC"];
        let leaving = vec![Client::new(&multi).leaves(), Client::new(&["WATCH n"]).leaves()];
        let other = Client::new(&["MGET k0 n k39", "MGET k0 n k39"]);
        let (leaving, other) = (world.spawn(0, leaving), world.spawn(1, vec![other]));
        let (_, other) = (leaving.join().unwrap(), other.join().unwrap());
        let last = world.ask(&["MGET k0 n k39"]);
        for (reply, is_last) in [(&other[0][0], false), (&other[0][1], false), (&last[0], true)] {
            let values = support::texts(reply);
            let ran = values == ["1", "2", "1"].map(|value| Some(value.to_owned()));
            let not_yet = values == [None, Some("1".to_owned()), None];
            assert!(ran || (not_yet && !is_last), "{values:?}");
        }
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn who_leaves_during_an_exchange_leaves_no_watch() {
    support::check(600, || {
        let world = World::new(2, 2, Lanes::Served);
        world.ask(&["SET n 1"]);
        let watching = vec![
            Client::new(&["WATCH n", "UNWATCH", "WATCH n m", "UNWATCH"]),
            Client::new(&["WATCH n m"]).leaves(),
            Client::new(&["WATCH m", "PING"]).leaves(),
        ];
        let exchanging = Client::new(&["FLUSHALL", "SWAPDB 0 1", "FLUSHALL", "SWAPDB 0 1"]);
        let (watching, exchanging) = (world.spawn(0, watching), world.spawn(1, vec![exchanging]));
        watching.join().unwrap();
        exchanging.join().unwrap();
        world.rest();
    });
}
