//! Control: barriers that all workers pass, pauses, clients that are closed by others.
//!
//! A change that was acknowledged holds: no write is seen behind the answer of CLIENT PAUSE, and
//! whoever is killed leaves no half of a command and no lock.
#![cfg(shuttle)]

mod support;

use support::node::Client;
use support::world::{Lanes, World};

fn many(value: &str) -> String {
    support::on_many("MSET", 0..40, value)
}

#[test]
fn every_worker_acknowledges() {
    support::check(600, || {
        let world = World::new(3, 1, Lanes::Idle);
        let pausing = ["CLIENT PAUSE 3", "INCR n", "CLIENT PAUSE 2 WRITE", "GET n", "INCR n"];
        let other = ["INCR n", "CLIENT PAUSE 1", "GET n", "PING", "INCR n"];
        let clients = [vec![Client::new(&pausing)], vec![Client::new(&other)], Vec::new()];
        world.run(clients.into());
        assert_eq!(support::text(&world.ask(&["GET n"])[0]).as_deref(), Some("4"));
        world.rest();
    });
}

#[test]
fn nothing_is_written_while_writes_are_paused() {
    support::check(600, || {
        let world = World::new(2, 1, Lanes::Idle);
        let pausing = Client::new(&["CLIENT PAUSE 1000000 WRITE", "GET k0", "MGET k0 k39"]);
        let pausing = pausing.passes(1_000_000);
        let writing = vec![
            Client::new(&["INCR k0", "INCR k0"]),
            Client::new(&[many("7"), "INCR k39".to_owned()]),
            Client::new(&["MULTI", "INCR k0", "INCR k39", "EXEC"]),
        ];
        let replies = world.run(vec![vec![pausing], writing]);
        let before = support::text(&replies[0][0][1]);
        let behind = support::texts(&replies[0][0][2]);
        assert_eq!(behind[0], before, "written during a pause");
        world.rest();
    });
}

#[test]
fn a_pause_in_a_transaction_waits_for_nobody() {
    support::check(600, || {
        let world = World::new(2, 1, Lanes::Idle);
        let pausing = ["MULTI", "CLIENT PAUSE 3 WRITE", "INCR k0", "EXEC", "CLIENT PAUSE 2"];
        let clients = || vec![Client::new(&pausing), Client::new(&[many("7"), many("9")])];
        world.run(vec![clients(), clients()]);
        world.rest();
    });
}

#[test]
fn who_is_killed_writes_no_more() {
    support::check(600, || {
        let world = World::new(2, 1, Lanes::Served);
        let large = |key| (0..140).fold(format!("SADD {key}"), |line, at| format!("{line} {at}"));
        world.ask(&[large("s")]);
        // It takes no locks that anybody could wait for. Its client is the third.
        let killed = vec![Client::new(&["SUNIONSTORE d s"])];
        let killing = vec![Client::new(&["CLIENT KILL ID 3", "TYPE d"])];
        let replies = world.run(vec![killing, killed]);
        let [killed, before] = &replies[0][0][..] else { panic!("two replies") };
        let behind = world.ask(&["TYPE d"]).remove(0);
        // It may not have been there yet.
        assert!(support::int(killed) == 0 || behind == *before, "written behind the answer");
        world.rest();
    });
}

#[test]
fn who_is_killed_leaves_no_half() {
    support::check(600, || {
        let world = World::new(2, 1, Lanes::Served);
        let mget = (0..40).fold("MGET".to_owned(), |line, at| format!("{line} k{at}"));
        // Clients are numbered as they come: these are the third and the fourth.
        let killing = ["CLIENT KILL ID 3", &mget, "CLIENT KILL ID 4 SKIPME no", &mget];
        let killing = vec![Client::new(&killing), Client::new(&[&many("1"), "GET k3"])];
        let killed = vec![
            Client::new(&[&many("2"), &mget, &many("3")]),
            Client::new(&[&mget, "GET k3", "WATCH k3", &mget]),
        ];
        let replies = world.run(vec![killing, killed]);
        let mut uniform = vec![&replies[0][0][1], &replies[0][0][3]];
        let last = world.ask(&[&mget]);
        uniform.push(&last[0]);
        for reply in uniform {
            let values = support::texts(reply);
            assert!(values.iter().all(|value| *value == values[0]), "half: {values:?}");
        }
        world.rest();
    });
}
