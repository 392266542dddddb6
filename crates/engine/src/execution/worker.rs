//! Hot path. A worker: executes the commands of its sessions, one after another, on one thread.
//!
//! The engine's half of a worker; sockets are the server's. See `docs/life-of-a-command.md`.

use std::collections::BTreeSet;

use arrayvec::ArrayVec;
use resp::{Args, Request};

use crate::errors::{self, CommandError};
use crate::execution::command::{Call, Command, Context, Flags, Flow, Handler, Outcome, Row, Run};
use crate::execution::engine::Engine;
use crate::execution::session::Session;
use crate::execution::session::transaction::Queued;
use crate::execution::task::{Start, Task};
use crate::execution::unfinished::Unfinished;
use crate::keyspace::hold::{Hold, Ledger, Locked, Scope, Wanted};
use crate::keyspace::locks::{NOBODY, Owner};
use crate::keyspace::{HELD_KEYS_MAX, KEY_BYTES_MAX};
use crate::lanes::{Discard, DroppedObject, DroppedRequest};
use crate::observe::WorkerStats;
use crate::observe::stalls::{LongHold, NOTABLE_HOLD_US};
use crate::settings::Settings;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Values with at most this many nodes are freed where they were replaced, after the latches.
const FREED_HERE_NODES: usize = 8;

/// Blocks of a request that are freed at once; where there are more, the rest is freed elsewhere.
const FREED_HERE_BLOCKS: usize = 8;

/// Microseconds that a command may take in steps before others get their turn.
const INLINE_US: u64 = 30;

/// Turns below this count as computing all the time, nanoseconds: asking the system would cost more
/// than many of them.
const SHORT_TURN_NS: u64 = 100_000;

/// Short turns after which the system is asked again. What the thread does between two turns, some
/// microseconds each time, is charged to a long turn that follows before that.
const TURNS_ESTIMATED: u32 = 8;

/// First words of the lines of HTTP: a web page makes a browser of the administrator's send commands
/// as the body of a request. The connection is closed without a reply.
const HTTP_WORDS: [&[u8]; 2] = [b"POST", b"Host:"];

/// A parsed command.
pub enum Incoming<'a> {
    /// Still in the connection's read buffer.
    Borrowed(Args<'a>),
    /// Too large for it, or waited for something.
    Owned(Request),
}

impl Incoming<'_> {
    fn args(&self) -> Args<'_> {
        match self {
            Incoming::Borrowed(args) => *args,
            Incoming::Owned(request) => request.args(),
        }
    }

    fn into_request(self) -> Request {
        match self {
            Incoming::Borrowed(args) => Request::from_args(args),
            Incoming::Owned(request) => request,
        }
    }
}

/// When the turn began, to tell computing from being kept off the processor.
#[derive(Default)]
struct Turn {
    ticks: u64,
    cpu_ns: u64,
    off_cpu_ns: u64,
}

/// One thread's part of the engine.
pub struct Worker {
    /// Its number.
    pub id: usize,
    /// What all workers share.
    pub engine: Arc<Engine>,
    /// What the current command leaves to be done after its latches.
    pub ledger: Ledger,
    /// Unix milliseconds at the beginning of the turn.
    pub now_ms: i64,
    /// Garbage for the reaper, handed over at the end of the turn.
    pub garbage: Vec<Box<dyn Discard>>,
    pub(crate) unfinished: Unfinished,
    timers: BTreeSet<(i64, u64)>,
    last_ticks: u64,
    turn: Turn,
    /// CPU time of the thread up to the end of the last turn, as far as it is known.
    cpu_ns: u64,
    /// Turns that begin with that estimate before the system is asked again.
    turns_estimated: u32,
}

impl Worker {
    /// The worker with this number.
    pub fn new(engine: Arc<Engine>, id: usize) -> Worker {
        let now_ms = (engine.clock.unix_ms)();
        Worker {
            id,
            engine,
            ledger: Ledger::default(),
            now_ms,
            garbage: Vec::new(),
            unfinished: Unfinished::default(),
            timers: BTreeSet::new(),
            last_ticks: 0,
            turn: Turn::default(),
            cpu_ns: 0,
            turns_estimated: 0,
        }
    }

    /// This worker's counters.
    #[inline]
    pub fn stats(&self) -> &WorkerStats {
        &self.engine.stats.workers[self.id]
    }

    /// The server's cycle counter.
    #[inline]
    pub fn ticks(&self) -> u64 {
        (self.engine.clock.ticks)()
    }

    /// On whose behalf a session's holds are taken, without locks.
    #[inline]
    pub fn scope(&self, session: &Session) -> Scope {
        let (worker, database) = (self.id, session.database);
        Scope { worker, database, owner: NOBODY, now_ms: self.now_ms }
    }

    /// A turn begins: the clocks are read once for all its commands.
    pub fn begin_turn(&mut self) {
        let clock = &self.engine.clock;
        self.now_ms = (clock.unix_ms)();
        if self.turns_estimated == 0 {
            self.turns_estimated = TURNS_ESTIMATED;
            self.cpu_ns = (clock.thread_cpu_ns)();
        }
        self.turns_estimated -= 1;
        self.turn = Turn { ticks: (clock.ticks)(), cpu_ns: self.cpu_ns, off_cpu_ns: 0 };
        self.last_ticks = self.turn.ticks;
    }

    /// The turn ends: garbage goes to the reaper, the histograms get their entry.
    pub fn end_turn(&mut self) {
        for garbage in self.garbage.drain(..) {
            self.engine.reaper.discard(garbage);
        }
        let (hits, misses) = (self.ledger.hits, self.ledger.misses);
        let expired = self.ledger.expired;
        (self.ledger.hits, self.ledger.misses, self.ledger.expired) = (0, 0, 0);
        self.stats().hits.add(hits);
        self.stats().misses.add(misses);
        self.stats().expired.add(expired);
        let clock = &self.engine.clock;
        let wall_ns = clock.ns((clock.ticks)().wrapping_sub(self.turn.ticks));
        let cpu_ns = match wall_ns {
            0..SHORT_TURN_NS => wall_ns,
            _ => {
                self.turns_estimated = 0;
                (clock.thread_cpu_ns)().saturating_sub(self.turn.cpu_ns)
            }
        };
        self.cpu_ns = self.turn.cpu_ns + cpu_ns;
        self.stats().turns.record(wall_ns);
        self.stats().turns_cpu.record(cpu_ns);
    }

    /// Time passes that no command is to be charged with: reading, parsing, waiting.
    #[inline]
    pub fn skip_time(&mut self) {
        self.last_ticks = self.ticks();
    }

    /// The time up to which commands have been charged, in ticks: about now while commands run.
    #[inline]
    pub fn last_ticks(&self) -> u64 {
        self.last_ticks
    }

    /// Resumes a session at a time.
    pub(crate) fn resume_at(&mut self, at_ms: i64, session: u64) {
        self.timers.insert((at_ms, session));
    }

    /// A session whose time has come.
    pub fn due(&mut self) -> Option<u64> {
        let &(at_ms, session) = self.timers.first()?;
        if at_ms > self.now_ms {
            return None;
        }
        self.timers.pop_first();
        Some(session)
    }

    /// When the next session's time comes.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.timers.first().map(|&(at_ms, _)| at_ms)
    }

    /// Executes a command: its reply is queued, or `session.running` is set.
    pub fn execute(&mut self, session: &mut Session, incoming: Incoming<'_>) {
        let found = (self.engine.table.find)(incoming.args().prefix(0));
        self.execute_found(session, found, incoming);
    }

    /// The same, for a command that was looked up before.
    #[inline]
    pub(crate) fn execute_found(
        &mut self,
        session: &mut Session,
        found: Option<&'static Command>,
        incoming: Incoming<'_>,
    ) {
        let args = incoming.args();
        let Some(command) = found else {
            self.refuse_unknown(session, args);
            return self.dispose(incoming);
        };
        let Row { arity, flags, .. } = &command.row;
        if !arity.accepts(args.len()) && !flags.has(Flags::CHECKS_ARITY) {
            self.stats().commands[self.engine.table.position(command)].rejected.add(1);
            session.spoil_transaction();
            self.refuse(session, errors::wrong_arity(command.row.name));
            return self.dispose(incoming);
        }
        if self.engine.pause.is_active() && self.is_paused(session, command) {
            return self.start(session, command, incoming.into_request(), Start::Paused);
        }
        if let Incoming::Owned(request) = &incoming
            && request.has_chunked()
            && needs_contiguous(command, request)
        {
            if has_long_key(command, request) {
                session.spoil_transaction();
                self.refuse(session, errors::KEY_TOO_LONG);
                return self.dispose(incoming);
            }
            return self.start(session, command, incoming.into_request(), Start::Flatten);
        }
        if session.in_transaction() && !command.row.flags.has(Flags::CONTROLS_TRANSACTION) {
            if let Err(error) = command.plain(args) {
                session.spoil_transaction();
                self.refuse(session, error);
                return self.dispose(incoming);
            }
            return self.queue(session, command, incoming.into_request());
        }
        self.dispatch(session, command, incoming);
    }

    fn queue(&mut self, session: &mut Session, command: &'static Command, request: Request) {
        if let Some(transaction) = &mut session.transaction {
            transaction.push(Queued { command, request });
        }
        session.reply().writer().simple("QUEUED");
    }

    fn dispatch(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        incoming: Incoming<'_>,
    ) {
        let args = incoming.args();
        let outcome = match &command.run {
            Run::Keyed(_) => self.run_held(session, command, args, NOBODY),
            Run::Wide { fits, .. } if fits(args) => self.run_held(session, command, args, NOBODY),
            Run::Wide { .. } => Ok(Ok(Flow::Escalate)),
            Run::Probing { .. } => self.run_held(session, command, args, NOBODY),
            Run::Stepped(new) => match new(args, &session.seed()) {
                Ok(task) => return self.begin(session, command, incoming, task),
                Err(error) => Ok(Err(error)),
            },
            Run::Plain(_) | Run::Container(_) => {
                let mut call = Call { worker: self, session, args, task: None };
                let outcome = call.run(command);
                if let Some(task) = call.task {
                    return self.begin(session, command, incoming, task);
                }
                Ok(outcome)
            }
        };
        self.go_on(session, command, incoming, outcome);
    }

    /// Finishes a command after its first hold, or goes on with it in steps.
    pub(crate) fn go_on(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        incoming: Incoming<'_>,
        outcome: Result<Outcome, Locked>,
    ) {
        match outcome {
            Err(Locked) => {
                self.start(session, command, incoming.into_request(), Start::Locked);
                self.advance(session, INLINE_US);
            }
            Ok(Ok(Flow::Escalate)) => {
                let (Run::Wide { task, .. } | Run::Probing { task, .. }) = &command.run else {
                    return;
                };
                match task(incoming.args(), &session.seed()) {
                    Ok(task) => self.begin(session, command, incoming, task),
                    Err(error) => self.finish_now(session, command, Err(error)),
                }
            }
            Ok(outcome) => {
                self.settle_borrowed(incoming.args());
                self.finish_now(session, command, outcome);
                self.dispose(incoming);
            }
        }
    }

    #[inline]
    fn dispose(&mut self, incoming: Incoming<'_>) {
        if let Incoming::Owned(request) = incoming {
            self.free_request(request);
        }
    }

    /// Frees a request: a large one elsewhere, piece by piece.
    pub fn free_request(&mut self, mut request: Request) {
        if !request.drop_step(FREED_HERE_BLOCKS) {
            self.garbage.push(Box::new(DroppedRequest(request)));
        }
    }

    fn begin(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        incoming: Incoming<'_>,
        task: Box<dyn Task>,
    ) {
        self.start(session, command, incoming.into_request(), Start::Task(task));
        self.advance(session, INLINE_US);
    }

    /// Runs the handler of a command in one hold of its keys.
    ///
    /// # Errors
    /// [`Locked`] if somebody else holds one of the keys.
    #[inline]
    pub(crate) fn run_held(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        owner: Owner,
    ) -> Result<Outcome, Locked> {
        let (Run::Keyed(handler) | Run::Wide { handler, .. } | Run::Probing { handler, .. }) =
            command.run
        else {
            return Ok(Ok(Flow::Escalate));
        };
        let scope = Scope { owner, ..self.scope(session) };
        let Worker { engine, ledger, .. } = self;
        let (keyspace, keys, settings) = (&engine.keyspace, command.row.keys, &engine.settings);
        let count = keys.count(args);
        if count == 1 {
            let (at, access) = keys.get(0);
            let wanted = [Wanted { key: keyspace.key(args.get(at)), access }];
            let step = call(handler, args, &wanted, settings, session);
            return keyspace.hold(scope, &wanted, ledger, step);
        }
        if count > HELD_KEYS_MAX {
            return Ok(Ok(Flow::Escalate));
        }
        let wanted: ArrayVec<Wanted<'_>, HELD_KEYS_MAX> = (0..count)
            .map(|index| {
                let (at, access) = keys.get(index);
                Wanted { key: keyspace.key(args.get(at)), access }
            })
            .collect();
        keyspace.hold(scope, &wanted, ledger, call(handler, args, &wanted, settings, session))
    }

    #[inline]
    fn finish_now(&mut self, session: &mut Session, command: &'static Command, outcome: Outcome) {
        let ticks = self.charge(command);
        self.finish(session, command, outcome, ticks);
    }

    /// Ends executions of one command in one hold, of which `failed` have been answered with an
    /// error.
    #[inline]
    pub(crate) fn finish_all(&mut self, command: &'static Command, calls: u64, failed: u64) {
        let ticks = self.charge(command);
        self.count(command, calls, failed, ticks);
    }

    /// The time since the last command ended goes to this one's hold. Returns it, in ticks.
    #[inline]
    fn charge(&mut self, command: &'static Command) -> u64 {
        let now = self.ticks();
        let ticks = now.wrapping_sub(self.last_ticks);
        self.last_ticks = now;
        self.note_hold(command, ticks);
        ticks
    }

    /// Counts an execution and answers its error.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        outcome: Outcome,
        ticks: u64,
    ) {
        self.count(command, 1, u64::from(outcome.is_err()), ticks);
        if let Err(error) = outcome {
            session.reply().writer().error(error.bytes());
        }
    }

    #[inline]
    fn count(&self, command: &'static Command, calls: u64, failed: u64, ticks: u64) {
        let stats = self.stats();
        let row = &stats.commands[self.engine.table.position(command)];
        row.calls.add(calls);
        row.ticks.add(ticks);
        stats.executed.add(calls);
        if failed > 0 {
            row.failed.add(failed);
            stats.errors.add(failed);
        }
    }

    #[cold]
    fn refuse_unknown(&mut self, session: &mut Session, args: Args<'_>) {
        let name = args.prefix(0);
        if HTTP_WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
            session.closing = true;
            return session.output.clear(&mut self.garbage);
        }
        session.spoil_transaction();
        let words = (1..args.len()).map(|index| args.prefix(index));
        self.refuse(session, errors::unknown_command(name, words));
    }

    fn refuse(&mut self, session: &mut Session, error: CommandError) {
        self.stats().errors.add(1);
        session.reply().writer().error(error.bytes());
    }

    /// Puts the time of a command, or of a step, into the histogram of holds, unless it took none:
    /// an upper bound of what any of its latches was held.
    #[inline]
    pub(crate) fn note_hold(&mut self, command: &'static Command, ticks: u64) {
        if std::mem::take(&mut self.ledger.holds) == 0 {
            return;
        }
        let wall_ns = self.engine.clock.ns(ticks);
        let units = std::mem::take(&mut self.ledger.largest_units);
        let stats = self.stats();
        stats.holds.record(wall_ns);
        stats.hold_units.record(units);
        if wall_ns >= NOTABLE_HOLD_US * 1000 {
            self.note_long_hold(command, wall_ns, units);
        }
    }

    #[cold]
    fn note_long_hold(&mut self, command: &'static Command, wall_ns: u64, units: u64) {
        let clock = &self.engine.clock;
        let turn_ns = clock.ns((clock.ticks)().wrapping_sub(self.turn.ticks));
        let cpu_ns = (clock.thread_cpu_ns)().saturating_sub(self.turn.cpu_ns);
        let off_cpu_ns = turn_ns.saturating_sub(cpu_ns);
        let newly_off_ns = off_cpu_ns.saturating_sub(self.turn.off_cpu_ns);
        self.turn.off_cpu_ns = off_cpu_ns;
        self.stats().longest.lock().note(LongHold {
            command: command.row.name,
            wall_ns,
            cpu_ns: wall_ns.saturating_sub(newly_off_ns),
            units,
            at_ms: self.now_ms,
        });
    }

    /// Whether a pause keeps this command waiting. What is queued for EXEC is not executed yet, and
    /// EXEC waits if one of its commands has to.
    pub(crate) fn is_paused(&self, session: &Session, command: &Command) -> bool {
        let flags = match &session.transaction {
            None => Some(command.row.flags),
            Some(transaction) => transaction.paused_as.filter(|_| command.row.name == "exec"),
        };
        flags.is_some_and(|flags| {
            !flags.has(Flags::NEVER_PAUSED) && self.engine.pause.blocks(flags, self.now_ms)
        })
    }

    #[inline]
    fn settle_borrowed(&mut self, args: Args<'_>) {
        for record in &mut self.ledger.records {
            record.body.copy(args);
        }
        self.settle_rest();
    }

    /// Does what was left to be done after the latches. A long request moves into its record.
    pub(crate) fn settle(&mut self, request: &mut Option<Request>) {
        for record in &mut self.ledger.records {
            record.body.take(request);
        }
        self.settle_rest();
    }

    #[inline]
    pub(crate) fn settle_rest(&mut self) {
        if !self.ledger.records.is_empty() {
            self.engine.keyspace.outlet.publish(self.id, &mut self.ledger.records);
        }
        if !self.ledger.dropped.is_empty() {
            self.free_dropped();
        }
        while let Some(address) = self.ledger.woken.pop() {
            self.engine.mailboxes.resume(address);
        }
    }

    fn free_dropped(&mut self) {
        for object in self.ledger.dropped.drain(..) {
            if object.weight() > FREED_HERE_NODES {
                self.garbage.push(Box::new(DroppedObject::new(object)));
            }
        }
    }
}

/// What a hold of `keys` does for a command.
#[inline]
pub(super) fn call<'c>(
    handler: Handler,
    args: Args<'c>,
    keys: &'c [Wanted<'c>],
    settings: &'c Settings,
    session: &'c mut Session,
) -> impl FnOnce(&mut Hold<'_>) -> Outcome {
    let may_escalate = true;
    move |hold| {
        let reply = session.reply();
        handler(&mut Context { hold, args, keys, settings, reply, may_escalate })
    }
}

/// Whether an argument that is still in chunks must be made contiguous first. Commands that take
/// chunks take them as values, never as keys.
fn needs_contiguous(command: &Command, request: &Request) -> bool {
    !command.row.flags.has(Flags::TAKES_CHUNKS)
        || request.long_args().any(|(position, _)| command.row.keys.has(position))
}

/// Whether a key is longer than what a hold may copy and compare.
fn has_long_key(command: &Command, request: &Request) -> bool {
    let is_long = |(position, bytes)| bytes > KEY_BYTES_MAX && command.row.keys.has(position);
    request.long_args().any(is_long)
}

/// The relaxed load that keeps a paused server's cost off the normal path.
impl crate::execution::engine::Pause {
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) != 0
    }
}
