//! Key locks: what a command takes that cannot finish within the budget of one latch hold.
//!
//! A shard has one [`KeyLocks`], empty in the normal case and then one load to check. A lock names a
//! key, not an entry: a key that does not exist can be locked. Locks are granted first in, first
//! out; whoever waits is woken through its [`Ticket`], never by blocking a thread.
//!
//! Invariants: a lock in the table has a holder; a queue's head conflicts with the holders (else it
//! would have been granted). The map is a B-tree so that no insertion ever rehashes the whole.

use std::collections::{BTreeMap, VecDeque};

use structures::work;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How a key or a database is locked, or what a command wants to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading: any number at once.
    Shared,
    /// Writing: alone.
    Exclusive,
}

/// Names the holder of locks: one number per lock set, never used again. [`NOBODY`] for commands
/// that hold none.
pub type Owner = u64;

/// The owner of commands that hold no locks.
pub const NOBODY: Owner = 0;

/// Where a parked connection lives: what a wake-up is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The worker that owns the connection.
    pub worker: usize,
    /// The session's number, unique for the life of the server.
    pub session: u64,
}

/// One wait for one lock: set by whoever grants it, read by the waiter after its wake-up.
#[derive(Debug)]
pub struct Ticket {
    granted: AtomicBool,
    address: Address,
}

impl Ticket {
    /// A ticket that has not been granted yet.
    pub fn new(address: Address) -> Arc<Ticket> {
        Arc::new(Ticket { granted: AtomicBool::new(false), address })
    }

    /// Whether the lock is now held. Acquire: what the former holder wrote is visible.
    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    fn grant(&self) -> Address {
        self.granted.store(true, Ordering::Release);
        self.address
    }
}

/// The state of one lock, shared by key locks and the database-wide lock.
#[derive(Default)]
pub(crate) struct Lock {
    exclusive: Owner,
    shared: usize,
    queue: VecDeque<Waiting>,
}

struct Waiting {
    owner: Owner,
    access: Access,
    ticket: Arc<Ticket>,
}

/// What became of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is held now.
    Granted,
    /// It is queued; the ticket's address is woken when it is granted.
    Queued,
}

impl Lock {
    /// Takes the lock or queues behind those who came first.
    pub(crate) fn acquire(
        &mut self,
        access: Access,
        owner: Owner,
        ticket: &Arc<Ticket>,
    ) -> Acquired {
        if self.queue.is_empty() && self.free_for(access) {
            self.take(access, owner);
            return Acquired::Granted;
        }
        self.queue.push_back(Waiting { owner, access, ticket: Arc::clone(ticket) });
        Acquired::Queued
    }

    /// Gives the lock back and grants it to the head of the queue; the granted are added to `woken`.
    pub(crate) fn release(&mut self, access: Access, woken: &mut Vec<Address>) {
        match access {
            Access::Exclusive => self.exclusive = NOBODY,
            Access::Shared => self.shared -= 1,
        }
        self.grant_head(woken);
    }

    /// Withdraws a queued request. Returns false when it had been granted meanwhile: then it must
    /// be released instead.
    pub(crate) fn withdraw(&mut self, owner: Owner, woken: &mut Vec<Address>) -> bool {
        let Some(at) = self.queue.iter().position(|waiting| waiting.owner == owner) else {
            return false;
        };
        self.queue.remove(at);
        self.grant_head(woken);
        true
    }

    /// Whether a command of `owner` may do `access` now, without taking the lock.
    pub(crate) fn admits(&self, access: Access, owner: Owner) -> bool {
        match access {
            Access::Shared => self.exclusive == NOBODY || self.exclusive == owner,
            Access::Exclusive => {
                (self.exclusive == NOBODY && self.shared == 0)
                    || (self.exclusive == owner && owner != NOBODY)
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.exclusive == NOBODY && self.shared == 0 && self.queue.is_empty()
    }

    fn free_for(&self, access: Access) -> bool {
        self.exclusive == NOBODY && (access == Access::Shared || self.shared == 0)
    }

    fn take(&mut self, access: Access, owner: Owner) {
        match access {
            Access::Exclusive => self.exclusive = owner,
            Access::Shared => self.shared += 1,
        }
    }

    fn grant_head(&mut self, woken: &mut Vec<Address>) {
        while let Some(head) = self.queue.front() {
            if !self.free_for(head.access) {
                break;
            }
            let Some(head) = self.queue.pop_front() else { break };
            self.take(head.access, head.owner);
            work::add(work::UNITS_PER_ALLOCATION);
            woken.push(head.ticket.grant());
        }
    }
}

/// The key locks of one shard.
#[derive(Default)]
pub struct KeyLocks {
    // Absent while nothing is locked.
    #[allow(clippy::box_collection, reason = "one word in a shard where the map is absent")]
    table: Option<Box<BTreeMap<Box<[u8]>, Lock>>>,
}

impl KeyLocks {
    /// Whether no key of the shard is locked: the one load of the normal case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_none()
    }

    /// Whether a command of `owner` may do `access` to `key` now.
    pub fn admits(&self, key: &[u8], access: Access, owner: Owner) -> bool {
        work::nodes(2);
        self.lock(key).is_none_or(|lock| lock.admits(access, owner))
    }

    /// Whether anybody holds a lock on `key`: walks and expiry skip such keys.
    pub fn is_locked(&self, key: &[u8]) -> bool {
        work::nodes(2);
        self.lock(key).is_some()
    }

    /// Takes the lock on `key` or queues for it.
    pub fn acquire(
        &mut self,
        key: &[u8],
        access: Access,
        owner: Owner,
        ticket: &Arc<Ticket>,
    ) -> Acquired {
        work::nodes(2);
        work::allocations(2);
        let table = self.table.get_or_insert_default();
        if let Some(lock) = table.get_mut(key) {
            return lock.acquire(access, owner, ticket);
        }
        let mut lock = Lock::default();
        let acquired = lock.acquire(access, owner, ticket);
        table.insert(key.into(), lock);
        acquired
    }

    /// Gives a held lock back; whoever is granted it is added to `woken`.
    pub fn release(&mut self, key: &[u8], access: Access, woken: &mut Vec<Address>) {
        work::nodes(2);
        work::allocations(2);
        let Some(table) = &mut self.table else { return };
        let Some(lock) = table.get_mut(key) else { return };
        lock.release(access, woken);
        self.forget_if_idle(key);
    }

    /// Withdraws a queued request, or releases it when it had been granted meanwhile.
    pub fn withdraw(&mut self, key: &[u8], access: Access, owner: Owner, woken: &mut Vec<Address>) {
        let Some(table) = &mut self.table else { return };
        let Some(lock) = table.get_mut(key) else { return };
        if !lock.withdraw(owner, woken) {
            #[cfg(not(all(shuttle, planted_bug = "locks")))]
            lock.release(access, woken);
        }
        self.forget_if_idle(key);
    }

    fn lock(&self, key: &[u8]) -> Option<&Lock> {
        self.table.as_ref()?.get(key)
    }

    fn forget_if_idle(&mut self, key: &[u8]) {
        let Some(table) = &mut self.table else { return };
        if table.get(key).is_some_and(Lock::is_idle) {
            table.remove(key);
        }
        if table.is_empty() {
            self.table = None;
        }
    }
}
