//! `speed`: requests per second and processor time per command, Evenkeel beside redis-server, by
//! redis-benchmark.
//!
//! In every round each server runs the same test, one after the other, and another one begins each
//! time; a ratio is that of one round, and what is shown is the median of the rounds. A second
//! redis-server runs along: its ratio to the first one tells what two equal servers show on this
//! machine. Where the load generator shares the processors with the servers, the processor time is
//! the figure to trust.

mod load;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::choice::choose;
use crate::output::{Column, Json, Table, cell};
use crate::server::{Server, Subject, require};
use crate::statistics::median;
use load::{Figures, Load, TESTS, Test};

/// Requests of one test at depth 1; a deeper pipeline gets more, to take about as long.
const REQUESTS: u32 = 100_000;
/// What is multiplied by the depth, at most.
const DEPTH_FACTOR_MAX: u32 = 20;

const COLUMNS: &[Column] = &[
    ("test", 10),
    ("depth", 5),
    ("us/command", 7),
    ("redis", 7),
    ("ratio", 5),
    ("A/A", 5),
    ("requests/s", 10),
    ("redis", 10),
    ("ratio", 5),
    ("A/A", 5),
    ("p99 ms", 6),
    ("redis", 6),
];

/// Requests per second and processor time per command, beside redis-server. A ratio below 1 is
/// better for time per command, above 1 for requests per second; A/A is the ratio of two equal
/// redis-servers.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these tests, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Commands in flight per connection, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64],
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    depth: Vec<u32>,
    /// Rounds; shown is the median.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Requests of one test [default: 100000 at depth 1, more in deeper pipelines].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    requests: Option<u32>,
    /// Connections of the load generator.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,
    /// Keys that the tests of single keys choose from.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    #[command(flatten)]
    subject: Subject,
    /// Write the results to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the bench.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let tests = choose(TESTS, "test", |test| test.name, &options.only)?;
    require("redis-benchmark", "redis-tools")?;
    let json = Json::create(options.json.as_deref())?;
    // The order of the fields of `Round`.
    let servers =
        [Server::evenkeel(&options.subject)?, Server::redis("redis")?, Server::redis("redis 2")?];
    let rounds = usize::from(options.rounds);
    let steps = tests.len() * options.depth.len() * rounds * servers.len();
    let table = Table::new(COLUMNS, steps);
    let mut rows = Vec::new();
    for test in tests {
        for depth in &options.depth {
            let load = Load {
                depth: *depth,
                requests: options.requests.unwrap_or(REQUESTS * (*depth).min(DEPTH_FACTOR_MAX)),
                clients: options.clients,
                keys: options.keys,
            };
            let rounds = run_rounds(test, &load, &servers, rounds, &table)?;
            let row = Row { test: test.name, depth: *depth, rounds };
            table.row(&row.cells());
            rows.push(row.json());
        }
    }
    drop(table);
    json.write("speed", rows)
}

/// The figures of all servers in one round.
type Round = [Figures; 3];

fn run_rounds(
    test: &Test,
    load: &Load,
    servers: &[Server; 3],
    rounds: usize,
    table: &Table,
) -> Result<Vec<Round>, String> {
    let mut found = Vec::new();
    for round in 0..rounds {
        let mut figures = Round::default();
        for turn in 0..servers.len() {
            let at = (round + turn) % servers.len();
            table.doing(&format!("{} at depth {} on {}", test.name, load.depth, servers[at].name));
            figures[at] = load::run(test, load, &servers[at])
                .map_err(|text| format!("{} on {}: {text}", test.name, servers[at].name))?;
            table.advance();
        }
        found.push(figures);
    }
    // What a test has written would be in the way of the next one.
    servers.iter().try_for_each(|server| server.connect()?.call(&["FLUSHALL"]).map(drop))?;
    Ok(found)
}

/// All rounds of a test at a depth.
struct Row {
    test: &'static str,
    depth: u32,
    rounds: Vec<Round>,
}

impl Row {
    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.test.to_owned(), self.depth.to_string()];
        for (get, decimals) in [(cpu_us as fn(&Figures) -> f64, 3), (requests_per_second, 0)] {
            cells.push(cell(self.median(|[own, ..]| get(own)), decimals));
            cells.push(cell(self.median(|[_, redis, _]| get(redis)), decimals));
            cells.push(cell(self.median(|[own, redis, _]| ratio(get(own), get(redis))), 2));
            cells.push(cell(self.median(|[_, redis, other]| ratio(get(other), get(redis))), 2));
        }
        cells.push(cell(self.median(|[own, ..]| own.p99_ms), 2));
        cells.push(cell(self.median(|[_, redis, _]| redis.p99_ms), 2));
        cells
    }

    fn json(&self) -> Value {
        let figure = |get: fn(&Figures) -> f64| {
            json!({
                "evenkeel": self.median(|[own, ..]| get(own)),
                "redis": self.median(|[_, redis, _]| get(redis)),
                "ratio": self.median(|[own, redis, _]| ratio(get(own), get(redis))),
                "control_ratio": self.median(|[_, redis, other]| ratio(get(other), get(redis))),
            })
        };
        json!({
            "test": self.test,
            "depth": self.depth,
            "rounds": self.rounds.len(),
            "cpu_us_per_command": figure(cpu_us),
            "requests_per_second": figure(requests_per_second),
            "p99_ms": figure(|figures| figures.p99_ms),
        })
    }
}

fn cpu_us(figures: &Figures) -> f64 {
    figures.cpu_us
}

fn requests_per_second(figures: &Figures) -> f64 {
    figures.requests_per_second
}

/// Of a run too short for the system's ticks there is none.
fn ratio(own: f64, other: f64) -> f64 {
    if other > 0.0 { own / other } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_one_round() {
        let figures = |cpu_us| Figures { cpu_us, ..Figures::default() };
        let round = |own, redis, other| [figures(own), figures(redis), figures(other)];
        let rounds = vec![round(1.0, 2.0, 2.0), round(4.0, 4.0, 8.0), round(1.0, 4.0, 4.0)];
        let row = Row { test: "get", depth: 16, rounds };
        assert_eq!(row.cells()[..6], ["get", "16", "1.000", "4.000", "0.50", "1.00"]);
        assert_eq!(ratio(1.0, 0.0), 0.0);
    }

    #[test]
    fn an_unknown_test_is_told() {
        let text = choose(TESTS, "test", |test| test.name, &["nothing".to_owned()])
            .err()
            .unwrap_or_default();
        assert!(text.contains("no test is called nothing; there are set get"), "{text}");
    }
}
