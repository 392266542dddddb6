//! Collections and keyspaces of many elements: the big commands give the right answers and others
//! are served meanwhile. `EVENKEEL_LARGE` sets the number of elements.

use std::collections::HashSet;
use std::time::Instant;

use tests::client::{Client, encode};
use tests::probe::Probe;
use tests::server::Server;
use tests::settings;

/// Elements in the short form.
const ELEMENTS: usize = 200_000;
/// Arguments of one command while filling.
const BATCH: usize = 500;
/// Commands sent before their replies are read while filling.
const PIPELINE: usize = 50;

fn elements() -> usize {
    settings::number::<usize>("EVENKEEL_LARGE", ELEMENTS).next_multiple_of(BATCH)
}

/// Runs one big command with a probe beside it and tells the time.
fn timed(server: &Server, client: &mut Client, command: &str) -> tests::reply::Reply {
    let probe = Probe::start(server);
    let start = Instant::now();
    let reply = client.line(command);
    eprintln!("{command}: {:?}", start.elapsed());
    probe.finish(command);
    reply
}

/// Sends one command per batch of numbers, pipelined; `make` builds the arguments.
fn fill(client: &mut Client, make: impl Fn(&[String]) -> Vec<String>) {
    let numbers: Vec<String> = (0..elements()).map(|number| number.to_string()).collect();
    let batches: Vec<&[String]> = numbers.chunks(BATCH).collect();
    for pipeline in batches.chunks(PIPELINE) {
        let request: Vec<u8> = pipeline.iter().flat_map(|batch| encode(&make(batch))).collect();
        client.send(&request).expect("the server reads");
        for _ in pipeline {
            let reply = client.read().expect("each command has a reply");
            assert!(!reply.is_error(), "{reply}");
        }
    }
}

fn command_of(name: &str, key: &str, batch: &[String]) -> Vec<String> {
    [name, key].into_iter().map(str::to_owned).chain(batch.iter().cloned()).collect()
}

#[test]
fn a_long_list() {
    let (server, count) = (Server::subject(&[]), elements());
    let mut client = server.connect();
    fill(&mut client, |batch| command_of("RPUSH", "list", batch));
    assert_eq!(client.line("LLEN list").integer(), Some(count as i64));
    let popped = timed(&server, &mut client, &format!("RPOP list {}", count * 3 / 10));
    let popped = popped.elements().expect("RPOP with a count answers an array");
    assert_eq!(popped.len(), count * 3 / 10);
    let expected = (0..count).rev();
    assert!(popped.iter().zip(expected).all(|(one, number)| one.text() == number.to_string()));
    let left = count - popped.len();
    let all = timed(&server, &mut client, "LRANGE list 0 -1");
    let all = all.elements().expect("LRANGE answers an array");
    assert!((0..left).zip(all).all(|(number, one)| one.text() == number.to_string()));
    assert_eq!(all.len(), left);
    assert_eq!(client.line(&format!("LINDEX list {}", left / 2)).text(), (left / 2).to_string());
    timed(&server, &mut client, "LREM list 0 nothing");
    timed(&server, &mut client, &format!("LTRIM list {} -{}", left / 4, left / 4));
    assert_eq!(client.line("LINDEX list 0").text(), (left / 4).to_string());
    assert_eq!(timed(&server, &mut client, "DEL list").integer(), Some(1));
}

#[test]
fn a_large_set() {
    let (server, count) = (Server::subject(&[]), elements());
    let mut client = server.connect();
    fill(&mut client, |batch| command_of("SADD", "set", batch));
    assert_eq!(client.line("SADD other a 1 2").integer(), Some(3));
    let stored = timed(&server, &mut client, "SUNIONSTORE union set other");
    assert_eq!(stored.integer(), Some(count as i64 + 1));
    let members = timed(&server, &mut client, "SMEMBERS union");
    let members: HashSet<String> =
        members.elements().unwrap_or_default().iter().map(|member| member.text()).collect();
    assert_eq!(members.len(), count + 1);
    assert!((0..count).all(|number| members.contains(&number.to_string())));
    assert_eq!(timed(&server, &mut client, "DEL set union").integer(), Some(2));
}

#[test]
fn many_keys() {
    let (server, count) = (Server::subject(&[]), elements());
    let mut client = server.connect();
    let tagged = |number: &String| [format!("{{tag}}:{number}"), number.clone()];
    fill(&mut client, |batch| {
        std::iter::once("MSET".to_owned()).chain(batch.iter().flat_map(tagged)).collect()
    });
    assert_eq!(client.line("DBSIZE").integer(), Some(count as i64));
    let keys = timed(&server, &mut client, "KEYS {tag}:*");
    assert_eq!(keys.elements().map(<[_]>::len), Some(count));
    let scanned = walk(&server, &mut client);
    assert_eq!(scanned.len(), count, "SCAN misses a key or repeats one");
    assert_eq!(scanned.into_iter().collect::<HashSet<_>>().len(), count, "SCAN repeats a key");
    timed(&server, &mut client, "FLUSHALL");
    assert_eq!(client.line("DBSIZE").integer(), Some(0));
}

/// All keys that SCAN answers, in its order.
fn walk(server: &Server, client: &mut Client) -> Vec<String> {
    let probe = Probe::start(server);
    let start = Instant::now();
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let reply = client.line(&format!("SCAN {cursor} MATCH {{tag}}* COUNT 1000"));
        let [next, page] = reply.elements().expect("SCAN answers an array") else {
            panic!("SCAN answers a cursor and a page");
        };
        keys.extend(page.elements().unwrap_or_default().iter().map(|key| key.text()));
        cursor = next.text();
        if cursor == "0" {
            break;
        }
    }
    eprintln!("SCAN of {} keys with COUNT 1000: {:?}", keys.len(), start.elapsed());
    probe.finish("SCAN");
    keys
}
