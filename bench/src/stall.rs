//! `stall`: how long others wait while one client does something big.
//!
//! Every scenario goes the same way: its data is loaded; then a process of its own sends small
//! commands on eight connections, and opens a new one every 50 ms, during three phases: *idle*,
//! *control*, while another client keeps a processor busy with small commands, and *heavy*, while
//! it does what the scenario is about. The control phase tells what this machine makes of any two
//! busy clients; the heavy phase is judged by it. What the server itself counts meanwhile is shown
//! beside: a client that waited although no hold and no turn was long waited for a processor.

mod load;
mod scenarios;
pub(crate) mod probe;
mod measure;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::choice::choose;
use crate::output::{Column, Json, Table, cell, say};
use crate::server::{Flush, Server, Subject};
use measure::{Measurement, Plan};
use scenarios::{SCENARIOS, Scenario};
use verdict::Verdict;

/// Runs that are repeated for one scenario because the machine was busy with something else.
const REPEATS_MAX: usize = 3;

const COLUMNS: &[Column] = &[
    ("scenario", 18),
    ("server", 10),
    ("idle max", 8),
    ("p99.9", 7),
    ("control max", 8),
    ("p99.9", 7),
    ("heavy max", 9),
    ("p99.9", 7),
    ("took ms", 9),
    ("+MiB", 7),
    ("holds>50us", 5),
    ("turns>1ms", 5),
    ("verdict", 8),
];

/// How long others wait while one client does something big; waits are in milliseconds.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these scenarios, separated by commas; --list tells all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Show the scenarios and end.
    #[arg(long)]
    list: bool,
    /// Elements of the big collections, and number of keys.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    elements: u32,
    /// Runs of each scenario; shown is the median.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
    /// Length of the idle and of the control phase in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    phase_ms: u64,
    /// Priority of the clients that measure, from -20, the highest, to 19: with a high one, what they
    /// wait for is the server, not a processor. Below 0 needs root.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true,
        value_parser = clap::value_parser!(i8).range(-20..=19))]
    nice: i8,
    /// Measure the server at this port of this machine, which may be any; its data is deleted.
    #[arg(long, conflicts_with_all = ["binary", "workers"],
        value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Allow the data of the server at --port to be deleted.
    #[arg(long, requires = "port")]
    flush: bool,
    /// Measure a redis-server, too.
    #[arg(long)]
    reference: bool,
    /// Fail when a scenario is judged `broken`.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    subject: Subject,
    /// Write the results to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the bench.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let chosen = choose(SCENARIOS, "scenario", |scenario| scenario.name, &options.only)?;
    if options.list {
        chosen
            .iter()
            .for_each(|scenario| say(&format!("{:<18} {}", scenario.name, scenario.about)));
        return Ok(());
    }
    let json = Json::create(options.json.as_deref())?;
    let servers = servers(options)?;
    let runs = usize::from(options.runs);
    let table = Table::new(COLUMNS, chosen.len() * servers.len() * runs);
    let plan = Plan {
        elements: options.elements as usize,
        phase: Duration::from_millis(options.phase_ms),
        nice: options.nice.into(),
    };
    let (mut rows, mut broken, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for scenario in chosen {
        for (at, server) in servers.iter().enumerate() {
            let row = measure_runs(server, scenario, &plan, runs, &table);
            table.row(&row.cells());
            match (&row.failure, row.verdict) {
                (Some(text), _) => {
                    table.show(&format!("    {text}"));
                    failed.push(format!("{} on {}", scenario.name, server.name));
                }
                (None, Verdict::Broken) if at == 0 => broken.push(scenario.name),
                _ => {}
            }
            rows.push(row.json());
        }
    }
    drop(table);
    json.write("stall", rows)?;
    if !failed.is_empty() {
        return Err(format!("could not be measured: {}", failed.join(", ")));
    }
    if options.strict && !broken.is_empty() {
        return Err(format!("others waited too long: {}", broken.join(", ")));
    }
    Ok(())
}

/// What all runs of one scenario on one server found.
struct Row<'a> {
    scenario: &'a Scenario,
    server: &'a str,
    /// The runs, by their median.
    found: Measurement,
    runs: usize,
    verdict: Verdict,
    /// Why a run could not be finished.
    failure: Option<String>,
}

/// Runs that the machine has spoiled are repeated, a few times.
fn measure_runs<'a>(
    server: &'a Server,
    scenario: &'a Scenario,
    plan: &Plan,
    runs: usize,
    table: &Table,
) -> Row<'a> {
    let (mut found, mut repeats, mut failure) = (Vec::new(), 0, None);
    while found.len() < runs && failure.is_none() {
        table.doing(&format!("{} on {}", scenario.name, server.name));
        match measure::measure(server, scenario, plan) {
            Ok(run) if verdict::is_noisy(&run) && repeats < REPEATS_MAX => repeats += 1,
            Ok(run) => {
                found.push(run);
                table.advance();
            }
            Err(text) => failure = Some(text),
        }
    }
    let runs = found.len();
    let found = Measurement::median(&found);
    let verdict = if failure.is_some() { Verdict::Failed } else { verdict::judge(&found) };
    Row { scenario, server: &server.name, found, runs, verdict, failure }
}

impl Row<'_> {
    fn cells(&self) -> Vec<String> {
        let Row { found, .. } = self;
        let mut cells = vec![self.scenario.name.to_owned(), self.server.to_owned()];
        for phase in [&found.idle, &found.control, &found.heavy] {
            cells.push(cell(phase.worst_ms, 2));
            cells.push(cell(phase.p999_ms, 2));
        }
        cells.push(cell(found.took_ms, 1));
        cells.push(cell(found.growth_mib, 1));
        let own = found.own_view.as_ref();
        cells.push(cell(own.map(|own| own.long_holds), 0));
        cells.push(cell(own.map(|own| own.long_turns), 0));
        cells.push(self.verdict.name().to_owned());
        cells
    }

    fn json(&self) -> Value {
        let Row { found, .. } = self;
        let own = found.own_view.as_ref();
        json!({
            "scenario": self.scenario.name,
            "about": self.scenario.about,
            "server": self.server,
            "runs": self.runs,
            "idle": found.idle.json(),
            "control": found.control.json(),
            "heavy": found.heavy.json(),
            "took_ms": found.took_ms,
            "growth_mib": found.growth_mib,
            "holds_over_50us": own.map(|own| own.long_holds),
            "holds_over_50us_wall": own.map(|own| own.long_holds_wall),
            "turns_over_1ms": own.map(|own| own.long_turns),
            "longest_holds": own.map(|own| own.longest.clone()),
            "verdict": self.verdict.name(),
            "failure": self.failure,
        })
    }
}

fn servers(options: &Options) -> Result<Vec<Server>, String> {
    let flush = if options.flush { Flush::Allowed } else { Flush::Refused };
    let mut servers = vec![match options.port {
        Some(port) => Server::running(port, flush)?,
        None => Server::evenkeel(&options.subject)?,
    }];
    if options.reference {
        servers.push(Server::redis("redis")?);
    }
    Ok(servers)
}
