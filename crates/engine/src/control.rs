//! Control: one primitive, a broadcast that every worker acknowledges at a command boundary.
//!
//! PAUSE, KILL and CONFIG SET use it: the change is made first, then a barrier is sent; when all
//! have passed it, the caller answers. Commands in one hold that began before the change are then
//! finished, and so are those in several steps that the barrier asks for: [`Awaited`]. The caller's
//! connection is parked meanwhile, its thread is not.

use std::collections::VecDeque;

use crate::keyspace::locks::Address;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

/// Something that a worker does between two commands.
pub enum Message {
    /// A parked connection may go on: a lock was granted, a job is finished, a barrier passed.
    Resume(u64),
    /// Close this session, whatever it is doing.
    Kill(u64),
    /// Acknowledge: `Worker::acknowledge`.
    Barrier(Arc<Barrier>),
    /// Leave the loop.
    Shutdown,
}

/// Which commands in several steps must be finished before a worker passes a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// None: the change is for later commands.
    Nothing,
    /// Writes whose clients are gone.
    Orphans,
    /// All writes.
    Writes,
}

/// Counts the workers that have not passed yet.
pub struct Barrier {
    left: AtomicUsize,
    address: Address,
    awaited: Awaited,
}

impl Barrier {
    /// Whether every worker has passed.
    pub fn is_passed(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// What a worker waits for before it passes.
    pub(crate) fn awaited(&self) -> Awaited {
        self.awaited
    }

    /// The calling worker is between two commands, and what the barrier awaits is finished there.
    /// Returns whom to wake when it was the last.
    pub(crate) fn pass(&self) -> Option<Address> {
        #[cfg(all(shuttle, planted_bug = "control"))]
        self.left.store(self.left.load(Ordering::Acquire) + 1, Ordering::Release);
        #[cfg(all(shuttle, planted_bug = "control"))]
        self.left.fetch_sub(1, Ordering::AcqRel);
        (self.left.fetch_sub(1, Ordering::AcqRel) == 1).then_some(self.address)
    }
}

/// Wakes a worker that may be asleep in its poll.
pub type WakeWorker = Box<dyn Fn(usize) + Send + Sync>;

/// The workers' mail boxes.
pub struct Mailboxes {
    boxes: Box<[Mutex<VecDeque<Message>>]>,
    wake: WakeWorker,
}

impl Mailboxes {
    /// Empty boxes for `workers` workers.
    pub fn new(workers: usize, wake: WakeWorker) -> Mailboxes {
        Mailboxes { boxes: (0..workers).map(|_| Mutex::default()).collect(), wake }
    }

    /// Sends a message to a worker, which may be the caller itself.
    pub fn send(&self, worker: usize, message: Message) {
        self.boxes[worker].lock().push_back(message);
        (self.wake)(worker);
    }

    /// Lets a parked connection go on.
    pub fn resume(&self, address: Address) {
        self.send(address.worker, Message::Resume(address.session));
    }

    /// The oldest message for `worker`.
    pub fn receive(&self, worker: usize) -> Option<Message> {
        self.boxes[worker].lock().pop_front()
    }

    /// Asks every worker to acknowledge; `address` is resumed when all have.
    pub fn barrier(&self, address: Address, awaited: Awaited) -> Arc<Barrier> {
        let left = AtomicUsize::new(self.boxes.len());
        let barrier = Arc::new(Barrier { left, address, awaited });
        for worker in 0..self.boxes.len() {
            self.send(worker, Message::Barrier(Arc::clone(&barrier)));
        }
        barrier
    }

    /// Closes sessions of a worker.
    pub(crate) fn kill(&self, worker: usize, sessions: impl Iterator<Item = u64>) {
        self.boxes[worker].lock().extend(sessions.map(Message::Kill));
        (self.wake)(worker);
    }
}
