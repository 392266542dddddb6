//! INFO: sections of lines `name:value`, in Redis's names and order where Redis has them.
//!
//! Everything is a sum of atomics; no latch is taken. What this server does not have is either
//! absent or zero because it is zero.

use std::fmt::{Display, Write};

use super::VERSION;
use crate::commands::TABLE;
use crate::execution::command::Flags;
use crate::execution::worker::Worker;
use crate::lanes::Lane;
use crate::observe::stalls::{Histogram, LongHold, NOTABLE_HOLD_US, Summary};
use crate::observe::{Counter, WorkerStats};
use crate::sync::atomic::Ordering;

/// Holds that are shown by name.
const LONGEST_SHOWN: usize = 16;

/// Turns that took longer than this on the processor are counted, in microseconds: the promise.
const LONG_TURN_US: u64 = 1000;

/// A part of INFO.
struct Section {
    /// In lower case.
    name: &'static str,
    title: &'static str,
    /// Whether INFO shows it without being asked for it.
    by_default: bool,
    write: fn(&Worker, &mut Text),
}

const SECTIONS: &[Section] = &[
    Section { name: "server", title: "Server", by_default: true, write: server },
    Section { name: "clients", title: "Clients", by_default: true, write: clients },
    Section { name: "memory", title: "Memory", by_default: true, write: memory },
    Section { name: "persistence", title: "Persistence", by_default: true, write: persistence },
    Section { name: "stats", title: "Stats", by_default: true, write: stats },
    Section { name: "replication", title: "Replication", by_default: true, write: replication },
    Section { name: "commandstats", title: "Commandstats", by_default: false, write: commands },
    Section { name: "stalls", title: "Stalls", by_default: false, write: stalls },
    Section { name: "cluster", title: "Cluster", by_default: true, write: cluster },
    Section { name: "keyspace", title: "Keyspace", by_default: true, write: keyspace },
];

/// The sections that are asked for, each once; without names, the usual ones.
pub(super) fn text<'a>(worker: &Worker, names: impl Iterator<Item = &'a [u8]>) -> String {
    let mut text = Text::default();
    for section in wanted(names) {
        text.begin(section.title);
        (section.write)(worker, &mut text);
    }
    text.0
}

fn wanted<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<&'static Section> {
    let mut is_wanted = [false; SECTIONS.len()];
    let mut is_asked = false;
    for name in names {
        is_asked = true;
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let (default, all) = (is("default"), is("all") || is("everything"));
        for (wanted, section) in is_wanted.iter_mut().zip(SECTIONS) {
            *wanted |= all || default && section.by_default || is(section.name);
        }
    }
    let shown = SECTIONS.iter().zip(is_wanted);
    let shown = shown.filter(|(section, wanted)| *wanted || !is_asked && section.by_default);
    shown.map(|(section, _)| section).collect()
}

/// The text of INFO as it grows.
#[derive(Default)]
struct Text(String);

impl Text {
    fn begin(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.push(format_args!("# {title}\r\n"));
    }

    fn field(&mut self, name: impl Display, value: impl Display) {
        self.push(format_args!("{name}:{value}\r\n"));
    }

    /// Bytes, also for people.
    fn size(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(format_args!("{name}_human"), human(bytes));
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(arguments);
    }
}

/// Bytes in the largest unit of which there is one.
fn human(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

/// Microseconds of a time in nanoseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn server(worker: &Worker, text: &mut Text) {
    let (engine, process) = (&worker.engine, &worker.engine.process);
    let uptime_seconds = (worker.now_ms - engine.started_ms).max(0) / 1000;
    text.field("redis_version", VERSION);
    text.field("evenkeel_version", env!("CARGO_PKG_VERSION"));
    text.field("redis_mode", "standalone");
    text.field("os", &process.os);
    text.field("arch_bits", usize::BITS);
    text.field("process_id", process.id);
    text.field("run_id", &process.run_id);
    text.field("tcp_port", process.port);
    text.field("server_time_usec", worker.now_ms * 1000);
    text.field("uptime_in_seconds", uptime_seconds);
    text.field("uptime_in_days", uptime_seconds / (24 * 60 * 60));
    text.field("workers", engine.stats.workers.len());
    text.field("executable", &process.executable);
    text.field("config_file", "");
}

fn clients(worker: &Worker, text: &mut Text) {
    let (pause, now_ms) = (&worker.engine.pause, worker.now_ms);
    let (reason, actions) = if pause.blocks(Flags::NONE, now_ms) {
        ("client_pause", "all")
    } else if pause.blocks(Flags::WRITE, now_ms) {
        ("client_pause", "write")
    } else {
        ("none", "none")
    };
    let left_ms = pause.until_ms.load(Ordering::Relaxed).saturating_sub(now_ms).max(0);
    text.field("connected_clients", worker.engine.registry.len());
    text.field("blocked_clients", 0);
    text.field("tracking_clients", 0);
    text.field("paused_reason", reason);
    text.field("paused_actions", actions);
    text.field("paused_timeout_milliseconds", left_ms);
}

fn memory(worker: &Worker, text: &mut Text) {
    let (engine, process) = (&worker.engine, &worker.engine.process);
    let (used, resident) = ((process.allocated_bytes)(), (process.resident_bytes)());
    text.size("used_memory", used);
    text.size("used_memory_rss", resident);
    text.size("total_system_memory", process.machine_bytes);
    text.size("maxmemory", 0);
    text.field("maxmemory_policy", "noeviction");
    let ratio = resident as f64 / used.max(1) as f64;
    text.field("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    text.field("mem_fragmentation_bytes", resident as i64 - used as i64);
    text.field("lazyfree_pending_objects", engine.reaper.len());
    text.field("lazyfreed_objects", engine.reaper.finished.load(Ordering::Relaxed));
}

fn persistence(_: &Worker, text: &mut Text) {
    for name in ["loading", "rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress"] {
        text.field(name, 0);
    }
}

fn stats(worker: &Worker, text: &mut Text) {
    let sum = |counter: fn(&WorkerStats) -> &Counter| worker.engine.stats.sum(counter);
    text.field("total_connections_received", sum(|stats| &stats.accepted));
    text.field("total_commands_processed", sum(|stats| &stats.executed));
    text.field("total_net_input_bytes", sum(|stats| &stats.bytes_in));
    text.field("total_net_output_bytes", sum(|stats| &stats.bytes_out));
    text.field("rejected_connections", 0);
    text.field("expired_keys", sum(|stats| &stats.expired));
    text.field("evicted_keys", 0);
    text.field("keyspace_hits", sum(|stats| &stats.hits));
    text.field("keyspace_misses", sum(|stats| &stats.misses));
    text.field("pubsub_channels", 0);
    text.field("pubsub_patterns", 0);
    text.field("latest_fork_usec", 0);
    text.field("total_forks", 0);
    text.field("total_error_replies", sum(|stats| &stats.errors));
}

fn replication(_: &Worker, text: &mut Text) {
    text.field("role", "master");
    text.field("connected_slaves", 0);
}

fn commands(worker: &Worker, text: &mut Text) {
    let engine = &worker.engine;
    for (at, command) in TABLE.iter().enumerate() {
        let calls = engine.stats.sum(|stats| &stats.commands[at].calls);
        let rejected = engine.stats.sum(|stats| &stats.commands[at].rejected);
        let failed = engine.stats.sum(|stats| &stats.commands[at].failed);
        if calls + rejected + failed == 0 {
            continue;
        }
        let ns = engine.clock.ns(engine.stats.sum(|stats| &stats.commands[at].ticks));
        let each_us = ns as f64 / 1000.0 / calls.max(1) as f64;
        text.field(
            format_args!("cmdstat_{}", command.row.name),
            format_args!(
                "calls={calls},usec={},usec_per_call={each_us:.2},rejected_calls={rejected},\
                 failed_calls={failed}",
                ns / 1000
            ),
        );
    }
}

/// A histogram of all workers together.
fn summary(worker: &Worker, histogram: fn(&WorkerStats) -> &Histogram) -> Summary {
    let mut summary = Summary::default();
    worker.engine.stats.workers.iter().for_each(|stats| summary.add(histogram(stats)));
    summary
}

/// The usual quantiles of times.
fn times(summary: &Summary) -> String {
    let quantile = |share| us(summary.quantile(share));
    format!(
        "count={},p50_us={},p99_us={},p999_us={},max_us={}",
        summary.count(),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        us(summary.max)
    )
}

fn stalls(worker: &Worker, text: &mut Text) {
    let engine = &worker.engine;
    let (mut longest, mut over_wall, mut over_cpu) = (Vec::new(), 0, 0);
    for stats in &engine.stats.workers {
        let worst = stats.longest.lock();
        longest.extend(worst.holds.iter().cloned());
        over_wall += worst.over_wall;
        over_cpu += worst.over_cpu;
    }
    let holds = times(&summary(worker, |stats| &stats.holds));
    let limit = NOTABLE_HOLD_US;
    text.field(
        "holds",
        format_args!("{holds},over_{limit}us={over_wall},over_{limit}us_cpu={over_cpu}"),
    );
    let units = summary(worker, |stats| &stats.hold_units);
    text.field(
        "hold_units",
        format_args!(
            "count={},p50={},p99={},p999={},max={}",
            units.count(),
            units.quantile(0.5),
            units.quantile(0.99),
            units.quantile(0.999),
            units.max
        ),
    );
    text.field("turns", times(&summary(worker, |stats| &stats.turns)));
    let turns = summary(worker, |stats| &stats.turns_cpu);
    let over = turns.above(LONG_TURN_US * 1000);
    text.field("turns_cpu", format_args!("{},over_{LONG_TURN_US}us={over}", times(&turns)));
    longest.sort_unstable_by_key(|hold: &LongHold| std::cmp::Reverse(hold.cpu_ns));
    for (at, hold) in longest.iter().take(LONGEST_SHOWN).enumerate() {
        let LongHold { command, wall_ns, cpu_ns, units, at_ms } = hold;
        text.field(
            format_args!("longest_hold_{at}"),
            format_args!(
                "command={command},wall_us={},cpu_us={},units={units},at_ms={at_ms}",
                us(*wall_ns),
                us(*cpu_ns)
            ),
        );
    }
    lane(text, "slow_lane", &engine.slow_lane);
    lane(text, "reaper", &engine.reaper);
    text.field("parked", engine.stats.sum(|stats| &stats.parked));
    text.field("restarts", engine.stats.sum(|stats| &stats.restarts));
}

fn lane<T: ?Sized>(text: &mut Text, name: &str, lane: &Lane<T>) {
    let [steps, finished] =
        [&lane.steps, &lane.finished].map(|count| count.load(Ordering::Relaxed));
    text.field(name, format_args!("len={},steps={steps},finished={finished}", lane.len()));
}

fn cluster(_: &Worker, text: &mut Text) {
    text.field("cluster_enabled", 0);
}

fn keyspace(worker: &Worker, text: &mut Text) {
    let keyspace = &worker.engine.keyspace;
    for index in 0..keyspace.databases() {
        // The own slot of the gate, not a reference that might become the last one.
        let (keys, expires) = keyspace.gate.enter(worker.id).databases[index].len();
        if keys > 0 {
            text.field(
                format_args!("db{index}"),
                format_args!("keys={keys},expires={expires},avg_ttl=0"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str]) -> String {
        let sections = wanted(asked.iter().map(|name| name.as_bytes()));
        sections.iter().map(|section| section.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sections_are_chosen_as_redis_chooses_them() {
        let usual = "server clients memory persistence stats replication cluster keyspace";
        let all = "server clients memory persistence stats replication commandstats stalls \
                   cluster keyspace";
        for (asked, expected) in [
            (&[][..], usual),
            (&["default"], usual),
            (&["ALL"], all),
            (&["everything", "nosuch"], all),
            (&["nosuch"], ""),
            (&["keyspace", "Clients", "keyspace"], "clients keyspace"),
            (&["commandstats", "default"], &all.replace("stalls ", "")),
        ] {
            assert_eq!(names(asked), expected, "{asked:?}");
        }
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, expected) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1_066_616, "1.02M"),
            (25_276_510_208, "23.54G"),
            (1 << 41, "2.00T"),
        ] {
            assert_eq!(human(bytes), expected);
        }
        assert_eq!(us(1_234_567), "1234.567");
        assert_eq!(us(7), "0.007");
    }
}
