//! Writes that take several steps, and the barriers that wait for them.
//!
//! A write is numbered when it begins, unless it finishes in one hold: then it is finished before
//! its worker takes the next message. A barrier waits for the writes that began before it came, not
//! for later ones. It cannot wait for ever: whoever it is sent for holds no lock meanwhile, and a
//! command that has locks, or waits for them, has begun and is kept waiting by no pause.

use std::collections::{BTreeSet, VecDeque};

use crate::control::{Awaited, Barrier};
use crate::execution::session::Session;
use crate::execution::worker::Worker;
use crate::sync::Arc;

/// Numbers, and barriers with the number that was the next when they came, oldest first.
#[derive(Default)]
struct Waited {
    numbers: BTreeSet<u64>,
    barriers: VecDeque<(u64, Arc<Barrier>)>,
}

impl Waited {
    /// The oldest barrier, if everything is finished that it waits for.
    fn next_passed(&mut self) -> Option<Arc<Barrier>> {
        let &(next, _) = self.barriers.front()?;
        if self.numbers.first().is_some_and(|&number| number < next) {
            return None;
        }
        self.barriers.pop_front().map(|(_, barrier)| barrier)
    }
}

/// A worker's writes in several steps that are not finished.
#[derive(Default)]
pub(crate) struct Unfinished {
    next: u64,
    all: Waited,
    /// Those whose clients are gone.
    orphans: Waited,
}

impl Worker {
    /// A barrier has come: it is passed now or when what it waits for is finished.
    pub fn acknowledge(&mut self, barrier: Arc<Barrier>) {
        let Unfinished { next, all, orphans } = &mut self.unfinished;
        let waited = match barrier.awaited() {
            Awaited::Writes if !cfg!(all(shuttle, planted_bug = "control_writes")) => all,
            Awaited::Orphans if !cfg!(all(shuttle, planted_bug = "control_orphans")) => orphans,
            _ => return self.pass(&barrier),
        };
        waited.barriers.push_back((*next, barrier));
        self.pass_barriers();
    }

    /// The session begins a write that may take several steps.
    pub(crate) fn begin_write(&mut self, session: &mut Session) {
        if session.unfinished.is_none() {
            let number = self.unfinished.next;
            self.unfinished.next += 1;
            self.unfinished.all.numbers.insert(number);
            session.unfinished = Some(number);
        }
    }

    /// The session's write goes on although its client is gone.
    pub(crate) fn orphan_write(&mut self, session: &Session) {
        self.unfinished.orphans.numbers.extend(session.unfinished);
    }

    /// The session's write, if it had one, is finished or has not begun after all.
    pub(crate) fn end_write(&mut self, session: &mut Session) {
        if let Some(number) = session.unfinished.take() {
            self.unfinished.all.numbers.remove(&number);
            self.unfinished.orphans.numbers.remove(&number);
            self.pass_barriers();
        }
    }

    fn pass_barriers(&mut self) {
        let next = |unfinished: &mut Unfinished| {
            unfinished.all.next_passed().or_else(|| unfinished.orphans.next_passed())
        };
        while let Some(barrier) = next(&mut self.unfinished) {
            self.pass(&barrier);
        }
    }

    fn pass(&self, barrier: &Barrier) {
        if let Some(address) = barrier.pass() {
            self.engine.mailboxes.resume(address);
        }
    }
}
