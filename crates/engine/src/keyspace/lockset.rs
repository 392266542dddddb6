//! A lock set: all the locks of one command, taken in one global order and given back together.
//!
//! First the database-wide locks by index, then the keys by (database, shard, name). Everybody
//! follows the same order, so no two sets wait for each other in a circle. Both directions go in
//! bounded steps: a command may lock half a million keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use structures::work;

use super::Keyspace;
use super::hold::Ledger;
use super::locks::{Access, Acquired, Address, NOBODY, Owner, Ticket};
use crate::lanes::Discard;
use crate::sync::Arc;

/// Keys that are locked or released in one step of work.
pub const KEYS_PER_STEP: usize = 32;

/// Bytes of their names after which a step ends: each name is copied a few times.
pub const NAME_BYTES_PER_STEP: usize = 32 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockKey {
    database: u8,
    shard: u16,
    name: Box<[u8]>,
}

/// What is locked next.
enum Phase {
    Wide,
    Keys,
    Held,
}

/// How far a lock set has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is held.
    Held,
    /// More can be done at once.
    Again,
    /// A lock is queued; the address is woken when it is granted.
    Waiting,
}

/// The locks of one command.
pub struct LockSet {
    owner: Owner,
    address: Address,
    databases: BTreeMap<u8, Access>,
    keys: BTreeMap<LockKey, Access>,
    phase: Phase,
    /// The last database or key whose lock is held.
    last_database: Option<u8>,
    last_key: Option<LockKey>,
    /// The request that is queued, for the lock after the last one.
    waiting: Option<Arc<Ticket>>,
    reserved: bool,
}

impl LockSet {
    /// An empty set for a command of the session at `address`.
    pub fn new(keyspace: &Keyspace, address: Address) -> LockSet {
        LockSet {
            owner: keyspace.new_owner(),
            address,
            databases: BTreeMap::new(),
            keys: BTreeMap::new(),
            phase: Phase::Wide,
            last_database: None,
            last_key: None,
            waiting: None,
            reserved: false,
        }
    }

    /// Who the set's locks belong to.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Adds a key. A key that is added twice is locked once, exclusively if either asks for it.
    pub fn add(&mut self, keyspace: &Keyspace, database: u8, name: &[u8], access: Access) {
        self.databases.entry(database).or_insert(Access::Shared);
        work::nodes(3);
        work::allocations(2);
        let shard = keyspace.key(name).shard;
        let key = LockKey { database, shard, name: name.into() };
        let held = self.keys.entry(key).or_insert(access);
        if access == Access::Exclusive {
            *held = access;
        }
    }

    /// Adds a whole database, exclusively: its single keys need no locks then.
    pub fn add_database(&mut self, database: u8) {
        self.databases.insert(database, Access::Exclusive);
    }

    /// Takes up to [`KEYS_PER_STEP`] more locks.
    pub fn acquire_step(&mut self, keyspace: &Keyspace) -> Progress {
        if let Some(ticket) = &self.waiting {
            if !ticket.is_granted() {
                return Progress::Waiting;
            }
            self.advance();
        }
        match self.phase {
            Phase::Wide => self.acquire_databases(keyspace),
            Phase::Keys => self.acquire_keys(keyspace),
            Phase::Held => Progress::Held,
        }
    }

    /// Gives up to [`KEYS_PER_STEP`] locks back, or withdraws the queued request. Returns true when
    /// nothing is held any more. The woken are added to the ledger.
    pub fn release_step(&mut self, keyspace: &Keyspace, ledger: &mut Ledger) -> bool {
        self.withdraw(keyspace, ledger);
        let mut bytes = 0;
        for _ in 0..KEYS_PER_STEP {
            if bytes > NAME_BYTES_PER_STEP {
                break;
            }
            let Some(last) = self.last_key.take() else { break };
            bytes += last.name.len();
            let upto = (Bound::Unbounded, Bound::Included(&last));
            let Some((key, &access)) = self.keys.range(upto).next_back() else { break };
            work::nodes(4);
            work::allocations(2);
            if !self.needs_no_lock(key) {
                let slot = keyspace.gate.enter(self.address.worker);
                let database = &slot.databases[key.database as usize];
                let mut shard = database.shard(key.shard).lock();
                shard.locks.release(&key.name, access, &mut ledger.woken);
            }
            let below = (Bound::Unbounded, Bound::Excluded(&last));
            self.last_key = self.keys.range(below).next_back().map(|(key, _)| key.clone());
        }
        if self.last_key.is_some() {
            return false;
        }
        self.release_databases(keyspace, ledger);
        true
    }

    /// Whether freeing the set, when it holds nothing any more, is more than one step's work.
    pub fn is_large(&self) -> bool {
        self.keys.len() > KEYS_PER_STEP
    }

    /// Makes ordinary commands stay out of the exclusively locked databases until release.
    pub fn reserve(&mut self, keyspace: &Keyspace) {
        self.reserved = true;
        self.set_reservation(keyspace, self.owner);
    }

    fn set_reservation(&self, keyspace: &Keyspace, owner: Owner) {
        keyspace.gate.exclusively(|cut| {
            for (&database, &access) in &self.databases {
                if access == Access::Exclusive {
                    cut.reserve(database as usize, owner);
                }
            }
        });
    }

    fn acquire_databases(&mut self, keyspace: &Keyspace) -> Progress {
        while let Some((database, access)) = self.next_database() {
            let ticket = Ticket::new(self.address);
            let acquired = keyspace.wide(database).lock().acquire(access, self.owner, &ticket);
            if acquired == Acquired::Queued {
                self.waiting = Some(ticket);
                return Progress::Waiting;
            }
            self.last_database = Some(database);
        }
        self.phase = if self.keys.is_empty() { Phase::Held } else { Phase::Keys };
        if self.keys.is_empty() { Progress::Held } else { Progress::Again }
    }

    fn acquire_keys(&mut self, keyspace: &Keyspace) -> Progress {
        let mut bytes = 0;
        for _ in 0..KEYS_PER_STEP {
            if bytes > NAME_BYTES_PER_STEP {
                break;
            }
            let Some((key, access)) = self.next_key() else {
                self.phase = Phase::Held;
                return Progress::Held;
            };
            bytes += key.name.len();
            work::nodes(4);
            work::allocations(3);
            if !self.needs_no_lock(&key) {
                let ticket = Ticket::new(self.address);
                let slot = keyspace.gate.enter(self.address.worker);
                let database = &slot.databases[key.database as usize];
                let mut shard = database.shard(key.shard).lock();
                let acquired = shard.locks.acquire(&key.name, access, self.owner, &ticket);
                if acquired == Acquired::Queued {
                    self.waiting = Some(ticket);
                    return Progress::Waiting;
                }
            }
            self.last_key = Some(key);
        }
        Progress::Again
    }

    /// The queued request has been granted: it counts as held.
    fn advance(&mut self) {
        self.waiting = None;
        match self.phase {
            Phase::Wide => self.last_database = self.next_database().map(|(database, _)| database),
            Phase::Keys => self.last_key = self.next_key().map(|(key, _)| key),
            Phase::Held => {}
        }
    }

    fn withdraw(&mut self, keyspace: &Keyspace, ledger: &mut Ledger) {
        if self.waiting.take().is_none() {
            return;
        }
        match self.phase {
            Phase::Wide => {
                let Some((database, access)) = self.next_database() else { return };
                let mut lock = keyspace.wide(database).lock();
                if !lock.withdraw(self.owner, &mut ledger.woken) {
                    lock.release(access, &mut ledger.woken);
                }
            }
            Phase::Keys => {
                let Some((key, access)) = self.next_key() else { return };
                let slot = keyspace.gate.enter(self.address.worker);
                let database = &slot.databases[key.database as usize];
                let mut shard = database.shard(key.shard).lock();
                shard.locks.withdraw(&key.name, access, self.owner, &mut ledger.woken);
            }
            Phase::Held => {}
        }
    }

    fn release_databases(&mut self, keyspace: &Keyspace, ledger: &mut Ledger) {
        if std::mem::take(&mut self.reserved) {
            self.set_reservation(keyspace, NOBODY);
        }
        let Some(last) = self.last_database.take() else { return };
        for (&database, &access) in self.databases.range(..=last) {
            keyspace.wide(database).lock().release(access, &mut ledger.woken);
        }
    }

    fn next_database(&self) -> Option<(u8, Access)> {
        let after = match self.last_database {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        self.databases.range((after, Bound::Unbounded)).next().map(|(&at, &access)| (at, access))
    }

    fn next_key(&self) -> Option<(LockKey, Access)> {
        let after = match &self.last_key {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let (key, &access) = self.keys.range((after, Bound::Unbounded)).next()?;
        Some((key.clone(), access))
    }

    fn needs_no_lock(&self, key: &LockKey) -> bool {
        self.databases.get(&key.database) == Some(&Access::Exclusive)
    }
}

impl Discard for LockSet {
    fn discard_step(&mut self, nodes: usize) -> bool {
        (0..nodes).any(|_| self.keys.pop_first().is_none())
    }
}
