//! `--effect-stream FILE`: all effects in their order, as commands that any Redis server takes.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::execution::engine::Engine;

/// How often the stream is written out.
const PERIOD: Duration = Duration::from_millis(2);

/// The thread that writes the stream.
pub(crate) struct EffectStream {
    thread: JoinHandle<()>,
    ending: Arc<AtomicBool>,
}

impl EffectStream {
    /// Creates the file and starts to write. Called before the first command.
    pub(crate) fn start(path: &Path, engine: Arc<Engine>) -> std::io::Result<EffectStream> {
        let mut file = File::create(path)?;
        let mut merger = engine.keyspace.outlet().attach();
        let ending = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ending);
        let thread = thread::Builder::new().name("effects".into()).spawn(move || {
            let mut bytes = Vec::new();
            loop {
                // Asked before the last look, so that nothing comes after it.
                let last = end.load(Ordering::Acquire);
                merger.drain(engine.keyspace.outlet(), &mut bytes);
                if !bytes.is_empty() {
                    if file.write_all(&bytes).is_err() {
                        eprintln!("the effect stream cannot be written: is the disk full?");
                        return;
                    }
                    bytes.clear();
                } else if last {
                    return;
                } else {
                    thread::sleep(PERIOD);
                }
            }
        })?;
        Ok(EffectStream { thread, ending })
    }

    /// Writes what is left. No command may be running any more.
    pub(crate) fn end(self) {
        self.ending.store(true, Ordering::Release);
        // A panic in there has been reported already.
        let _ = self.thread.join();
    }
}
