//! What the server knows about itself: counters and histograms, one set per worker.
//!
//! Only the owning worker writes a set, with plain loads and stores of atomics; whoever asks sums
//! over the sets. No latch is involved on either side.

pub mod stalls;

use crossbeam_utils::CachePadded;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use stalls::{Histogram, Longest};

/// A counter that one thread writes and any thread reads.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the owning worker calls this.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Back to zero (CONFIG RESETSTAT); a count in the same instant may be lost.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What one command has cost on one worker.
#[derive(Default)]
pub struct CommandStats {
    /// Executions.
    pub calls: Counter,
    /// Time spent in executions, in ticks of the server's cycle counter.
    pub ticks: Counter,
    /// Refused before execution: arity, unknown option of the table, paused.
    pub rejected: Counter,
    /// Answered with an error by the command itself.
    pub failed: Counter,
}

/// Everything that one worker counts.
pub struct WorkerStats {
    /// By position in the command table.
    pub commands: Box<[CommandStats]>,
    /// Commands executed.
    pub executed: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections open now on this worker.
    pub connections: Counter,
    /// Bytes read from clients.
    pub bytes_in: Counter,
    /// Bytes written to clients.
    pub bytes_out: Counter,
    /// Keys removed because their time had come.
    pub expired: Counter,
    /// Lookups that found the key.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Commands that met a lock and parked their connection.
    pub parked: Counter,
    /// Stores computed in the slow lane that had to start again.
    pub restarts: Counter,
    /// Time of each command in which latches may have been held, an upper bound of each hold.
    pub holds: Histogram,
    /// Units of work of each hold's largest.
    pub hold_units: Histogram,
    /// Wall time of each turn.
    pub turns: Histogram,
    /// CPU time of each turn.
    pub turns_cpu: Histogram,
    /// The longest holds, with the command.
    pub longest: Mutex<Longest>,
}

impl WorkerStats {
    fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            executed: Counter::default(),
            errors: Counter::default(),
            accepted: Counter::default(),
            connections: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            expired: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            parked: Counter::default(),
            restarts: Counter::default(),
            holds: Histogram::default(),
            hold_units: Histogram::default(),
            turns: Histogram::default(),
            turns_cpu: Histogram::default(),
            longest: Mutex::default(),
        }
    }
}

/// The counters of all workers.
pub struct Stats {
    /// One set per worker.
    pub workers: Box<[CachePadded<WorkerStats>]>,
}

impl Stats {
    /// Counters for `workers` workers and a table of `commands` commands.
    pub fn new(workers: usize, commands: usize) -> Stats {
        Stats {
            workers: (0..workers).map(|_| CachePadded::new(WorkerStats::new(commands))).collect(),
        }
    }

    /// The sum of one counter over the workers.
    pub fn sum(&self, counter: impl Fn(&WorkerStats) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).fold(0, u64::wrapping_add)
    }
}
