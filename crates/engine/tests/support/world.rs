//! An engine with its lanes, and what must hold when all of its threads have come to rest.

use std::collections::BTreeSet;

use engine::commands;
use engine::effects::Merger;
use engine::execution::engine::{Clock, Engine, Options, Process};
use engine::keyspace::hold::Scope;
use engine::keyspace::key::ShardBy;
use engine::keyspace::locks::NOBODY;
use engine::lanes::WakeLane;
use engine::settings::Settings;
use resp::reply::Reply;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

use super::node::{Client, Node, Replies};
use super::{BEGIN_MS, now_ms, set_now_ms, ticks};

/// Nanoseconds of a tick: three looks at the clock are the time that a command gets at once.
const TICK_NS: u64 = 10_000;

/// Wakes a thread that sleeps, or keeps it from falling asleep: an eventfd, an unpark.
#[derive(Clone, Default)]
pub(crate) struct Signal(Arc<(Mutex<bool>, Condvar)>);

impl Signal {
    /// Wakes whoever waits now or next.
    pub(crate) fn set(&self) {
        let (is_set, changed) = &*self.0;
        *is_set.lock().unwrap() = true;
        changed.notify_one();
    }

    /// Sleeps until the signal is set, and takes it.
    pub(crate) fn wait(&self) {
        let (is_set, changed) = &*self.0;
        let mut is_set = is_set.lock().unwrap();
        while !*is_set {
            is_set = changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

/// Shards. No thread is ever suspended while it holds this lock, so it is not shuttle's.
pub(crate) type Named = Arc<std::sync::Mutex<BTreeSet<u16>>>;

/// Which threads serve the lanes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// None: what is pushed stays where it is.
    Idle,
    /// One each.
    Served,
}

/// An engine and the threads around it.
pub(crate) struct World {
    /// What is under test.
    pub(crate) engine: Arc<Engine>,
    workers: Box<[Signal]>,
    /// The shards of all words that were sent, keys or not.
    named: Named,
    ending: Arc<AtomicBool>,
    lanes: Vec<(Signal, JoinHandle<()>)>,
}

impl World {
    /// An empty engine.
    pub(crate) fn new(workers: usize, databases: usize, lanes: Lanes) -> World {
        let signals: Box<[Signal]> = (0..workers).map(|_| Signal::default()).collect();
        let (reaper, slow_lane) = (Signal::default(), Signal::default());
        let engine = Arc::new(engine(databases, signals.clone(), &reaper, &slow_lane));
        let ending = Arc::new(AtomicBool::new(false));
        let (named, threads) = (Named::default(), Vec::new());
        let mut world = World { engine, workers: signals, named, ending, lanes: threads };
        if lanes == Lanes::Served {
            world.serve(reaper, |engine| engine.reaper.reap());
            world.serve(slow_lane, |engine| engine.slow_lane.advance());
        }
        world
    }

    fn serve(&mut self, signal: Signal, step: fn(&Engine) -> bool) {
        let (engine, ending) = (Arc::clone(&self.engine), Arc::clone(&self.ending));
        let own = signal.clone();
        let thread = thread::spawn(move || {
            loop {
                // Asked before the last look, so that nothing comes after it.
                let is_last = ending.load(Ordering::SeqCst);
                while step(&engine) {}
                if is_last {
                    break;
                }
                own.wait();
            }
        });
        self.lanes.push((signal, thread));
    }

    /// A worker with its clients, to be run on the calling thread.
    pub(crate) fn node(&self, worker: usize, clients: Vec<Client>) -> Node {
        let (engine, signal) = (Arc::clone(&self.engine), self.workers[worker].clone());
        Node::new(engine, worker, signal, self.named.clone(), clients)
    }

    /// Runs a worker with its clients on a thread of its own until all of them are finished.
    pub(crate) fn spawn(&self, worker: usize, clients: Vec<Client>) -> JoinHandle<Vec<Replies>> {
        let node = self.node(worker, clients);
        thread::spawn(move || node.run())
    }

    /// One client on worker 0, while no other thread runs that worker. Returns its replies.
    pub(crate) fn ask<L: AsRef<str>>(&self, lines: &[L]) -> Replies {
        let mut replies = self.node(0, vec![Client::new(lines)]).run();
        replies.remove(0)
    }

    /// A digest of all data.
    pub(crate) fn digest(&self) -> Reply {
        self.ask(&["DEBUG DIGEST"]).remove(0)
    }

    /// Asserts that all effects are in `stream` and what the merger still finds, and that an empty
    /// engine that executes them comes to the same data. No worker runs.
    pub(crate) fn check_effects(&self, merger: &mut Merger, stream: &mut Vec<u8>) {
        let outlet = self.engine.keyspace.outlet();
        merger.drain(outlet, stream);
        assert_eq!(merger.waiting(), 0, "an effect is missing");
        // A replica does not remove a key because its time has come, but because it is told so.
        let digest = self.digest();
        let at_ms = now_ms();
        set_now_ms(BEGIN_MS);
        let replica = World::new(1, self.engine.keyspace.databases(), Lanes::Served);
        let replies = replica.node(0, vec![Client::of_stream(stream)]).run();
        let text = String::from_utf8_lossy(stream);
        assert!(!replies[0].iter().any(|reply| matches!(reply, Reply::Error(_))), "{text}");
        assert_eq!(replica.digest(), digest, "the effects: {text}");
        replica.rest();
        set_now_ms(at_ms);
    }

    /// Runs every worker with its clients until all clients are finished. A worker that has none any
    /// more still receives messages.
    pub(crate) fn run(&self, clients: Vec<Vec<Client>>) -> Vec<Vec<Replies>> {
        let busy = Arc::new(AtomicUsize::new(clients.len()));
        let run = |(worker, clients)| {
            let node = self.node(worker, clients).among(busy.clone(), self.workers.clone());
            thread::spawn(move || node.run())
        };
        let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// Lets so much time pass that all keys with an expiry are gone, and takes them out.
    pub(crate) fn expire_all(&self) {
        set_now_ms(now_ms() + 1_000_000_000);
        for worker in 0..self.workers.len() {
            self.node(worker, vec![Client::new(&["PING"])]).run();
        }
    }

    /// Ends the lanes when their work is done and checks what must hold at rest. No worker runs.
    pub(crate) fn rest(mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let is_served = !self.lanes.is_empty();
        for (signal, thread) in self.lanes.drain(..) {
            signal.set();
            thread.join().unwrap();
        }
        if is_served {
            assert!(self.engine.reaper.is_empty() && self.engine.slow_lane.is_empty());
        }
        for database in 0..self.engine.keyspace.databases() as u8 {
            self.check_database(database);
        }
    }

    /// Nothing is locked, and the counters that nobody latches agree with the tables.
    fn check_database(&self, index: u8) {
        let scope = Scope { worker: 0, database: index, owner: NOBODY, now_ms: now_ms() };
        let database = self.engine.keyspace.current(scope);
        assert!(!database.is_watched(), "a watch is left in database {index}");
        let (mut keys, mut from) = (0, 0);
        while let Some(shard) = database.next_non_empty(from) {
            let part = database.shard(shard).lock();
            assert!(!part.table.is_empty(), "shard {shard} of database {index} is listed");
            keys += part.table.len() as u64;
            from = shard + 1;
        }
        assert_eq!(database.len().0, keys, "DBSIZE of database {index}");
        for &shard in self.named.lock().unwrap().iter() {
            let part = database.shard(shard).lock();
            assert!(part.locks.is_empty(), "a key lock is left in shard {shard} of {index}");
            keys -= part.table.len() as u64;
        }
        assert_eq!(keys, 0, "a shard with keys is not listed in database {index}");
    }
}

fn engine(databases: usize, workers: Box<[Signal]>, reaper: &Signal, slow: &Signal) -> Engine {
    let wake = |signal: &Signal| -> WakeLane {
        let signal = signal.clone();
        Box::new(move || signal.set())
    };
    let clock =
        Clock { ticks, ns_per_tick_q20: TICK_NS << 20, thread_cpu_ns: || 0, unix_ms: now_ms };
    let process = Process {
        id: 1,
        run_id: String::new(),
        port: 0,
        executable: String::new(),
        os: String::new(),
        allocated_bytes: || 0,
        resident_bytes: || 0,
        machine_bytes: 0,
    };
    let options = Options {
        workers: workers.len(),
        databases,
        shard_by: ShardBy::Hash,
        clock,
        wake_worker: Box::new(move |worker| workers[worker].set()),
        wake_reaper: wake(reaper),
        wake_slow_lane: wake(slow),
        settings: Settings::default(),
        process,
    };
    Engine::new(options, commands::table())
}
