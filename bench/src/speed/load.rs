//! The tests, and one run of redis-benchmark.

use std::process::{Command, Stdio};

use resp::write_request;

use crate::process::processor_seconds;
use crate::server::Server;

/// Bytes of a value.
const VALUE_BYTES: &str = "32";
/// The list that is read.
const LIST: &str = "bench:list";
/// The list that redis-benchmark pushes to and pops from.
const STACK: &str = "mylist";
/// Elements that one command adds while loading.
const BATCH: usize = 100;

/// A test of redis-benchmark.
pub(super) struct Test {
    /// Its name in tables and in `--only`.
    pub name: &'static str,
    /// What it needs.
    data: Data,
    /// The arguments that tell redis-benchmark what to do.
    arguments: &'static [&'static str],
}

/// What must be there before each run.
#[derive(Clone, Copy)]
enum Data {
    Nothing,
    /// Every key that the test may choose; no run removes them.
    Keys,
    /// A list of a hundred elements.
    List,
    /// A list with an element for each request.
    Stack,
}

/// All tests.
pub(super) const TESTS: &[Test] = &[
    Test { name: "set", data: Data::Nothing, arguments: &["-t", "set"] },
    Test { name: "get", data: Data::Keys, arguments: &["-t", "get"] },
    Test { name: "incr", data: Data::Nothing, arguments: &["-t", "incr"] },
    Test { name: "lpush", data: Data::Nothing, arguments: &["-t", "lpush"] },
    Test { name: "rpop", data: Data::Stack, arguments: &["-t", "rpop"] },
    Test { name: "lrange_100", data: Data::List, arguments: &["LRANGE", LIST, "0", "99"] },
    Test { name: "sadd", data: Data::Nothing, arguments: &["-t", "sadd"] },
];

/// How much of it.
pub(super) struct Load {
    /// Commands in flight per connection.
    pub depth: u32,
    /// Requests in all.
    pub requests: u32,
    /// Connections.
    pub clients: u16,
    /// Keys to choose from.
    pub keys: u32,
}

/// What one run found.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Figures {
    /// Processor time of the server per command, in microseconds.
    pub cpu_us: f64,
    /// Commands that were answered per second.
    pub requests_per_second: f64,
    /// 99 % were answered in this time, in milliseconds.
    pub p99_ms: f64,
}

/// Runs a test once.
pub(super) fn run(test: &Test, load: &Load, server: &Server) -> Result<Figures, String> {
    prepare(test.data, load, server)?;
    let mut command = Command::new("redis-benchmark");
    let options = [
        ("-p", server.port.to_string()),
        ("-c", load.clients.to_string()),
        ("-P", load.depth.to_string()),
        ("-n", load.requests.to_string()),
        ("-r", load.keys.to_string()),
        ("-d", VALUE_BYTES.to_owned()),
    ];
    options.iter().for_each(|(option, value)| {
        command.args([option, value.as_str()]);
    });
    command.arg("--csv").args(test.arguments).stdin(Stdio::null());
    let before = processor_seconds(server.process)?;
    let output = command.output().map_err(|error| format!("redis-benchmark: {error}"))?;
    let seconds = processor_seconds(server.process)? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let (requests_per_second, p99_ms) = read(&text).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("redis-benchmark gave no figures: {text}{errors}")
    })?;
    let cpu_us = seconds * 1e6 / f64::from(load.requests);
    Ok(Figures { cpu_us, requests_per_second, p99_ms })
}

fn prepare(data: Data, load: &Load, server: &Server) -> Result<(), String> {
    let mut client = server.connect()?;
    match data {
        Data::Nothing => Ok(()),
        Data::Keys if client.call(&["DBSIZE"])?.number()? >= u64::from(load.keys) => Ok(()),
        Data::Keys => client.pipeline(load.keys as usize, |number, out| {
            write_request(out, &["SET", &format!("key:{number:012}"), &"x".repeat(32)]);
        }),
        Data::List => {
            client.call(&["DEL", LIST])?;
            push(&mut client, LIST, BATCH)
        }
        Data::Stack => {
            client.call(&["DEL", STACK])?;
            push(&mut client, STACK, load.requests as usize)
        }
    }
}

/// Pushes at least `count` elements.
fn push(client: &mut crate::client::Client, key: &str, count: usize) -> Result<(), String> {
    let element = "x".repeat(32);
    let words: Vec<&str> =
        ["RPUSH", key].into_iter().chain(std::iter::repeat_n(element.as_str(), BATCH)).collect();
    client.pipeline(count.div_ceil(BATCH), |_, out| write_request(out, &words))
}

/// Requests per second and the 99th percentile, in milliseconds, by the titles of the columns.
fn read(csv: &str) -> Option<(f64, f64)> {
    let mut lines = csv.lines().filter(|line| line.starts_with('"')).map(cells);
    let (titles, last) = (lines.next()?, lines.next_back()?);
    let number = |title: &str| -> Option<f64> {
        let at = titles.iter().position(|cell| *cell == title)?;
        last.get(at)?.parse().ok()
    };
    Some((number("rps")?, number("p99_latency_ms")?))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('"').split("\",\"").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_titles() {
        let csv = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n\
                   \"LRANGE a, b\",\"1000.50\",\"0.1\",\"0.25\"\n";
        assert_eq!(read(csv), Some((1000.5, 0.25)));
        assert_eq!(read("Could not connect"), None);
        assert_eq!(read("\"test\",\"rps\"\n\"GET\",\"1\"\n"), None);
    }
}
