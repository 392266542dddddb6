//! A client that does nothing but small reads, to see how long others have to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::server::Server;

/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait that a test of an unoptimised build on a shared machine accepts. The promise
/// itself is about a thousandth of it and is measured by the benchmarks.
pub const WAIT_MAX: Duration = Duration::from_millis(1000);

/// A probe that reads until it is stopped.
pub struct Probe {
    stop: Arc<AtomicBool>,
    worker: JoinHandle<Duration>,
}

impl Probe {
    /// Starts reading a small key on a connection of its own.
    pub fn start(server: &Server) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = server.connect();
        client.line("SET probe value");
        let stopped = Arc::clone(&stop);
        let worker = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            loop {
                let start = Instant::now();
                client.line("GET probe");
                longest = longest.max(start.elapsed());
                if stopped.load(Ordering::Relaxed) {
                    return longest;
                }
                thread::sleep(PAUSE);
            }
        });
        Probe { stop, worker }
    }

    /// Stops and checks the longest wait against [`WAIT_MAX`]; `during` names what went on.
    pub fn finish(self, during: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.worker.join().expect("the probe itself does not fail");
        eprintln!("longest wait of another client during {during}: {longest:?}");
        assert!(longest < WAIT_MAX, "another client waited {longest:?} during {during}");
    }
}
