//! Clients that write the same keys at the same time: nothing is lost, nothing is done twice, and
//! nobody sees a half of what belongs together.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tests::client::{Client, encode};
use tests::reply::Reply;
use tests::server::Server;

/// Clients that write.
const CLIENTS: usize = 4;

fn server() -> Server {
    Server::subject_with_own(&["--workers", "3"])
}

/// Sends commands in one piece and reads all replies.
fn pipeline(client: &mut Client, commands: &[String]) -> Vec<Reply> {
    let bytes: Vec<u8> = commands
        .iter()
        .flat_map(|command| encode(&command.split(' ').collect::<Vec<_>>()))
        .collect();
    client.send(&bytes).expect("the server reads");
    commands.iter().map(|_| client.read().expect("each command has a reply")).collect()
}

#[test]
fn counters_lose_nothing() {
    const ROUNDS: usize = 200;
    let server = server();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            scope.spawn(move || {
                let commands: Vec<String> = (0..20).map(|key| format!("INCR {key}")).collect();
                for _ in 0..ROUNDS {
                    pipeline(&mut client, &commands);
                }
            });
        }
    });
    let mut client = server.connect();
    for key in 0..20 {
        assert_eq!(client.line(&format!("GET {key}")).text(), (CLIENTS * ROUNDS).to_string());
    }
}

#[test]
fn a_queue_neither_loses_nor_repeats() {
    const PER_CLIENT: usize = 20_000;
    let server = server();
    let taken = Mutex::new(Vec::new());
    let producing = AtomicUsize::new(CLIENTS);
    thread::scope(|scope| {
        for producer in 0..CLIENTS {
            let (mut client, producing) = (server.connect(), &producing);
            scope.spawn(move || {
                for start in (0..PER_CLIENT).step_by(100) {
                    let numbers =
                        (start..start + 100).map(|one| (producer * PER_CLIENT + one).to_string());
                    let arguments: Vec<String> = ["RPUSH".to_owned(), "queue".to_owned()]
                        .into_iter()
                        .chain(numbers)
                        .collect();
                    client.call(&arguments);
                }
                producing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for consumer in 0..2 {
            let (mut client, producing, taken) = (server.connect(), &producing, &taken);
            scope.spawn(move || {
                // One takes a few at a time, the other as many as one reply should never copy.
                let command = ["LPOP queue 7", "RPOP queue 3000"][consumer];
                loop {
                    let last = producing.load(Ordering::SeqCst) == 0;
                    let reply = client.line(command);
                    let elements = reply.elements().unwrap_or_default();
                    if elements.is_empty() && last {
                        break;
                    }
                    let mut taken = taken.lock().expect("no consumer panics");
                    taken.extend(elements.iter().map(Reply::text));
                }
            });
        }
    });
    let taken = taken.into_inner().expect("no consumer panicked");
    assert_eq!(taken.len(), CLIENTS * PER_CLIENT);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len(), "an element came twice");
}

/// Runs `write` on several connections until `read` has run `rounds` times on another.
fn write_while_reading(
    server: &Server,
    rounds: usize,
    write: impl Fn(&mut Client, usize) + Sync,
    read: impl Fn(&mut Client),
) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, stop, write) = (server.connect(), &stop, &write);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    write(&mut client, number);
                }
            });
        }
        let mut client = server.connect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..rounds).for_each(|_| read(&mut client));
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn a_write_of_several_keys_is_seen_whole() {
    let server = server();
    let keys: Vec<String> = (0..8).map(|key| format!("key:{key}")).collect();
    let mget = format!("MGET {}", keys.join(" "));
    server.connect().line(&format!("MSET {} x", keys.join(" x ")));
    write_while_reading(
        &server,
        3_000,
        |client, number| {
            client.line(&format!("MSET {} v{number}", keys.join(&format!(" v{number} "))));
        },
        |client| {
            let reply = client.line(&mget);
            let values: HashSet<String> =
                reply.elements().unwrap_or_default().iter().map(Reply::text).collect();
            assert_eq!(values.len(), 1, "MGET saw a half of an MSET: {reply:#}");
        },
    );
}

#[test]
fn a_transaction_is_seen_whole_small_or_large() {
    for size in [2, 600] {
        let server = server();
        let keys: Vec<String> = (0..size).map(|key| format!("key:{key}")).collect();
        let mut commands = vec!["MULTI".to_owned()];
        commands.extend(keys.iter().map(|key| format!("INCR {key}")));
        commands.push("EXEC".to_owned());
        let read = format!("MGET {} {}", keys[0], keys[size - 1]);
        write_while_reading(
            &server,
            1_000,
            |client, _| {
                let replies = pipeline(client, &commands);
                let results = replies.last().and_then(Reply::elements);
                assert_eq!(results.map(<[_]>::len), Some(size));
            },
            |client| {
                let reply = client.line(&read);
                let values = reply.elements().unwrap_or_default();
                assert_eq!(values[0], values[1], "a reader saw a half of a transaction of {size}");
            },
        );
    }
}

#[test]
fn watch_makes_read_and_write_one_step() {
    const INCREMENTS: usize = 200;
    let server = server();
    server.connect().line("SET watched 0");
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            scope.spawn(move || {
                let mut done = 0;
                while done < INCREMENTS {
                    client.line("WATCH watched");
                    let value: i64 = client.line("GET watched").text().parse().expect("a number");
                    client.line("MULTI");
                    client.line(&format!("SET watched {}", value + 1));
                    done += usize::from(client.line("EXEC").elements().is_some());
                }
            });
        }
    });
    let value = server.connect().line("GET watched").text();
    assert_eq!(value, (CLIENTS * INCREMENTS).to_string());
}

#[test]
fn a_union_takes_its_inputs_at_one_moment() {
    const MEMBERS: usize = 3_000;
    let server = server();
    let members: Vec<String> = (0..MEMBERS).map(|member| member.to_string()).collect();
    let members = members.join(" ");
    server.connect().line(&format!("SADD one {members}"));
    let moving = Mutex::new(());
    write_while_reading(
        &server,
        200,
        |client, _| {
            // The members move from one set to the other, in one transaction.
            let _alone = moving.lock().expect("no writer panics");
            for (from, to) in [("one", "two"), ("two", "one")] {
                let add = format!("SADD {to} {members}");
                pipeline(client, &["MULTI".into(), format!("DEL {from}"), add, "EXEC".into()]);
            }
        },
        |client| {
            let stored = client.line("SUNIONSTORE union one two").integer();
            assert_eq!(stored, Some(MEMBERS as i64), "the inputs were taken at two moments");
        },
    );
}

#[test]
fn flush_and_swap_leave_no_half() {
    let server = server();
    write_while_reading(
        &server,
        500,
        |client, number| match number {
            0 => {
                client.line("SWAPDB 0 1");
            }
            1 => {
                client.line("FLUSHALL");
            }
            _ => {
                client.line("MSET a 1 b 1 c 1 d 1");
            }
        },
        |client| {
            let reply = client.line("MGET a b c d");
            let present = reply.elements().unwrap_or_default();
            let whole = present.iter().all(|value| *value == present[0]);
            assert!(whole, "a reader saw a half: {reply:#}");
        },
    );
}
