//! The engine: what all workers share.

use crate::control::{Mailboxes, WakeWorker};
use crate::execution::command::{Command, Flags};
use crate::execution::session::registry::Registry;
use crate::keyspace::Keyspace;
use crate::keyspace::key::ShardBy;
use crate::lanes::{Reaper, SlowLane, WakeLane};
use crate::observe::Stats;
use crate::settings::Settings;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Time, as the server measures it: the engine has no clock of its own.
#[derive(Clone, Copy)]
pub struct Clock {
    /// A fast monotonic counter.
    pub ticks: fn() -> u64,
    /// Nanoseconds of a tick, times 2^20.
    pub ns_per_tick_q20: u64,
    /// CPU time of the calling thread, nanoseconds.
    pub thread_cpu_ns: fn() -> u64,
    /// Unix time, milliseconds.
    pub unix_ms: fn() -> i64,
}

impl Clock {
    /// A number of microseconds in ticks.
    pub fn ticks_of_us(&self, us: u64) -> u64 {
        ((us * 1000) << 20) / self.ns_per_tick_q20.max(1)
    }

    /// A number of ticks in nanoseconds.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q20)) >> 20) as u64
    }
}

/// CLIENT PAUSE: a time until which commands wait.
#[derive(Default)]
pub struct Pause {
    /// Unix milliseconds; 0 when nobody is paused.
    pub(crate) until_ms: AtomicI64,
    /// Whether only writes wait.
    writes_only: AtomicBool,
    /// Two clients may ask at once.
    changing: Mutex<()>,
}

impl Pause {
    /// Pauses until `until_ms`. A pause never ends earlier because of a second one, and a pause of
    /// everything stays one while it lasts.
    pub fn set(&self, until_ms: i64, writes_only: bool, now_ms: i64) {
        let _changing = self.changing.lock();
        let until = self.until_ms.load(Ordering::Relaxed);
        let active = until > now_ms;
        let writes_only = writes_only && (!active || self.writes_only.load(Ordering::Relaxed));
        self.writes_only.store(writes_only, Ordering::Relaxed);
        self.until_ms.store(if active { until.max(until_ms) } else { until_ms }, Ordering::Relaxed);
    }

    /// Whether a command with these flags waits now.
    pub fn blocks(&self, flags: Flags, now_ms: i64) -> bool {
        now_ms < self.until_ms.load(Ordering::Relaxed)
            && (flags.has(Flags::WRITE) || !self.writes_only.load(Ordering::Relaxed))
    }
}

/// How an engine is made.
pub struct Options {
    /// Threads that execute commands.
    pub workers: usize,
    /// Databases.
    pub databases: usize,
    /// How keys choose their shard.
    pub shard_by: ShardBy,
    /// The server's clocks.
    pub clock: Clock,
    /// Wakes a worker's thread.
    pub wake_worker: WakeWorker,
    /// Wakes the reaper's thread.
    pub wake_reaper: WakeLane,
    /// Wakes the slow lane's thread.
    pub wake_slow_lane: WakeLane,
    /// What CONFIG GET shows.
    pub settings: Settings,
    /// What INFO says of the process.
    pub process: Process,
}

/// What INFO says of the process that the engine runs in.
pub struct Process {
    /// Process id.
    pub id: u32,
    /// Forty random hexadecimal digits.
    pub run_id: String,
    /// The port that clients reach.
    pub port: u16,
    /// The path of the program.
    pub executable: String,
    /// The name of the operating system.
    pub os: String,
    /// Bytes allocated, as the allocator counts them.
    pub allocated_bytes: fn() -> u64,
    /// Resident memory of the process, bytes.
    pub resident_bytes: fn() -> u64,
    /// Memory of the machine, bytes.
    pub machine_bytes: u64,
}

/// The commands, as the layer above defines them.
#[derive(Clone, Copy)]
pub struct CommandTable {
    /// All of them, in the order of their names.
    pub all: &'static [Command],
    /// Finds one by its name, in any case.
    pub find: fn(&[u8]) -> Option<&'static Command>,
}

impl CommandTable {
    /// The place of a command in the table, by which its counters are kept.
    #[inline]
    pub fn position(&self, command: &'static Command) -> usize {
        let offset = std::ptr::from_ref(command).addr() - self.all.as_ptr().addr();
        offset / size_of::<Command>()
    }
}

/// What all workers share.
pub struct Engine {
    /// The commands.
    pub table: CommandTable,
    /// The data.
    pub keyspace: Keyspace,
    /// The counters.
    pub stats: Stats,
    /// Where values go that left the keyspace.
    pub reaper: Reaper,
    /// Where stores are computed.
    pub slow_lane: SlowLane,
    /// How workers are told something.
    pub mailboxes: Mailboxes,
    /// The open sessions.
    pub registry: Registry,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// CONFIG.
    pub settings: Settings,
    /// The server's clocks.
    pub clock: Clock,
    /// The process.
    pub process: Process,
    /// When the engine was made, Unix milliseconds.
    pub started_ms: i64,
}

impl Engine {
    /// An empty engine.
    pub fn new(options: Options, table: CommandTable) -> Engine {
        let Options { workers, databases, shard_by, clock, settings, process, .. } = options;
        Engine {
            keyspace: Keyspace::new(workers, databases, shard_by),
            stats: Stats::new(workers, table.all.len()),
            reaper: Reaper::new(options.wake_reaper),
            slow_lane: SlowLane::new(options.wake_slow_lane),
            mailboxes: Mailboxes::new(workers, options.wake_worker),
            registry: Registry::default(),
            pause: Pause::default(),
            started_ms: (clock.unix_ms)(),
            table,
            settings,
            clock,
            process,
        }
    }
}
