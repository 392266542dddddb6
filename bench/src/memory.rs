//! `memory`: bytes per key or element, name and value included, Evenkeel beside redis-server.
//!
//! Each case runs in a fresh process. Shown is the growth of `used_memory`, which is what the
//! server has asked for, and of the resident memory, which is what the machine has given it.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use resp::write_request;
use serde_json::{Value, json};

use crate::choice::choose;
use crate::client::Client;
use crate::output::{Column, Json, Table, cell};
use crate::process::resident_bytes;
use crate::server::{Server, Subject};

/// Elements that one command adds.
const BATCH: usize = 100;
/// Background work ends, and counters follow, in this time.
const SETTLE: Duration = Duration::from_millis(300);

const COLUMNS: &[Column] = &[
    ("case", 18),
    ("elements", 9),
    ("used", 7),
    ("redis", 7),
    ("ratio", 5),
    ("resident", 7),
    ("redis", 7),
    ("ratio", 5),
];

/// Bytes per key or element, beside redis-server. A ratio below 1 is better.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these cases, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Keys or elements of each case.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    elements: u32,
    #[command(flatten)]
    subject: Subject,
    /// Write the results to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What is loaded.
struct Case {
    name: &'static str,
    /// Elements that one request adds.
    batch: usize,
    /// Appends the request that adds the elements from a number on.
    write: fn(usize, &mut Vec<u8>),
}

const CASES: &[Case] = &[
    Case {
        name: "strings",
        batch: 1,
        write: |number, out| write_request(out, &["SET", &key(number), &value(number)]),
    },
    Case {
        name: "strings-expire",
        batch: 1,
        write: |number, out| {
            write_request(out, &["SET", &key(number), &value(number), "EX", "86400"]);
        },
    },
    Case {
        name: "counters",
        batch: 1,
        write: |number, out| write_request(out, &["SET", &key(number), &number.to_string()]),
    },
    Case {
        name: "list-of-100-bytes",
        batch: BATCH,
        write: |first, out| write_batch("RPUSH", first, |number| format!("{number:0100}"), out),
    },
    Case {
        name: "set-of-12-bytes",
        batch: BATCH,
        write: |first, out| write_batch("SADD", first, |number| format!("m:{number:010}"), out),
    },
];

/// Bytes per element on one server.
struct Bytes {
    used: f64,
    resident: f64,
}

/// Runs the bench.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let cases = choose(CASES, "case", |case| case.name, &options.only)?;
    let json = Json::create(options.json.as_deref())?;
    let table = Table::new(COLUMNS, cases.len() * 2);
    // Whole batches, so that every case has as many elements as it says.
    let elements = (options.elements as usize).next_multiple_of(BATCH);
    let mut rows = Vec::new();
    for case in cases {
        let measure = |server: Server| {
            table.doing(&format!("{} on {}", case.name, server.name));
            let bytes = measure(case, &server, elements);
            table.advance();
            bytes.map_err(|text| format!("{} on {}: {text}", case.name, server.name))
        };
        let own = measure(Server::evenkeel(&options.subject)?)?;
        let redis = measure(Server::redis("redis")?)?;
        table.row(&cells(case, elements, &own, &redis));
        rows.push(row(case, elements, &own, &redis));
    }
    drop(table);
    json.write("memory", rows)
}

fn measure(case: &Case, server: &Server, elements: usize) -> Result<Bytes, String> {
    let mut client = server.connect()?;
    // What a server allocates once is no part of any element.
    client.call(&["SET", "first", "value"])?;
    client.call(&["DEL", "first"])?;
    thread::sleep(SETTLE);
    let before = (used_bytes(&mut client)?, resident_bytes(server.process)?);
    client.pipeline(elements / case.batch, |at, out| (case.write)(at * case.batch, out))?;
    thread::sleep(SETTLE);
    let after = (used_bytes(&mut client)?, resident_bytes(server.process)?);
    let each = |before: u64, after: u64| (after as f64 - before as f64) / elements as f64;
    Ok(Bytes { used: each(before.0, after.0), resident: each(before.1, after.1) })
}

fn used_bytes(client: &mut Client) -> Result<u64, String> {
    let info = client.call(&["INFO", "memory"])?;
    let used = info.field("used_memory").and_then(|text| text.parse().ok());
    used.ok_or_else(|| "INFO memory tells no used_memory".to_owned())
}

fn cells(case: &Case, elements: usize, own: &Bytes, redis: &Bytes) -> Vec<String> {
    let mut cells = vec![case.name.to_owned(), elements.to_string()];
    for (own, redis) in [(own.used, redis.used), (own.resident, redis.resident)] {
        cells.extend([cell(own, 1), cell(redis, 1), cell(ratio(own, redis), 2)]);
    }
    cells
}

fn row(case: &Case, elements: usize, own: &Bytes, redis: &Bytes) -> Value {
    let figure = |own: f64, redis: f64| json!({ "evenkeel": own, "redis": redis, "ratio": ratio(own, redis) });
    json!({
        "case": case.name,
        "elements": elements,
        "used_bytes_per_element": figure(own.used, redis.used),
        "resident_bytes_per_element": figure(own.resident, redis.resident),
    })
}

/// Where the other has not grown, because there were too few elements, there is none.
fn ratio(own: f64, redis: f64) -> Option<f64> {
    (redis > 0.0).then(|| own / redis)
}

fn key(number: usize) -> String {
    format!("key:{number:012}")
}

fn value(number: usize) -> String {
    format!("value:{number:010}")
}

fn write_batch(command: &str, first: usize, make: fn(usize) -> String, out: &mut Vec<u8>) {
    let words = [command.to_owned(), "big".to_owned()].into_iter();
    write_request(out, &words.chain((first..first + BATCH).map(make)).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_elements_have_the_sizes_that_the_cases_tell() {
        for number in [0, 999_999, 99_999_999] {
            assert_eq!((key(number).len(), value(number).len()), (16, 16));
        }
        let mut out = Vec::new();
        write_batch("SADD", 100, |number| format!("m:{number:010}"), &mut out);
        assert!(out.starts_with(b"*102\r\n$4\r\nSADD\r\n$3\r\nbig\r\n$12\r\nm:0000000100\r\n"));
        assert!(out.ends_with(b"$12\r\nm:0000000199\r\n"));
        assert_eq!(ratio(1.0, 0.0), None);
    }
}
