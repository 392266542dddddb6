//! What leaves the keyspace: cut off under the latch, sent from there, freed by the reaper.
//!
//! A reply is what the list was at the moment of the command, whoever frees what meanwhile, and a
//! lane never sleeps while there is work.
#![cfg(shuttle)]

mod support;

use engine::lanes::Discard;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use support::node::Client;
use support::world::{Lanes, Signal, World};

/// Elements of a list that is a tree and needs several pieces of output.
const LONG: usize = 150;

fn elements(range: std::ops::Range<usize>) -> Vec<Option<String>> {
    range.map(|at| Some(support::padded(at))).collect()
}

fn rpush() -> String {
    (0..LONG).fold("RPUSH l".to_owned(), |line, at| format!("{line} {}", support::padded(at)))
}

/// Garbage that is freed in three steps and then says so.
struct Garbage {
    left: usize,
    freed: Arc<AtomicUsize>,
    done: Signal,
}

impl Discard for Garbage {
    fn discard_step(&mut self, _: usize) -> bool {
        self.left = self.left.checked_sub(1).expect("it was freed already");
        if self.left == 0 {
            self.freed.fetch_add(1, Ordering::SeqCst);
            self.done.set();
        }
        self.left == 0
    }
}

#[test]
fn a_lane_never_sleeps_while_there_is_work() {
    support::check(4000, || {
        let world = World::new(2, 1, Lanes::Served);
        let (freed, done) = (Arc::new(AtomicUsize::new(0)), Signal::default());
        let push = |_| {
            let (engine, freed, done) = (Arc::clone(&world.engine), freed.clone(), done.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let (freed, done) = (freed.clone(), done.clone());
                    engine.reaper.discard(Box::new(Garbage { left: 3, freed, done }));
                }
            })
        };
        let threads = [0, 1].map(push);
        while freed.load(Ordering::SeqCst) < 4 {
            done.wait();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.engine.reaper.steps.load(Ordering::SeqCst), 12);
        world.rest();
    });
}

#[test]
fn a_list_is_sent_while_it_is_cut_and_freed() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        world.ask(&[rpush()]);
        let reading = vec![
            Client::new(&["LRANGE l 0 -1", "LRANGE l 0 -1"]),
            Client::new(&["LRANGE l 0 -1"]).leaves(),
        ];
        let cutting = Client::new(&["RPOP l 50", "LPOP l 20", "DEL l", "LLEN l"]);
        let (reading, cutting) = (world.spawn(0, reading), world.spawn(1, vec![cutting]));
        let (read, cut) = (reading.join().unwrap(), cutting.join().unwrap());
        let states = [0..LONG, 0..LONG - 50, 20..LONG - 50, 0..0].map(elements);
        let state_of = |reply| {
            let elements = support::texts(reply);
            let known = states.iter().position(|state| *state == elements);
            known.expect("the list was never like that")
        };
        assert!(state_of(&read[0][0]) <= state_of(&read[0][1]), "time runs backwards");
        let mut popped = elements(LONG - 50..LONG);
        popped.reverse();
        assert!(support::texts(&cut[0][0]) == popped);
        assert!(support::texts(&cut[0][1]) == elements(0..20));
        world.rest();
    });
}

#[test]
fn a_value_is_replaced_while_it_is_sent() {
    support::check(300, || {
        let world = World::new(2, 1, Lanes::Served);
        world.ask(&[rpush()]);
        let reading = Client::new(&["LRANGE l 0 -1", "LRANGE l 0 119"]);
        let replacing = ["SET l x", "DEL l", &rpush(), "LTRIM l 10 119", "FLUSHALL"];
        let (reading, replacing) =
            (world.spawn(0, vec![reading]), world.spawn(1, vec![Client::new(&replacing)]));
        let (read, _) = (reading.join().unwrap(), replacing.join().unwrap());
        for (reply, upto) in read[0].iter().zip([LONG, 120]) {
            if let resp::reply::Reply::Error(_) = reply {
                continue;
            }
            let values = support::texts(reply);
            let whole = [elements(0..upto), elements(10..120), Vec::new()];
            assert!(whole.contains(&values), "{} elements", values.len());
        }
        world.rest();
    });
}
