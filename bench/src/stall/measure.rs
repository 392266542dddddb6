//! One run of one scenario: data, the three phases, and what was seen in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use resp::write_request;
use serde_json::{Value, json};

use super::load::load;
use super::probe::{Kind, Probe, Wait};
use super::scenarios::{Heavy, Scenario};
use crate::client::{Client, Reply};
use crate::process::{now_ns, resident_bytes};
use crate::server::Server;
use crate::statistics::{median, quantile};

/// PINGs that the busy client of the control phase sends at once.
const BUSY_PIPELINE: usize = 50;
/// Pause between two looks at the resident memory.
const MEMORY_PERIOD: Duration = Duration::from_millis(5);
/// What the server does in the background after the reply belongs to the heavy phase, too.
const TAIL: Duration = Duration::from_millis(50);
/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// The size of a run.
pub(super) struct Plan {
    /// Elements of the big collections, and number of keys.
    pub elements: usize,
    /// Length of the idle and of the control phase.
    pub phase: Duration,
    /// The priority of the clients that measure.
    pub nice: i32,
}

/// What one run found, or the median of several.
#[derive(Default)]
pub(super) struct Measurement {
    /// While nobody else did anything.
    pub idle: Phase,
    /// While another client was busy with small commands.
    pub control: Phase,
    /// While the scenario ran.
    pub heavy: Phase,
    /// How long the heavy client took, in milliseconds.
    pub took_ms: f64,
    /// By how much the server's resident memory exceeded what it was before, in MiB.
    pub growth_mib: f64,
    /// What the server counted; only Evenkeel tells.
    pub own_view: Option<OwnView>,
}

/// How long small commands took in one phase.
#[derive(Clone, Default)]
pub(super) struct Phase {
    /// The longest, in milliseconds.
    pub worst_ms: f64,
    /// Longer than 99.9 % of them, in milliseconds.
    pub p999_ms: f64,
    /// The longest on a fresh connection, with the time to open it, in milliseconds.
    pub worst_fresh_ms: f64,
    /// How many there were.
    pub count: f64,
}

/// What the server says of the heavy phase.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct OwnView {
    /// Holds of a latch that took more than 50 us of processor time.
    pub long_holds: f64,
    /// Those that took more than 50 us by the clock.
    pub long_holds_wall: f64,
    /// Turns of a worker that took more than 1 ms of processor time.
    pub long_turns: f64,
    /// The longest holds, as the server shows them.
    pub longest: Vec<String>,
}

/// Runs a scenario once.
pub(super) fn measure(
    server: &Server,
    scenario: &Scenario,
    plan: &Plan,
) -> Result<Measurement, String> {
    let mut client = server.connect()?;
    let settle = plan.phase / 4;
    client.call(&["FLUSHALL"])?;
    thread::sleep(settle);
    let deadline_ms = load(scenario.data, &mut client, plan)?;
    thread::sleep(settle);
    let probe = Probe::start(server.port, plan.nice)?;
    let idle_ns = now_ns();
    thread::sleep(plan.phase);
    let control_ns = now_ns();
    keep_busy(server.port, control_ns + plan.phase.as_nanos() as u64)?;
    let control_end_ns = now_ns();
    // What the server counts from now on belongs to the heavy phase. To ask it here what it has
    // counted would be counted; a server that refuses is none that is asked later.
    client.call(&["CONFIG", "RESETSTAT"]).ok();
    let base = resident_bytes(server.process)?;
    let mut heavy = Heavy {
        client,
        port: server.port,
        elements: plan.elements,
        patience: plan.phase,
        deadline_ms,
        begin_ns: None,
    };
    let (end_ns, peak) = watch_memory(server.process, || (scenario.work)(&mut heavy))?;
    let begin_ns = heavy.begin_ns.unwrap_or(control_end_ns);
    thread::sleep(TAIL);
    let own_view = read_view(&heavy.client.call(&["INFO", "stalls"])?);
    let waits = probe.finish()?;
    let inside = |from: u64, to: u64| {
        let in_phase =
            move |wait: &&Wait| wait.sent_ns >= from && wait.sent_ns + wait.took_ns <= to;
        phase(waits.iter().filter(in_phase))
    };
    let touches = |wait: &&Wait| {
        let tail_ns = end_ns + TAIL.as_nanos() as u64;
        wait.sent_ns + wait.took_ns >= begin_ns && wait.sent_ns <= tail_ns
    };
    Ok(Measurement {
        idle: inside(idle_ns, control_ns),
        control: inside(control_ns, control_end_ns),
        heavy: phase(waits.iter().filter(touches)),
        took_ms: ms(end_ns - begin_ns),
        growth_mib: (peak as f64 - base as f64) / MIB,
        own_view,
    })
}

impl Measurement {
    /// The median of each number.
    pub(super) fn median(runs: &[Measurement]) -> Measurement {
        let number = |get: fn(&Measurement) -> f64| median(runs.iter().map(get));
        let phase = |get: fn(&Measurement) -> &Phase| {
            let number = |field: fn(&Phase) -> f64| median(runs.iter().map(|run| field(get(run))));
            Phase {
                worst_ms: number(|phase| phase.worst_ms),
                p999_ms: number(|phase| phase.p999_ms),
                worst_fresh_ms: number(|phase| phase.worst_fresh_ms),
                count: number(|phase| phase.count),
            }
        };
        let views: Vec<&OwnView> = runs.iter().filter_map(|run| run.own_view.as_ref()).collect();
        let counts = |get: fn(&OwnView) -> f64| median(views.iter().map(|view| get(view)));
        Measurement {
            idle: phase(|run| &run.idle),
            control: phase(|run| &run.control),
            heavy: phase(|run| &run.heavy),
            took_ms: number(|run| run.took_ms),
            growth_mib: number(|run| run.growth_mib),
            own_view: (!views.is_empty()).then(|| OwnView {
                long_holds: counts(|view| view.long_holds),
                long_holds_wall: counts(|view| view.long_holds_wall),
                long_turns: counts(|view| view.long_turns),
                longest: views.iter().flat_map(|view| view.longest.clone()).collect(),
            }),
        }
    }
}

impl Phase {
    /// As a part of the results.
    pub(super) fn json(&self) -> Value {
        let Phase { worst_ms, p999_ms, worst_fresh_ms, count } = self;
        json!({
            "worst_ms": worst_ms,
            "p999_ms": p999_ms,
            "worst_fresh_ms": worst_fresh_ms,
            "requests": count,
        })
    }
}

fn phase<'a>(waits: impl Iterator<Item = &'a Wait>) -> Phase {
    let (mut all, mut worst_fresh) = (Vec::new(), 0);
    for wait in waits {
        all.push(wait.took_ns);
        if wait.kind == Kind::Fresh {
            worst_fresh = worst_fresh.max(wait.took_ns);
        }
    }
    all.sort_unstable();
    Phase {
        worst_ms: ms(quantile(&all, 1.0)),
        p999_ms: ms(quantile(&all, 0.999)),
        worst_fresh_ms: ms(worst_fresh),
        count: all.len() as f64,
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Keeps the server busy with commands that cost it nothing but the protocol.
fn keep_busy(port: u16, until_ns: u64) -> Result<(), String> {
    let mut client = Client::connect(port)?;
    while now_ns() < until_ns {
        client.pipeline(BUSY_PIPELINE, |_, out| write_request(out, &["PING"]))?;
    }
    Ok(())
}

/// Does the work; returns when it was done, and the most resident memory that was seen until then.
fn watch_memory(
    process: u32,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(u64, u64), String> {
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let look = || resident_bytes(process).map(|bytes| peak.fetch_max(bytes, Ordering::Relaxed));
    let end_ns = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) && look().is_ok() {
                thread::sleep(MEMORY_PERIOD);
            }
        });
        let result = work().map(|()| now_ns());
        done.store(true, Ordering::Relaxed);
        result
    })?;
    look()?;
    Ok((end_ns, peak.load(Ordering::Relaxed)))
}

/// The server's counters, if it has them.
fn read_view(info: &Reply) -> Option<OwnView> {
    let count = |line: &str, name: &str| -> Option<f64> {
        let pairs = info.field(line)?.split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name)?.1.parse().ok()
    };
    let longest = info.text.lines().filter_map(|line| line.strip_prefix("longest_hold_"));
    Some(OwnView {
        long_holds: count("holds", "over_50us_cpu")?,
        long_holds_wall: count("holds", "over_50us")?,
        long_turns: count("turns_cpu", "over_1000us")?,
        longest: longest.filter_map(|line| Some(line.split_once(':')?.1.to_owned())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_tells_its_longest_waits() {
        let wait = |took_ns, kind| Wait { sent_ns: 0, took_ns, kind };
        let mut waits = vec![wait(100_000, Kind::Open); 2000];
        waits.push(wait(3_000_000, Kind::Open));
        waits.push(wait(2_000_000, Kind::Fresh));
        let phase = phase(waits.iter());
        assert_eq!((phase.worst_ms, phase.p999_ms), (3.0, 0.1));
        assert_eq!((phase.worst_fresh_ms, phase.count), (2.0, 2002.0));
    }

    #[test]
    fn the_servers_view_is_read_from_its_lines() {
        let text = "# Stalls\r\nholds:count=9,over_50us=7,over_50us_cpu=5\r\n\
                    turns_cpu:count=3,over_1000us=1\r\nlongest_hold_0:command=lrem,cpu_us=60\r\n";
        let view = read_view(&Reply { text: text.to_owned(), ..Reply::default() });
        let view = view.expect("all lines are there");
        assert_eq!((view.long_holds, view.long_holds_wall, view.long_turns), (5.0, 7.0, 1.0));
        assert_eq!(view.longest, ["command=lrem,cpu_us=60"]);
        assert_eq!(read_view(&Reply::default()), None);
    }

    #[test]
    fn the_median_of_runs() {
        let run = |took_ms| Measurement { took_ms, ..Measurement::default() };
        let found = Measurement::median(&[run(9.0), run(1.0), run(2.0)]);
        assert_eq!(found.took_ms, 2.0);
        assert!(found.own_view.is_none());
    }
}
