//! Key locks: commands in several steps, ordinary commands that meet them, and clients that leave.
//!
//! Every command finishes (a lost wake-up is a deadlock here), nobody sees half of another's
//! command, what was accepted completes, and no lock is left behind.
#![cfg(shuttle)]

mod support;

use support::node::Client;
use support::world::{Lanes, World};

/// Keys of a command that does not fit into one hold.
const MANY: usize = 40;

fn mset(value: &str) -> String {
    support::on_many("MSET", 0..MANY, value)
}

fn mset_backwards(value: &str) -> String {
    support::on_many("MSET", (0..MANY).rev(), value)
}

fn mget() -> String {
    (0..MANY).fold("MGET".to_owned(), |line, at| format!("{line} k{at}"))
}

fn sadd(key: &str, prefix: &str) -> String {
    (0..MANY).fold(format!("SADD {key}"), |line, at| format!("{line} {prefix}{at}"))
}

fn assert_uniform(values: &[Option<String>]) {
    assert!(values.iter().all(|value| *value == values[0]), "half of a write: {values:?}");
}

#[test]
fn many_keys_change_together() {
    support::check(300, || {
        let world = World::new(3, 1, Lanes::Idle);
        let threads = [
            world.spawn(0, vec![Client::new(&[mset("1")])]),
            world.spawn(1, vec![Client::new(&[mset_backwards("2")])]),
            world.spawn(2, vec![Client::new(&[mget(), mget()])]),
        ];
        let [_, _, read] = threads.map(|thread| thread.join().unwrap());
        read[0].iter().for_each(|reply| assert_uniform(&support::texts(reply)));
        assert_uniform(&support::texts(&world.ask(&[mget()])[0]));
        world.rest();
    });
}

#[test]
fn ordinary_commands_wait_for_a_locked_key() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Idle);
        let long = vec![
            Client::new(&[sadd("s", "a"), "SADD s own".to_owned(), mset("1")]),
            Client::new(&["GET k1", "MGET k0 k39"]),
            Client::new(&[mget()]),
        ];
        let short = vec![
            Client::new(&["SADD s other", "SMEMBERS s", "INCR k5"]),
            Client::new(&["MGET k39 k0", "MSET k0 3 k39 3", "MGET k0 k39"]),
        ];
        let (long, short) = (world.spawn(0, long), world.spawn(1, short));
        let (long, short) = (long.join().unwrap(), short.join().unwrap());
        assert_eq!(support::int(&long[0][0]) + support::int(&long[0][1]), MANY as i64 + 1);
        let members = support::texts(&short[0][1]).len();
        assert!([1, MANY + 1, MANY + 2].contains(&members), "{members} members");
        assert_uniform(&support::texts(&long[1][1]));
        let all = support::texts(&long[2][0]);
        assert_uniform(&[all[0].clone(), all[39].clone()]);
        assert_uniform(&support::texts(&short[1][0]));
        assert_uniform(&support::texts(&short[1][2]));
        let last = world.ask(&["SMEMBERS s", "MGET k0 k39", "GET k5"]);
        assert_eq!(support::texts(&last[0]).len(), MANY + 2);
        assert_uniform(&support::texts(&last[1]));
        assert!(["1", "2"].contains(&support::text(&last[2]).as_deref().unwrap()));
        world.rest();
    });
}

#[test]
fn who_leaves_leaves_no_lock_and_no_half() {
    support::check(400, || {
        let world = World::new(3, 1, Lanes::Idle);
        let leaving = vec![
            Client::new(&[mset("1")]).leaves(),
            Client::new(&["GET k3"]).leaves(),
            Client::new(&[mget()]).leaves(),
        ];
        let others = vec![
            Client::new(&[mset_backwards("2")]),
            Client::new(&["SET other 1", "GET k20"]).leaves(),
        ];
        let third = vec![
            Client::new(&[mget()]).leaves(),
            Client::new(&["APPEND k7 x"]).leaves(),
            Client::new(&[mget()]),
        ];
        let threads = [world.spawn(0, leaving), world.spawn(1, others), world.spawn(2, third)];
        let [_, _, third] = threads.map(|thread| thread.join().unwrap());
        let without_k7 = |reply| {
            let mut values = support::texts(reply);
            values.remove(7);
            values
        };
        assert_uniform(&without_k7(&third[2][0]));
        let last = world.ask(&[&mget(), "GET other"]);
        assert_uniform(&without_k7(&last[0]));
        assert!(without_k7(&last[0])[0].is_some(), "an accepted write completes");
        assert_eq!(support::text(&last[1]).as_deref(), Some("1"));
        world.rest();
    });
}
