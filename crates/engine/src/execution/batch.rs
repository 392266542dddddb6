//! Hot path. The next requests of a pipeline, together.
//!
//! Their commands and keys are looked up before the first one runs, so that cache misses overlap.
//! The gate is entered once for those of them that need no more than one hold each, and requests
//! of one command for one key that follow each other share a hold: what two workers have to take
//! away from each other then changes hands less often.

use arrayvec::ArrayVec;
use resp::Args;
use structures::work;

use crate::execution::command::{Command, Flow, Handler, Keys, Outcome, Run};
use crate::execution::session::Session;
use crate::execution::worker::{Incoming, Worker, call};
use crate::keyspace::gate::Slot;
use crate::keyspace::hold::{Hold, Locked, Wanted};
use crate::keyspace::key::Key;
use crate::sync::Arc;

/// Requests that are looked at together.
pub const LOOK_AHEAD: usize = 16;

/// Units of work after which no further request joins a hold: about 4 microseconds.
const SHARED_HOLD_UNITS: u64 = 400;

/// What is known of a request before it is executed.
struct Ahead<'a> {
    args: Args<'a>,
    command: Option<&'static Command>,
    /// Its first key, if it has one.
    key: Option<Key<'a>>,
}

/// A command that begins with one hold of one key.
struct Single<'a> {
    command: &'static Command,
    handler: Handler,
    wanted: [Wanted<'a>; 1],
}

impl<'a> Ahead<'a> {
    /// The request as a command that begins with a hold of its only key, if it is one.
    #[inline]
    fn single(&self) -> Option<Single<'a>> {
        let (command, key) = (self.command?, self.key?);
        let Keys::First(access) = command.row.keys else { return None };
        if !command.row.arity.accepts(self.args.len()) {
            return None;
        }
        let handler = match command.run {
            Run::Keyed(handler) | Run::Probing { handler, .. } => handler,
            Run::Wide { fits, handler, .. } if fits(self.args) => handler,
            _ => return None,
        };
        Some(Single { command, handler, wanted: [Wanted { key, access }] })
    }

    /// Whether it asks for the same command and key, and as briefly.
    #[inline]
    fn repeats(&self, single: &Single<'_>) -> bool {
        let key = &single.wanted[0].key;
        self.command.is_some_and(|command| std::ptr::eq(command, single.command))
            && self.key.is_some_and(|own| own.hash == key.hash && own.bytes == key.bytes)
            && self.single().is_some()
    }
}

impl Worker {
    /// Executes requests, [`LOOK_AHEAD`] at most, until one does not finish at once or the time is
    /// up, in ticks. Returns how many were begun.
    #[inline]
    pub fn execute_batch<'a>(
        &mut self,
        session: &mut Session,
        requests: impl Iterator<Item = Args<'a>>,
        deadline: u64,
    ) -> usize {
        let ahead = self.look_ahead(session, requests);
        let gains = ahead.len() > 1;
        let engine = Arc::clone(&self.engine);
        let mut entered = None;
        let mut rest = ahead.as_slice();
        while let Some(first) = rest.first() {
            let is_put_off = session.in_transaction() || self.engine.pause.is_active();
            let begun = match first.single().filter(|_| gains && !is_put_off) {
                Some(single) => {
                    let slot = entered.get_or_insert_with(|| engine.keyspace.gate.enter(self.id));
                    let (done, next) = self.hold_repeated(session, slot, &single, rest);
                    match next {
                        None => done,
                        Some(outcome) => {
                            entered = None;
                            let incoming = Incoming::Borrowed(rest[done].args);
                            self.go_on(session, single.command, incoming, outcome);
                            done + 1
                        }
                    }
                }
                None => {
                    // Whatever it is, it enters the gate itself, or closes it.
                    entered = None;
                    self.execute_found(session, first.command, Incoming::Borrowed(first.args));
                    1
                }
            };
            rest = &rest[begun..];
            let is_late = self.last_ticks().wrapping_sub(deadline) as i64 >= 0;
            if session.running.is_some() || session.closing || is_late {
                break;
            }
        }
        ahead.len() - rest.len()
    }

    /// Executes the first request and those that repeat its command and key in one hold. Returns
    /// how many are finished, and what the next one came to if it needs more than this hold.
    #[inline]
    fn hold_repeated(
        &mut self,
        session: &mut Session,
        slot: &Slot,
        single: &Single<'_>,
        requests: &[Ahead<'_>],
    ) -> (usize, Option<Result<Outcome, Locked>>) {
        let repeated = requests[1..].iter().take_while(|request| request.repeats(single)).count();
        let scope = self.scope(session);
        let Worker { engine, ledger, .. } = self;
        let before = work::counted();
        let (mut done, mut failed) = (0, 0);
        let step = |hold: &mut Hold<'_>| {
            for request in &requests[..=repeated] {
                if done > 0 && work::counted().wrapping_sub(before) > SHARED_HOLD_UNITS {
                    return None;
                }
                let (args, settings) = (request.args, &engine.settings);
                match call(single.handler, args, &single.wanted, settings, session)(hold) {
                    Ok(Flow::Done) => {}
                    Ok(Flow::Escalate) => return Some(Ok(Ok(Flow::Escalate))),
                    Err(error) => {
                        failed += 1;
                        session.reply().writer().error(error.bytes());
                    }
                }
                #[cfg(all(shuttle, planted_bug = "effects_words"))]
                let args = requests[repeated].args;
                hold.copy_words(args);
                done += 1;
            }
            None
        };
        let held = engine.keyspace.hold_through(slot, scope, &single.wanted, ledger, step);
        if done > 0 {
            self.settle_rest();
            self.finish_all(single.command, done as u64, failed);
        }
        (done, held.unwrap_or(Some(Err(Locked))))
    }

    /// Finds commands and keys, and loads what the commands will look at.
    #[inline]
    fn look_ahead<'a>(
        &self,
        session: &Session,
        requests: impl Iterator<Item = Args<'a>>,
    ) -> ArrayVec<Ahead<'a>, LOOK_AHEAD> {
        let keyspace = &self.engine.keyspace;
        let mut ahead = ArrayVec::new();
        let mut keys: ArrayVec<Key<'_>, LOOK_AHEAD> = ArrayVec::new();
        for args in requests {
            let command = (self.engine.table.find)(args.get(0));
            let has_key =
                command.is_some_and(|command| command.row.keys != Keys::None && args.len() > 1);
            let key = has_key.then(|| keyspace.key(args.get(1)));
            // A pipeline on one key has its lines in the cache after the first command.
            if let Some(key) = key
                && keys.last().is_none_or(|last| last.hash != key.hash)
            {
                keys.push(key);
            }
            ahead.push(Ahead { args, command, key });
        }
        if keys.len() > 1 {
            keyspace.prefetch(self.scope(session), &keys);
        }
        ahead
    }
}
