//! Pacers: one thread per processor that ends other threads' time slices while something long runs.
//!
//! Where clients share the server's few processors, the system's scheduler is what delays them: a
//! client that computes on a long reply keeps its processor until the scheduler's next tick, up to
//! 4 ms, although another client's process, or a worker, waits for that processor and could go on
//! at once. A thread with a shorter slice that wakes up interrupts the running one, and when it
//! sleeps again the scheduler chooses anew, by fairness. That is all that a pacer does. What was
//! measured is in `docs/decisions/0008-pacers.md`.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// Pause between two interruptions.
const PERIOD: Duration = Duration::from_micros(250);

/// Interruptions after the last sign of long work: 20 ms.
const PERIODS: u32 = 80;

/// Processors up to which clients are expected to live beside the server.
const PROCESSORS_MAX: u32 = 4;

/// The slice that a pacer asks for, the least that Linux grants, nanoseconds.
const SLICE_NS: u64 = 100_000;

/// The pacers of the process.
#[derive(Clone, Default)]
pub(crate) struct Pacers {
    threads: Arc<[Thread]>,
}

impl Pacers {
    /// Starts them on a machine of few processors.
    pub(crate) fn start() -> Pacers {
        let Ok(allowed) = sched_getaffinity(None) else { return Pacers::default() };
        if allowed.count() > PROCESSORS_MAX {
            return Pacers::default();
        }
        let processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        Pacers { threads: processors.filter_map(start_one).collect() }
    }

    /// Something long runs: a worker's turn has left work behind.
    #[inline]
    pub(crate) fn note_long_work(&self) {
        self.threads.iter().for_each(Thread::unpark);
    }
}

/// Without a pacer clients wait for their processor as long as the system lets them: nothing fails.
fn start_one(processor: usize) -> Option<Thread> {
    let pace = move || {
        let mut only = CpuSet::new();
        only.set(processor);
        if sched_setaffinity(None, &only).is_err() || !choose_slice() {
            return;
        }
        // Sleeps would otherwise end up to 50 us late. A failure costs no more than that.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        loop {
            // Signs given while the loop below ran end the wait at once.
            thread::park();
            for _ in 0..PERIODS {
                thread::sleep(PERIOD);
            }
        }
    };
    let started = thread::Builder::new().name(format!("pacer-{processor}")).spawn(pace);
    started.ok().map(|handle| handle.thread().clone())
}

/// Gives the calling thread a short slice. Returns whether the scheduler knows of such (Linux 6.12
/// and later): without it a pacer interrupts nobody.
#[cfg(target_os = "linux")]
fn choose_slice() -> bool {
    /// `struct sched_attr` of sched_setattr(2), first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let size = size_of::<Attributes>() as u32;
    let wanted = Attributes { size, runtime: SLICE_NS, ..Attributes::default() };
    let mut granted = Attributes::default();
    // SAFETY: both calls concern the calling thread (0) and one structure that lives longer than
    // they; the first only reads it, the second writes `size` bytes of it at most.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) == 0
            && libc::syscall(libc::SYS_sched_getattr, 0, &raw mut granted, size, 0) == 0
    };
    done && granted.runtime == SLICE_NS
}

#[cfg(not(target_os = "linux"))]
fn choose_slice() -> bool {
    false
}
