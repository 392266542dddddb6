//! The gate: how a pointer that every command reads is exchanged without a shared write per command.
//!
//! Each thread that takes latches owns one slot, a mutex that only it takes in the normal case. It
//! holds its own references to the databases. An exclusive operation (FLUSHALL, SWAPDB, a cut)
//! queues on one mutex, takes all slots in ascending order and changes every copy: no command is
//! then between reading the pointer and leaving its latches.
//!
//! Order, everywhere: key locks, then the gate slot, then latches ascending. An exclusive operation
//! is started by a thread that holds neither slot nor latch.

use crossbeam_utils::CachePadded;

use super::database::Database;
use super::locks::{NOBODY, Owner};
use crate::sync::{Arc, Mutex, MutexGuard};

/// What one slot protects: this thread's view of the databases.
pub struct Slot {
    /// The database of each index.
    pub databases: Box<[Arc<Database>]>,
    /// Per index: who holds the whole database exclusively, [`NOBODY`] in the normal case.
    pub reserved: Box<[Owner]>,
}

/// The slots of all threads that take latches.
pub struct Gate {
    slots: Box<[CachePadded<Mutex<Slot>>]>,
    exclusive: Mutex<()>,
}

impl Gate {
    /// A gate for `workers` threads over `databases` empty databases.
    pub fn new(workers: usize, databases: usize) -> Gate {
        let all: Box<[_]> = (0..databases).map(|_| Arc::new(Database::new(workers))).collect();
        let slot = || Slot { databases: all.clone(), reserved: vec![NOBODY; databases].into() };
        Gate {
            slots: (0..workers).map(|_| CachePadded::new(Mutex::new(slot()))).collect(),
            exclusive: Mutex::new(()),
        }
    }

    /// Takes the caller's own slot: while it is held no exclusive operation runs.
    #[inline]
    pub fn enter(&self, worker: usize) -> MutexGuard<'_, Slot> {
        self.slots[worker].lock()
    }

    /// Runs `operation` while no command holds a latch. It must be a few pointer exchanges: no
    /// loops over data, no allocation, no user code.
    pub fn exclusively<R>(&self, operation: impl FnOnce(&mut Cut<'_>) -> R) -> R {
        let _turn = self.exclusive.lock();
        #[cfg(not(all(shuttle, planted_bug = "gate")))]
        let taken = self.slots.iter();
        #[cfg(all(shuttle, planted_bug = "gate"))]
        let taken = self.slots.iter().take(1);
        let mut cut = Cut { slots: taken.map(|slot| slot.lock()).collect() };
        operation(&mut cut)
    }
}

/// All slots, held: what an exclusive operation may change.
pub struct Cut<'g> {
    slots: Vec<MutexGuard<'g, Slot>>,
}

impl Cut<'_> {
    /// The database at `index`.
    pub fn database(&self, index: usize) -> &Arc<Database> {
        &self.slots[0].databases[index]
    }

    /// Puts `database` at `index`; returns the former one. No reference is dropped here except
    /// duplicates of the one that is returned.
    pub fn replace(&mut self, index: usize, database: &Arc<Database>) -> Arc<Database> {
        let former = Arc::clone(self.database(index));
        for slot in &mut self.slots {
            slot.databases[index] = Arc::clone(database);
        }
        former
    }

    /// Exchanges two databases.
    pub fn swap(&mut self, first: usize, second: usize) {
        for slot in &mut self.slots {
            slot.databases.swap(first, second);
        }
    }

    /// Reserves the database at `index` for `owner`, or frees it with [`NOBODY`].
    pub fn reserve(&mut self, index: usize, owner: Owner) {
        for slot in &mut self.slots {
            slot.reserved[index] = owner;
        }
    }
}
