//! The two lanes beside the workers: the slow lane computes, the reaper frees. Neither takes a latch.
//!
//! Both are queues of resumable work in steps of less than a millisecond, served in turn, so that
//! no job waits for another to end. The server gives each a thread; the engine only says what to do.

use std::collections::VecDeque;

use resp::Request;
use structures::object::{Object, ObjectRemains};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nodes that are freed in one step of the reaper: some tens of microseconds.
pub const REAPER_STEP_NODES: usize = 256;

/// Pieces of garbage beyond which a connection that adds one frees a bounded share itself.
pub const REAPER_BACKLOG_MAX: usize = 1024;

/// Nodes that a connection frees itself, after its latches, when the reaper is behind.
pub const OWN_SHARE_NODES: usize = 64;

/// Something that may be large and must be freed in pieces.
pub trait Discard: Send {
    /// Frees about `nodes` nodes. Returns true when nothing large is left.
    fn discard_step(&mut self, nodes: usize) -> bool;
}

/// A value that left the keyspace.
pub struct DroppedObject(ObjectRemains);

impl DroppedObject {
    /// A value that nobody reads any more.
    pub fn new(object: Object) -> DroppedObject {
        DroppedObject(object.into_remains())
    }
}

impl Discard for DroppedObject {
    fn discard_step(&mut self, nodes: usize) -> bool {
        self.0.drop_step(nodes)
    }
}

/// A request that was too large for a read buffer.
pub struct DroppedRequest(pub Request);

impl Discard for DroppedRequest {
    fn discard_step(&mut self, nodes: usize) -> bool {
        self.0.drop_step(nodes)
    }
}

/// A computation that goes on where it stopped.
pub trait Job: Send {
    /// Works for some tens of microseconds. Returns true when it is finished; it has then told its
    /// connection.
    fn step(&mut self) -> bool;
}

/// Wakes the thread that serves a lane.
pub type WakeLane = Box<dyn Fn() + Send + Sync>;

/// A queue of work that one thread serves in turn.
pub struct Lane<T: ?Sized> {
    queue: Mutex<VecDeque<Box<T>>>,
    idle: AtomicBool,
    wake: WakeLane,
    /// Steps done since the server started.
    pub steps: AtomicU64,
    /// Pieces of work finished.
    pub finished: AtomicU64,
}

/// Where the values go that left the keyspace.
pub type Reaper = Lane<dyn Discard>;

/// Where stores are computed.
pub type SlowLane = Lane<dyn Job>;

impl<T: ?Sized> Lane<T> {
    /// An empty lane. `wake` is called when work arrives while the lane is idle.
    pub fn new(wake: WakeLane) -> Lane<T> {
        Lane {
            queue: Mutex::new(VecDeque::new()),
            idle: AtomicBool::new(true),
            wake,
            steps: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        }
    }

    /// Adds a piece of work at the end.
    pub fn push(&self, work: Box<T>) {
        self.queue.lock().push_back(work);
        if self.idle.swap(false, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// Pieces of work that wait.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Serves the piece of work at the front once. Returns false when there was none: the thread
    /// may sleep until it is woken.
    fn serve(&self, step: impl FnOnce(&mut T) -> bool) -> bool {
        let next = self.queue.lock().pop_front();
        let Some(mut work) = next else {
            self.idle.store(true, Ordering::Release);
            // Work that came between the look and the store has seen a busy lane and woke nobody.
            #[cfg(not(all(shuttle, planted_bug = "reaper")))]
            return !self.is_empty();
            #[cfg(all(shuttle, planted_bug = "reaper"))]
            return false;
        };
        self.steps.fetch_add(1, Ordering::Relaxed);
        if step(&mut work) {
            self.finished.fetch_add(1, Ordering::Relaxed);
        } else {
            self.queue.lock().push_back(work);
        }
        true
    }
}

impl Reaper {
    /// Frees a piece of the oldest garbage. Returns false when there is none.
    pub fn reap(&self) -> bool {
        self.serve(|garbage| garbage.discard_step(REAPER_STEP_NODES))
    }

    /// Takes something that left the keyspace. A caller that produces faster than the reaper frees
    /// is slowed by a bounded share of the work. Never called under a latch.
    pub fn discard(&self, mut garbage: Box<dyn Discard>) {
        if self.len() > REAPER_BACKLOG_MAX && garbage.discard_step(OWN_SHARE_NODES) {
            return;
        }
        self.push(garbage);
    }
}

impl SlowLane {
    /// Advances the oldest job by a step. Returns false when there is none.
    pub fn advance(&self) -> bool {
        self.serve(|job| job.step())
    }
}
