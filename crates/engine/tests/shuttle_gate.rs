//! The gate: FLUSHALL and SWAPDB exchange databases while others read and write them.
//!
//! No write lands in a database that was replaced before the write got its number: the effects in
//! their order give the same data, and DBSIZE agrees with the tables.
#![cfg(shuttle)]

mod support;

use support::node::Client;
use support::world::{Lanes, World};

#[test]
fn writes_are_before_or_behind_a_flush() {
    support::check(600, || {
        let world = World::new(2, 2, Lanes::Served);
        let mut merger = world.engine.keyspace.outlet().attach();
        let flushing = Client::new(&["SET a 1", "INCR n", "FLUSHALL", "GET a", "INCR n", "DBSIZE"]);
        let writing = [
            Client::new(&["INCR n", "SET b 1", "INCR n", "RPUSH l x", "DBSIZE"]),
            Client::new(&["SELECT 1", "SADD s x", "INCR n", "SADD s y"]),
        ];
        let flushing = world.spawn(0, vec![flushing]);
        let writing = world.spawn(1, writing.into());
        let (flushed, written) = (flushing.join().unwrap(), writing.join().unwrap());
        assert_eq!(support::text(&flushed[0][3]), None, "a key survived FLUSHALL");
        assert!((1..=3).contains(&support::int(&flushed[0][4])));
        assert!((0..=4).contains(&support::int(&written[0][4])));
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn commands_run_in_one_of_two_swapped_databases() {
    support::check(600, || {
        let world = World::new(3, 2, Lanes::Idle);
        let mut merger = world.engine.keyspace.outlet().attach();
        let swapping = Client::new(&["INCR n", "SWAPDB 0 1", "INCR n", "SWAPDB 1 0"]);
        let writing = Client::new(&["INCR n", "MSET a 1 b 1", "INCR n", "MGET a b"]);
        let other = Client::new(&["SELECT 1", "MSET b 2 a 2", "INCR n", "MGET a b", "FLUSHALL"]);
        let threads = [
            world.spawn(0, vec![swapping]),
            world.spawn(1, vec![writing]),
            world.spawn(2, vec![other]),
        ];
        let replies = threads.map(|thread| thread.join().unwrap().remove(0));
        for values in [&replies[1][3], &replies[2][3]] {
            let values = support::texts(values);
            assert_eq!(values[0], values[1], "half of one database, half of the other");
        }
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn nobody_looks_into_a_transaction_that_flushes() {
    support::check(600, || {
        let world = World::new(2, 2, Lanes::Idle);
        let mut merger = world.engine.keyspace.outlet().attach();
        world.ask(&["MSET a 0 b 0 c 0"]);
        let flushing = ["MULTI", "SET c 1", "FLUSHALL", "SET a 1", "SET b 1", "EXEC", "INCR n"];
        let reading = vec![
            Client::new(&["MGET a b c", "INCR n", "MGET b a c"]),
            Client::new(&["MULTI", "GET a", "INCR n", "GET c", "EXEC"]),
        ];
        let flushing = world.spawn(0, vec![Client::new(&flushing)]);
        let reading = world.spawn(1, reading);
        let (_, read) = (flushing.join().unwrap(), reading.join().unwrap());
        let is_whole = |values: &[Option<String>]| {
            let values: Vec<_> = values.iter().map(Option::as_deref).collect();
            values == [Some("0"), Some("0"), Some("0")] || values == [Some("1"), Some("1"), None]
        };
        for values in [&read[0][0], &read[0][2]] {
            assert!(is_whole(&support::texts(values)), "{values:?}");
        }
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn a_flush_waits_for_commands_in_several_steps() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        let mut merger = world.engine.keyspace.outlet().attach();
        let many = support::on_many("MSET", 0..40, "1");
        let flushing = vec![Client::new(&["FLUSHALL", "SET k3 2", "FLUSHALL"])];
        let writing = vec![Client::new(&[&many, "DBSIZE"]), Client::new(&["GET k5"]).leaves()];
        let (flushing, writing) = (world.spawn(0, flushing), world.spawn(1, writing));
        let (_, written) = (flushing.join().unwrap(), writing.join().unwrap());
        assert!([0, 1, 40].contains(&support::int(&written[0][1])));
        assert!([0, 1, 40].contains(&support::int(&world.ask(&["DBSIZE"])[0])));
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}
