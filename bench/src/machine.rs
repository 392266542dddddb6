//! `machine`: what the machine itself does to a thread that only computes.
//!
//! A thread on each processor looks at the clock all the time. Where two looks are far apart,
//! something else ran meanwhile: another process, an interrupt, or on a virtual machine another
//! guest of the host, which no counter in here shows and which counts as the thread's own processor
//! time. No server can be better than that: it is the floor of what `stall` finds.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use crate::output::{Column, Json, Table, cell};

/// A hold that lasts longer is notable, microseconds.
const HOLD_US: f64 = 50.0;
/// A turn that lasts longer is notable, microseconds.
const TURN_US: f64 = 1000.0;

const COLUMNS: &[Column] =
    &[("processor", 9), (">50us/s", 8), (">1ms/s", 8), ("longest ms", 9), ("lost %", 6)];

/// What the machine itself does to a thread that only computes: interruptions per second.
#[derive(Args)]
pub(crate) struct Options {
    /// How long each processor is watched, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Write the results to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What one processor's thread has seen.
struct Watched {
    processor: usize,
    seconds: f64,
    over_hold: u32,
    over_turn: u32,
    longest_us: f64,
    /// The sum of all interruptions over [`HOLD_US`].
    lost_us: f64,
}

/// Runs the bench: all processors at the same time.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let lasts = Duration::try_from_secs_f64(options.seconds)
        .map_err(|error| format!("--seconds {}: {error}", options.seconds))?;
    let json = Json::create(options.json.as_deref())?;
    let allowed = sched_getaffinity(None).map_err(|error| format!("processors: {error}"))?;
    let processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
    let threads: Vec<_> =
        processors.map(|processor| thread::spawn(move || watch(processor, lasts))).collect();
    let table = Table::new(COLUMNS, threads.len());
    let mut rows = Vec::new();
    for thread in threads {
        let watched = thread.join().map_err(|_| "a watching thread has failed")?;
        table.row(&watched.cells());
        table.advance();
        rows.push(watched.json());
    }
    drop(table);
    json.write("machine", rows)
}

fn watch(processor: usize, lasts: Duration) -> Watched {
    let mut only = CpuSet::new();
    only.set(processor);
    // Without it the thread moves, and its figures are those of all processors.
    let _ = sched_setaffinity(None, &only);
    let begun = Instant::now();
    let mut watched = Watched {
        processor,
        seconds: lasts.as_secs_f64(),
        over_hold: 0,
        over_turn: 0,
        longest_us: 0.0,
        lost_us: 0.0,
    };
    let mut last = begun;
    while last - begun < lasts {
        let now = Instant::now();
        watched.note((now - last).as_secs_f64() * 1e6);
        last = now;
    }
    watched
}

impl Watched {
    /// Two looks at the clock were so far apart.
    fn note(&mut self, us: f64) {
        self.longest_us = self.longest_us.max(us);
        if us > HOLD_US {
            self.over_hold += 1;
            self.over_turn += u32::from(us > TURN_US);
            self.lost_us += us;
        }
    }

    fn per_second(&self, count: u32) -> f64 {
        f64::from(count) / self.seconds
    }

    fn lost_percent(&self) -> f64 {
        self.lost_us / self.seconds / 1e4
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.processor.to_string(),
            cell(self.per_second(self.over_hold), 1),
            cell(self.per_second(self.over_turn), 2),
            cell(self.longest_us / 1e3, 2),
            cell(self.lost_percent(), 2),
        ]
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "processor": self.processor,
            "seconds": self.seconds,
            "over_50us": self.over_hold,
            "over_1000us": self.over_turn,
            "longest_us": self.longest_us,
            "lost_percent": self.lost_percent(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_are_counted_by_their_length() {
        let mut watched = Watched {
            processor: 0,
            seconds: 2.0,
            over_hold: 0,
            over_turn: 0,
            longest_us: 0.0,
            lost_us: 0.0,
        };
        [0.1, 49.0, 51.0, 1200.0, 60.0].into_iter().for_each(|us| watched.note(us));
        assert_eq!((watched.over_hold, watched.over_turn), (3, 1));
        assert_eq!(watched.cells(), ["0", "1.5", "0.50", "1.20", "0.07"]);
    }
}
