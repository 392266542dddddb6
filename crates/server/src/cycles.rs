//! The clocks that the engine is given: a cycle counter, CPU time of a thread, Unix time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use engine::execution::engine::Clock;
use rustix::time::{ClockId, clock_gettime};

/// How long the cycle counter is compared with the monotonic clock at start.
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(5);

/// The clocks of this machine.
pub(crate) fn clock() -> Clock {
    Clock { ticks, ns_per_tick_q20: calibrate(), thread_cpu_ns, unix_ms }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the time stamp counter, and reading it changes nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds of a tick, times 2^20.
fn calibrate() -> u64 {
    let (start, from) = (Instant::now(), ticks());
    while start.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (ns, passed) = (start.elapsed().as_nanos(), u128::from(ticks().wrapping_sub(from)));
    ((ns << 20) / passed.max(1)) as u64
}

fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

fn unix_ms() -> i64 {
    // A clock before 1970 counts as 1970: expiry then never triggers early.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
