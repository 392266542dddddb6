//! The threads of the slow lane and of the reaper.
//!
//! They run at a lower priority than the workers and offer their processor after every step, some
//! tens of microseconds: what is left over is theirs.

use std::sync::Arc;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use engine::execution::engine::Engine;
use rustix::process::setpriority_process;

/// Niceness of both lanes: a share of about a tenth beside a busy worker on the same processor.
const NICENESS: i32 = 10;

/// How long a lane sleeps when nobody wakes it. Only a bound on the cost of a lost wake-up.
const SLEEP: Duration = Duration::from_secs(1);

/// Starts a thread that serves until the process ends.
pub(crate) fn start(
    name: &str,
    engine: Arc<Engine>,
    serve: fn(&Engine) -> bool,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(move || {
        lower_priority();
        loop {
            if serve(&engine) {
                // The scheduler protects a running thread's slice of milliseconds, whatever its
                // priority, from threads that wake up; so it is given back after each step.
                thread::yield_now();
            } else {
                thread::park_timeout(SLEEP);
            }
        }
    })
}

/// Lowers the priority of the calling thread only: on Linux a thread has its own.
pub(crate) fn lower_priority() {
    let thread = rustix::thread::gettid();
    // Without the right to do so the lane is merely less polite.
    let _ = setpriority_process(Some(thread), NICENESS);
}

/// Wakes a thread that is set later, when it has been started.
#[derive(Clone, Default)]
pub(crate) struct LateThread(Arc<std::sync::OnceLock<Thread>>);

impl LateThread {
    /// Says which thread to wake.
    pub(crate) fn set(&self, thread: &Thread) {
        // Set once per lane, right after its start.
        let _ = self.0.set(thread.clone());
    }

    /// Wakes the thread if it has been started.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}
