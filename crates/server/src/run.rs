//! Starting and stopping the server.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use engine::control::Message;
use engine::execution::engine::{Engine, Options as EngineOptions, Process};
use engine::keyspace::key::ShardBy;
use engine::settings::Settings;
use mio::{Poll, Waker};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::effect_stream::EffectStream;
use crate::lanes::{self, LateThread};
use crate::pacer::Pacers;
use crate::worker::{Inbox, Loop};
use crate::{allocator, cycles, listener, memory};

/// How the server is started.
pub struct Options {
    /// The TCP port.
    pub port: u16,
    /// The addresses to listen at.
    pub bind: Vec<IpAddr>,
    /// The working directory.
    pub dir: PathBuf,
    /// Threads that execute commands.
    pub workers: usize,
    /// Databases.
    pub databases: usize,
    /// How keys choose their shard.
    pub shard_by: ShardBy,
    /// Where the stream of effects is written to.
    pub effect_stream: Option<PathBuf>,
    /// What CONFIG GET shows.
    pub settings: Settings,
}

/// Why the server did not start.
#[derive(Debug)]
pub struct StartError {
    what: String,
    cause: io::Error,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.what, self.cause)
    }
}

impl std::error::Error for StartError {}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    |cause| StartError { what: what.into(), cause }
}

/// How long running turns may take to end at shutdown.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until SIGTERM or SIGINT. `log` takes the lines that an operator sees.
///
/// # Errors
/// The directory, a listening address, or a thread cannot be had.
pub fn run(options: Options, log: fn(&str)) -> Result<(), StartError> {
    let dir = options.dir.display().to_string();
    std::env::set_current_dir(&options.dir)
        .map_err(failed(format!("cannot work in the directory {dir} (--dir)")))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed("cannot catch signals"))?;
    let mut listeners = Vec::new();
    for &address in &options.bind {
        let what = format!("cannot listen at {address} port {} (--bind, --port)", options.port);
        listeners.push(listener::listen(address, options.port).map_err(failed(what))?);
    }
    let polls: Vec<Poll> = (0..options.workers)
        .map(|_| Poll::new())
        .collect::<io::Result<_>>()
        .map_err(failed("cannot poll sockets"))?;
    let wakers: Vec<Waker> = polls
        .iter()
        .map(|poll| Waker::new(poll.registry(), Loop::WAKER))
        .collect::<io::Result<_>>()
        .map_err(failed("cannot wake workers"))?;
    let (reaper, slow_lane) = (LateThread::default(), LateThread::default());
    let (effects, port) = (options.effect_stream.clone(), options.port);
    let engine = Arc::new(new_engine(options, wakers, &reaper, &slow_lane));
    let stream = effects
        .map(|path| EffectStream::start(&path, Arc::clone(&engine)))
        .transpose()
        .map_err(failed("cannot write the effect stream (--effect-stream)"))?;
    start_lane("reaper", &engine, |engine| engine.reaper.reap(), &reaper)?;
    start_lane("slow-lane", &engine, |engine| engine.slow_lane.advance(), &slow_lane)?;
    let workers = start_workers(&engine, polls, listeners)?;
    log(&format!("Ready to accept connections on port {port}"));
    signals.forever().next();
    log("Shutting down: no more commands are executed");
    for worker in 0..workers.len() {
        engine.mailboxes.send(worker, Message::Shutdown);
    }
    wait_for(workers);
    if let Some(stream) = stream {
        stream.end();
    }
    // Memory is not torn down: with millions of keys that would take seconds for nothing.
    log("Bye");
    Ok(())
}

fn wait_for(workers: Vec<thread::JoinHandle<()>>) {
    let deadline = std::time::Instant::now() + GRACE;
    while workers.iter().any(|worker| !worker.is_finished()) && std::time::Instant::now() < deadline
    {
        thread::sleep(Duration::from_millis(1));
    }
}

fn start_lane(
    name: &str,
    engine: &Arc<Engine>,
    serve: fn(&Engine) -> bool,
    late: &LateThread,
) -> Result<(), StartError> {
    let thread = lanes::start(name, Arc::clone(engine), serve)
        .map_err(failed(format!("cannot start the thread {name}")))?;
    late.set(thread.thread());
    Ok(())
}

fn start_workers(
    engine: &Arc<Engine>,
    polls: Vec<Poll>,
    listeners: Vec<mio::net::TcpListener>,
) -> Result<Vec<thread::JoinHandle<()>>, StartError> {
    let inboxes: Arc<[Inbox]> = polls.iter().map(|_| Inbox::default()).collect();
    let (mut listeners, pacers) = (Some(listeners), Pacers::start());
    let mut threads = Vec::new();
    for (id, poll) in polls.into_iter().enumerate() {
        let own = listeners.take().unwrap_or_default();
        let worker =
            Loop::new(Arc::clone(engine), id, poll, own, Arc::clone(&inboxes), pacers.clone())
                .map_err(failed("cannot poll the listening sockets"))?;
        let thread = thread::Builder::new()
            .name(format!("worker-{id}"))
            .spawn(move || worker.run())
            .map_err(failed("cannot start a worker's thread"))?;
        threads.push(thread);
    }
    Ok(threads)
}

fn new_engine(
    options: Options,
    wakers: Vec<Waker>,
    reaper: &LateThread,
    slow_lane: &LateThread,
) -> Engine {
    structures::hash::set_seed(random_seed());
    let (reaper, slow_lane) = (reaper.clone(), slow_lane.clone());
    let made = EngineOptions {
        workers: options.workers,
        databases: options.databases,
        shard_by: options.shard_by,
        clock: cycles::clock(),
        // A waker fails only when the system is out of memory; the worker then looks by itself.
        wake_worker: Box::new(move |worker| drop(wakers[worker].wake())),
        wake_reaper: Box::new(move || reaper.wake()),
        wake_slow_lane: Box::new(move || slow_lane.wake()),
        settings: options.settings,
        process: Process {
            id: std::process::id(),
            run_id: (0..5).map(|_| format!("{:08x}", random_seed() as u32)).collect(),
            port: options.port,
            executable: std::env::current_exe()
                .map_or_else(|_| String::new(), |path| path.display().to_string()),
            os: std::env::consts::OS.to_owned(),
            allocated_bytes: allocator::allocated_bytes,
            resident_bytes: memory::resident_bytes,
            machine_bytes: memory::machine_bytes(),
        },
    };
    Engine::new(made, engine::commands::table())
}

fn random_seed() -> u64 {
    // Without a source of randomness the seed is the time: worse against crafted keys, no more.
    getrandom::u64().unwrap_or_else(|_| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    })
}
