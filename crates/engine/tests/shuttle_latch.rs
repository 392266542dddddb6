//! Latches: a command on several keys holds all of them at once, whatever the order of its words.
#![cfg(shuttle)]

mod support;

use support::node::Client;
use support::world::{Lanes, World};

fn assert_uniform(values: &[Option<String>]) {
    assert!(values.iter().all(|value| *value == values[0]), "half of a write: {values:?}");
}

#[test]
fn several_keys_change_together() {
    support::check(800, || {
        let world = World::new(2, 1, Lanes::Idle);
        let first = ["MSET a 1 b 1 c 1", "MGET a b c", "MSET b 3 c 3 a 3"];
        let second = ["MSET c 2 b 2 a 2", "MGET c b a", "MGET b a c"];
        let first = world.spawn(0, vec![Client::new(&first)]);
        let second = world.spawn(1, vec![Client::new(&second)]);
        let replies = [first.join().unwrap().remove(0), second.join().unwrap().remove(0)];
        assert_uniform(&support::texts(&replies[0][1]));
        assert_uniform(&support::texts(&replies[1][1]));
        assert_uniform(&support::texts(&replies[1][2]));
        assert_uniform(&support::texts(&world.ask(&["MGET a b c"])[0]));
        world.rest();
    });
}

#[test]
fn no_increment_is_lost() {
    support::check(400, || {
        let world = World::new(3, 1, Lanes::Idle);
        let clients = || vec![Client::new(&["INCR n", "INCR n"]), Client::new(&["INCR n"])];
        let threads = [world.spawn(0, clients()), world.spawn(1, clients())];
        let third = world.spawn(2, vec![Client::new(&["GET n", "GET n"])]);
        for thread in threads {
            thread.join().unwrap();
        }
        let seen = third.join().unwrap().remove(0);
        assert!(support::text(&seen[0]) <= support::text(&seen[1]), "time runs backwards");
        assert_eq!(support::text(&world.ask(&["GET n"])[0]).as_deref(), Some("6"));
        world.rest();
    });
}
