//! Effects: two workers write the same keys while a third thread orders what they report.
//!
//! The stream has no gap, and an empty engine that executes it comes to the same data.
#![cfg(shuttle)]

mod support;

use shuttle::sync::Arc;
use shuttle::thread;
use support::node::Client;
use support::world::{Lanes, World};

/// Runs two workers and drains their effects meanwhile; then replays them.
fn run(first: &[Vec<&str>], second: &[Vec<&str>]) {
    let world = World::new(2, 2, Lanes::Idle);
    let clients = |scripts: &[Vec<&str>]| scripts.iter().map(|one| Client::new(one)).collect();
    let outlet_of = Arc::clone(&world.engine);
    let mut merger = world.engine.keyspace.outlet().attach();
    let workers = [world.spawn(0, clients(first)), world.spawn(1, clients(second))];
    let draining = thread::spawn(move || {
        let (mut stream, mut records) = (Vec::new(), 0);
        for _ in 0..3 {
            records += merger.drain(outlet_of.keyspace.outlet(), &mut stream);
            thread::yield_now();
        }
        (merger, stream, records)
    });
    for worker in workers {
        worker.join().unwrap();
    }
    let (mut merger, mut stream, mut records) = draining.join().unwrap();
    let outlet = world.engine.keyspace.outlet();
    records += merger.drain(outlet, &mut stream);
    assert_eq!(records as u64, outlet.sequence(), "every number has its record");
    world.check_effects(&mut merger, &mut stream);
    world.rest();
}

#[test]
fn strings() {
    support::check(800, || {
        let first = ["SET a 1", "APPEND a 2", "INCR a", "SETRANGE a 1 x", "DEL a", "APPEND a y"];
        let second = ["APPEND a 3", "SET a 7", "INCR a", "MSET a 5 b 6", "INCR a", "INCR b"];
        run(&[first.into(), vec!["INCR b"]], &[second.into(), vec!["SELECT 1", "SET a z"]]);
    });
}

/// Requests of one command for one key share a hold; each has an effect of its own.
#[test]
fn repeated() {
    support::check(800, || {
        let first = ["APPEND a 1", "APPEND a 2", "APPEND a 3", "INCR b", "INCR b", "APPEND a 4"];
        let second = ["APPEND a 5", "APPEND a 6", "INCR a", "INCR a", "RPUSH b x", "RPUSH b y"];
        run(&[first.into(), vec!["INCR a", "INCR a"]], &[second.into(), vec!["DEL b"]]);
    });
}

#[test]
fn lists() {
    support::check(600, || {
        let first = ["RPUSH l 1 2 3", "LPOP l", "RPUSH l 4", "LTRIM l 0 2", "LREM l 1 3"];
        let second = ["LPUSH l a b", "RPOP l", "LPOP l 2", "RPUSH l a", "DEL l"];
        run(&[first.into()], &[second.into()]);
    });
}

#[test]
fn sets_and_expiry() {
    support::check(600, || {
        let first = ["SADD s a b", "SUNIONSTORE d s t", "EXPIRE d 100", "SADD s e", "PEXPIRE s 0"];
        let second = ["SADD t c", "SADD s d", "SUNIONSTORE t s d", "SET d x", "PEXPIRE t -1"];
        run(&[first.into()], &[second.into()]);
    });
}

#[test]
fn keys_whose_time_comes() {
    support::check(600, || {
        let world = World::new(2, 2, Lanes::Idle);
        let mut merger = world.engine.keyspace.outlet().attach();
        let first = Client::new(&["SET a 1 PX 3", "SADD s x", "PEXPIRE s 3", "APPEND a 1"]);
        let first = first.passes(4).then("INCR a").then("SADD s z").passes(4).then("SADD s u");
        let second = Client::new(&["INCR a", "SET b 1 PX 5", "APPEND a 2", "SADD s y", "INCR b"]);
        let second = second.passes(4).then("SET a 3 KEEPTTL").then("PEXPIRE a 2").then("INCR b");
        let others = Client::new(&["GET a", "SMEMBERS s", "MULTI", "APPEND b 1", "GET a", "EXEC"]);
        let threads = [world.spawn(0, vec![first]), world.spawn(1, vec![second, others])];
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        world.expire_all();
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn a_long_command_sees_one_time() {
    support::check(800, || {
        let world = World::new(2, 1, Lanes::Idle);
        let mut merger = world.engine.keyspace.outlet().attach();
        let many = (0..70).fold("SADD s".to_owned(), |line, at| format!("{line} m{at}"));
        let adding = Client::new(&["SADD s x", "PEXPIRE s 3", &many, "SADD s y"]);
        let passing = Client::default().passes(2).then("PING").passes(12).then("SADD s z");
        let threads = [world.spawn(0, vec![adding]), world.spawn(1, vec![passing.passes(9)])];
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        world.expire_all();
        world.check_effects(&mut merger, &mut Vec::new());
        world.rest();
    });
}

#[test]
fn transactions_of_one_hold_and_of_several_steps() {
    support::check(400, || {
        let many = support::on_many("MSET", 0..40, "1");
        let multi = ["MULTI", "INCR k3", "APPEND k3 x", "APPEND l x", "EXEC"];
        let first = [&multi[..], &["MULTI", &many, "APPEND l y", "EXEC", "APPEND l z"]].concat();
        let second = ["APPEND l a", "APPEND k3 b", "APPEND k9 c", "APPEND l d", "APPEND k3 e"];
        run(&[first], &[second.into(), vec!["SET k30 1", "APPEND k30 x"]]);
    });
}
