//! An iteration with SCAN answers every key that stays, and none twice, while other clients
//! insert and delete so many keys that the tables grow and shrink under it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::client::{Client, encode};
use tests::random::Random;
use tests::server::Server;
use tests::settings;

/// Keys that stay.
const STAYING: usize = 4_000;
/// Keys that come and go, per client.
const PASSING: usize = 30_000;
/// Clients that insert and delete.
const WRITERS: u64 = 2;
/// Whole iterations that are checked.
const ITERATIONS: usize = 20;
/// Keys of one command of a writer.
const BATCH: usize = 200;

#[test]
fn no_key_that_stays_is_missed_and_none_comes_twice() {
    check(&[]);
}

#[test]
fn also_when_all_keys_are_in_one_slot() {
    check(&["--shard-by", "slot"]);
}

fn check(own_options: &[&str]) {
    let server = Server::subject_with_own(own_options);
    let seed = settings::seed();
    eprintln!("EVENKEEL_SEED={seed}");
    let mut client = server.connect();
    for number in 0..STAYING {
        client.line(&format!("SET {{tag}}stays:{number} value"));
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mut client, stop) = (server.connect(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    come_and_go(&mut client, writer, stop);
                }
            });
        }
        let mut random = Random::new(seed);
        let result = (0..ITERATIONS).try_for_each(|_| {
            let count = [1, 10, 100, 1_000][random.below(4) as usize];
            iterate(&mut client, count.max(STAYING / 400))
        });
        stop.store(true, Ordering::Relaxed);
        if let Err(problem) = result {
            panic!("EVENKEEL_SEED={seed}: {problem}");
        }
    });
}

/// Inserts and then deletes all keys of one writer.
fn come_and_go(client: &mut Client, writer: u64, stop: &AtomicBool) {
    for delete in [false, true] {
        for start in (0..PASSING).step_by(BATCH) {
            let key = |number: usize| format!("{{tag}}passes:{writer}:{number}");
            let mut arguments = vec![if delete { "DEL" } else { "MSET" }.to_owned()];
            for number in start..start + BATCH {
                arguments.push(key(number));
                if !delete {
                    arguments.push("value".to_owned());
                }
            }
            client.send(&encode(&arguments)).expect("the server reads");
            assert!(!client.read().expect("a reply").is_error());
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

fn iterate(client: &mut Client, count: usize) -> Result<(), String> {
    let mut seen = HashSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.line(&format!("SCAN {cursor} COUNT {count}"));
        let Some([next, page]) = reply.elements() else { return Err(format!("{reply:#}")) };
        for key in page.elements().unwrap_or_default() {
            let new = seen.insert(key.text());
            if !new && !settings::foreign_subject() {
                return Err(format!("{key} came twice at cursor {cursor} with COUNT {count}"));
            }
        }
        cursor = next.text();
        if cursor == "0" {
            break;
        }
    }
    match (0..STAYING).find(|number| !seen.contains(&format!("{{tag}}stays:{number}"))) {
        Some(number) => Err(format!("key {{tag}}stays:{number} was missed with COUNT {count}")),
        None => Ok(()),
    }
}
