//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A transaction of few small commands runs in one hold of all its keys. Any other takes key locks
//! on all of them and runs in steps; its effects become one record, numbered at the last step.

use arrayvec::ArrayVec;
use resp::{Args, Request};
use structures::object::Object;
use structures::table::Value;
use structures::work::BYTES_PER_UNIT;

use crate::effects::collected::Collected;
use crate::effects::{Body, Record};
use crate::errors::{self, CommandError, Result};
use crate::execution::command::{
    Arity, Call, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::session::Session;
use crate::execution::session::transaction::{Queued, Transaction, Watch};
use crate::execution::task::{Step, Task, TaskContext, add_locks_of};
use crate::execution::worker::Worker;
use crate::keyspace::hold::{Hold, Locked, Scope, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::{Access, NOBODY};
use crate::keyspace::lockset::{KEYS_PER_STEP, LockSet, NAME_BYTES_PER_STEP};
use crate::keyspace::{HELD_KEYS_MAX, HOLD_UNITS_MAX};
use crate::lanes::Discard;

/// Commands of a transaction that runs in one hold.
const COMMANDS_AT_ONCE: usize = 32;

/// Bytes of arguments of a transaction that runs in one hold.
const BYTES_AT_ONCE: usize = 16 * 1024;

/// Units of work that a transaction may be expected to do in one hold: the rest of what a hold may
/// do is for tables that grow or shrink meanwhile.
const UNITS_AT_ONCE: u64 = HOLD_UNITS_MAX * 7 / 10;

/// Units of any command: its reply, its effect.
const UNITS_PER_COMMAND: u64 = 40;

/// Units of adding one value to something small, or of finding it there.
const UNITS_PER_SMALL_VALUE: u64 = 40;

/// Units of turning a full packed collection into a large one.
const UNITS_TO_UNPACK: u64 = 3000;

/// Entries up to which a packed collection surely stays one during a small transaction.
const PACKED_ENTRIES_SAFE: u64 = 90;

/// Units of the first change of a large value after a snapshot, or of cutting a part off it.
const UNITS_PER_LARGE: u64 = 1700;

/// Units of adding one more value to a large one of which there is a snapshot.
const UNITS_PER_LARGE_VALUE: u64 = 400;

/// Keys that one step begins or ceases to watch.
const WATCHED_PER_STEP: usize = 16;

/// The row of a command that rules over transactions.
const fn row(
    name: &'static str,
    arity: Arity,
    keys: Keys,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row {
        name,
        arity,
        flags: Flags::FAST.with(Flags::CONTROLS_TRANSACTION).with(Flags::COMPLETES),
        group: "transactions",
        keys,
        cost: Cost::Stepped,
        locks: Locks::Keys,
        since,
        complexity: "O(1)",
        summary,
    }
}

const ALONE: Arity = Arity::Exactly(1);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: row("multi", ALONE, Keys::None, "1.2.0", "Begins to queue commands for EXEC."),
        run: Run::Plain(multi),
    },
    Command {
        row: Row {
            flags: Flags::CONTROLS_TRANSACTION.with(Flags::COMPLETES).with(Flags::CHECKS_ARITY),
            ..row("exec", ALONE, Keys::None, "1.2.0", "Executes all queued commands as one.")
        },
        run: Run::Plain(exec),
    },
    Command {
        row: row("discard", ALONE, Keys::None, "2.0.0", "Forgets all queued commands."),
        run: Run::Plain(discard),
    },
    Command {
        row: row(
            "watch",
            Arity::AtLeast(2),
            Keys::All { step: 1, access: Access::Shared },
            "2.2.0",
            "Makes the next EXEC depend on keys staying as they are.",
        ),
        run: Run::Plain(watch),
    },
    Command {
        row: Row {
            // Inside of MULTI it is queued, and then does nothing: EXEC has forgotten them already.
            flags: Flags::FAST.with(Flags::HARMLESS).with(Flags::COMPLETES),
            ..row("unwatch", ALONE, Keys::None, "2.2.0", "Forgets all watched keys.")
        },
        run: Run::Plain(unwatch),
    },
];

fn multi(call: &mut Call<'_>) -> Outcome {
    if call.session.in_transaction() {
        return Err(errors::NESTED_MULTI);
    }
    call.session.transaction = Some(Box::default());
    call.reply().writer().simple("OK");
    Ok(Flow::Done)
}

fn discard(call: &mut Call<'_>) -> Outcome {
    let Some(transaction) = call.session.transaction.take() else {
        return Err(errors::DISCARD_WITHOUT_MULTI);
    };
    call.worker.garbage.push(transaction);
    forget_watches(call);
    Ok(Flow::Done)
}

fn watch(call: &mut Call<'_>) -> Outcome {
    if call.session.in_transaction() {
        return Err(errors::WATCH_INSIDE_MULTI);
    }
    call.task = Some(Box::new(WatchTask { next: 1 }));
    Ok(Flow::Done)
}

fn unwatch(call: &mut Call<'_>) -> Outcome {
    forget_watches(call);
    Ok(Flow::Done)
}

/// Ends all watches of the session, then answers.
fn forget_watches(call: &mut Call<'_>) {
    let watches = std::mem::take(&mut call.session.watches);
    if watches.is_empty() {
        call.reply().writer().simple("OK");
    } else {
        call.task = Some(Box::new(Unwatch { watches, answer: Some(Ok("OK")) }));
    }
}

fn exec(call: &mut Call<'_>) -> Outcome {
    if !ALONE.accepts(call.args.len()) {
        return abort(call, errors::exec_aborted_by_arity());
    }
    if call.session.transaction.as_ref().is_some_and(|transaction| transaction.spoiled) {
        return abort(call, errors::EXEC_ABORTED);
    }
    let Some(transaction) = call.session.transaction.take() else {
        return Err(errors::EXEC_WITHOUT_MULTI);
    };
    let watches = std::mem::take(&mut call.session.watches);
    if is_small(&transaction, &watches, call.session)
        && let Some(()) = exec_at_once(call.worker, call.session, &transaction, &watches)
    {
        if !watches.is_empty() {
            call.task = Some(Box::new(Unwatch { watches, answer: None }));
        }
        return Ok(Flow::Done);
    }
    call.task = Some(Box::new(ExecTask::new(transaction, watches)));
    Ok(Flow::Done)
}

/// Forgets the transaction, if there is one, and all watches; then answers the error.
fn abort(call: &mut Call<'_>, error: CommandError) -> Outcome {
    if let Some(transaction) = call.session.transaction.take() {
        call.worker.garbage.push(transaction);
    }
    let watches = std::mem::take(&mut call.session.watches);
    if watches.is_empty() {
        return Err(error);
    }
    call.task = Some(Box::new(Unwatch { watches, answer: Some(Err(error)) }));
    Ok(Flow::Done)
}

/// Whether a transaction may run in one hold: few commands, none of which takes several steps, few
/// keys, all in the selected database.
fn is_small(transaction: &Transaction, watches: &[Watch], session: &Session) -> bool {
    let is_short = transaction.len() <= COMMANDS_AT_ONCE && watches.len() <= HELD_KEYS_MAX;
    if !is_short || transaction.bytes > BYTES_AT_ONCE {
        return false;
    }
    let mut keys = watches.len();
    watches.iter().all(|watch| watch.database == session.database)
        && transaction.iter().all(|queued| {
            let args = queued.request.args();
            keys += queued.command.row.keys.count(args);
            match &queued.command.run {
                Run::Keyed(_) => true,
                Run::Wide { fits, .. } => fits(args),
                Run::Plain(_) | Run::Container(_) => queued.command.row.flags.has(Flags::HARMLESS),
                Run::Probing { .. } | Run::Stepped(_) => false,
            }
        })
        && keys <= HELD_KEYS_MAX
}

/// Runs a small transaction; `None` if one of its keys is locked or it is not small after all, and
/// then nothing was done.
fn exec_at_once(
    worker: &mut Worker,
    session: &mut Session,
    transaction: &Transaction,
    watches: &[Watch],
) -> Option<()> {
    let scope = worker.scope(session);
    let engine = worker.engine.clone();
    let keyspace = &engine.keyspace;
    let mut wanted: ArrayVec<Wanted<'_>, HELD_KEYS_MAX> = ArrayVec::new();
    wanted.extend(watches.iter().map(|watch| watch.wanted(keyspace)));
    for queued in transaction.iter() {
        let args = queued.request.args();
        let keys = queued.command.row.keys;
        for index in 0..keys.count(args) {
            let (at, access) = keys.get(index);
            wanted.push(Wanted { key: keyspace.key(args.get(at)), access });
        }
    }
    let (watched, keys) = wanted.split_at(watches.len());
    let mut ledger = std::mem::take(&mut worker.ledger);
    ledger.transaction = Some(Collected::default());
    let held = keyspace.hold(scope, &wanted, &mut ledger, |hold| {
        if !fits_into(hold, transaction, keys) {
            return Err(Locked);
        }
        let spoiled = |(watch, wanted): (&Watch, &Wanted<'_>)| watch.is_spoiled(hold, wanted.key);
        if watches.iter().zip(watched).any(spoiled) {
            session.reply().writer().null_array();
        } else {
            run_all(worker, session, hold, transaction, keys);
        }
        hold.end_transaction();
        Ok(())
    });
    ledger.transaction = None;
    for record in &mut ledger.records {
        if let Body::Transaction(collected) = &mut record.body {
            // No longer than what a transaction in one hold may have been sent with.
            collected.settle(|at, body| {
                transaction.get(at).into_iter().for_each(|queued| body.copy(queued.request.args()));
            });
        }
    }
    worker.ledger = ledger;
    worker.settle_rest();
    held.flatten().ok()
}

/// Whether the work of all commands fits into one hold, judged by the values that they will meet.
/// Nothing is changed, not even a key whose time has come.
fn fits_into(hold: &mut Hold<'_>, transaction: &Transaction, mut keys: &[Wanted<'_>]) -> bool {
    let mut units = 0;
    for queued in transaction.iter() {
        let args = queued.request.args();
        let (own, rest) = keys.split_at(queued.command.row.keys.count(args));
        keys = rest;
        // The values that the command brings are spread over its keys.
        let words = args.len().div_ceil(own.len().max(1)) as u64;
        units += UNITS_PER_COMMAND + args.total_bytes() as u64 / BYTES_PER_UNIT;
        units += own.iter().map(|wanted| units_of(hold, wanted.key, words)).sum::<u64>();
        if units > UNITS_AT_ONCE {
            return false;
        }
    }
    true
}

/// An upper bound of what a command does with a key, in units of work, if it brings `words` values.
fn units_of(hold: &mut Hold<'_>, key: Key<'_>, words: u64) -> u64 {
    let Some(entry) = hold.shard_mut(key.shard).table.find(key.hash, key.bytes) else {
        return words * UNITS_PER_SMALL_VALUE;
    };
    match entry.value() {
        Value::Int(_) => words * UNITS_PER_SMALL_VALUE,
        // It is read, and written anew when it grows.
        Value::Bytes(bytes) => {
            words * UNITS_PER_SMALL_VALUE + 2 * bytes.len() as u64 / BYTES_PER_UNIT
        }
        Value::Object(object) => match &*object {
            Object::PackedList(packed) | Object::PackedSet(packed) => {
                let outgrows = packed.len() as u64 + words > PACKED_ENTRIES_SAFE;
                words * UNITS_PER_SMALL_VALUE + if outgrows { UNITS_TO_UNPACK } else { 0 }
            }
            _ => UNITS_PER_LARGE + words * UNITS_PER_LARGE_VALUE,
        },
    }
}

fn run_all(
    worker: &mut Worker,
    session: &mut Session,
    hold: &mut Hold<'_>,
    transaction: &Transaction,
    mut keys: &[Wanted<'_>],
) {
    let engine = worker.engine.clone();
    session.reply().writer().array(transaction.len() as u64);
    for (index, queued) in transaction.iter().enumerate() {
        let args = queued.request.args();
        let (own, rest) = keys.split_at(queued.command.row.keys.count(args));
        keys = rest;
        if let Some(collected) = &mut hold.ledger().transaction {
            collected.begin_command(index);
        }
        let outcome = match queued.command.run {
            Run::Keyed(handler) | Run::Wide { handler, .. } => {
                let reply = session.reply();
                let settings = &engine.settings;
                handler(&mut Context {
                    hold,
                    args,
                    keys: own,
                    settings,
                    reply,
                    may_escalate: false,
                })
            }
            Run::Plain(_) | Run::Container(_) => {
                Call { worker, session, args, task: None }.run(queued.command)
            }
            Run::Probing { .. } | Run::Stepped(_) => Ok(Flow::Escalate),
        };
        worker.finish(session, queued.command, outcome, 0);
    }
}

/// A transaction that runs in steps, under the locks of all its keys.
struct ExecTask {
    transaction: Option<Box<Transaction>>,
    watches: Vec<Watch>,
    next: usize,
    /// The command at `next`, if it takes several steps.
    current: Option<Box<dyn Task>>,
    /// Effects so far.
    effects: Collected,
    /// Watched keys that have been looked at.
    checked: usize,
    /// Whether the reply has begun.
    begun: bool,
    /// Up to which command SELECT has been looked for, and the database that it selected.
    passed: Option<(usize, u8)>,
}

impl ExecTask {
    fn new(transaction: Box<Transaction>, watches: Vec<Watch>) -> ExecTask {
        ExecTask {
            transaction: Some(transaction),
            watches,
            next: 0,
            current: None,
            effects: Collected::default(),
            checked: 0,
            begun: false,
            passed: None,
        }
    }

    fn queued(&self, index: usize) -> Option<&Queued> {
        self.transaction.as_ref()?.get(index)
    }

    /// The database in which the command at `index` will run: what the SELECTs before it say. It is
    /// asked for ascending indexes.
    fn database_of(&mut self, index: usize, selected: u8, worker: &Worker) -> u8 {
        let (mut passed, mut database) = self.passed.unwrap_or((0, selected));
        while passed < index {
            if let Some(queued) = self.queued(passed)
                && queued.command.row.name == "select"
                && let Ok(index) = crate::parse::small_integer(queued.request.args().get(1))
                && (0..worker.engine.keyspace.databases() as i64).contains(&index)
            {
                database = index as u8;
            }
            passed += 1;
        }
        self.passed = Some((passed, database));
        database
    }

    /// Looks at some of the watched keys. Returns whether one has changed.
    fn is_spoiled(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let engine = cx.worker.engine.clone();
        let upto = self.watches.len().min(self.checked + WATCHED_PER_STEP);
        let some = &self.watches[self.checked..upto];
        self.checked = upto;
        some.iter().any(|watch| {
            let scope = Scope { database: watch.database, ..cx.scope() };
            let wanted = [watch.wanted(&engine.keyspace)];
            let ledger = &mut cx.worker.ledger;
            let spoiled = engine
                .keyspace
                .hold(scope, &wanted, ledger, |hold| watch.is_spoiled(hold, wanted[0].key));
            debug_assert!(spoiled.is_ok(), "watched keys are locked");
            spoiled.unwrap_or(true)
        })
    }

    /// Checks the watched keys, some at a time. Returns whether the commands may begin.
    fn check(&mut self, cx: &mut TaskContext<'_>) -> bool {
        if self.is_spoiled(cx) {
            cx.session.reply().writer().null_array();
            self.next = usize::MAX;
            self.begun = true;
        } else if self.checked == self.watches.len() {
            let count = self.transaction.as_ref().map_or(0, |all| all.len());
            cx.session.reply().writer().array(count as u64);
            self.begun = true;
        }
        self.begun
    }

    /// Runs the next command, or a step of it: [`Step::Done`] when the command is finished.
    fn run_next(&mut self, cx: &mut TaskContext<'_>) -> Step {
        let Some(transaction) = &self.transaction else { return Step::Done };
        let Some(queued) = transaction.get(self.next) else { return Step::Done };
        let (command, args) = (queued.command, queued.request.args());
        let seed = cx.session.seed();
        if let Some(task) = &mut self.current {
            let mut inner = TaskContext {
                worker: cx.worker,
                session: cx.session,
                command,
                request: &queued.request,
                database: seed.database,
                owner: cx.owner,
            };
            let outcome = match task.step(&mut inner) {
                // Its locks are among those of the transaction.
                Ok(Step::Again | Step::TakeLocks) => return Step::Again,
                Ok(Step::Waiting) => return Step::Waiting,
                Ok(Step::Done) => Ok(Flow::Done),
                Err(error) => Err(error),
            };
            let task = self.current.take();
            cx.worker.garbage.extend(task.and_then(Task::discard));
            cx.worker.finish(cx.session, command, outcome, 0);
            return Step::Done;
        }
        let outcome = match &command.run {
            Run::Wide { fits, .. } if !fits(args) => Ok(Flow::Escalate),
            Run::Keyed(_) | Run::Wide { .. } | Run::Probing { .. } => {
                let held = cx.worker.run_held(cx.session, command, args, cx.owner);
                debug_assert!(held.is_ok(), "the keys are locked");
                held.unwrap_or(Ok(Flow::Escalate))
            }
            Run::Stepped(_) => Ok(Flow::Escalate),
            Run::Plain(_) | Run::Container(_) => {
                let mut call = Call { worker: cx.worker, session: cx.session, args, task: None };
                let outcome = call.run(command);
                self.current = call.task;
                if self.current.is_some() {
                    return Step::Again;
                }
                outcome
            }
        };
        let outcome = match outcome {
            Ok(Flow::Escalate) => match new_task(command, args, &seed) {
                Ok(task) => {
                    self.current = Some(task);
                    return Step::Again;
                }
                Err(error) => Err(error),
            },
            outcome => outcome,
        };
        cx.worker.finish(cx.session, command, outcome, 0);
        Step::Done
    }

    /// The command at `next` has ended: its effects get its words, a long request as a whole.
    fn settle(&mut self) {
        let transaction = &mut self.transaction;
        self.effects.settle(|at, body| {
            let Some(queued) = transaction.as_mut().and_then(|all| all.get_mut(at)) else { return };
            let nothing = Request::from_args(Args::from_slices(&[]));
            let mut request = Some(std::mem::replace(&mut queued.request, nothing));
            body.take(&mut request);
            if let Some(request) = request {
                queued.request = request;
            }
        });
    }

    /// The last step: what was collected becomes one record while the locks are still held.
    ///
    /// It takes no hold: the transaction may have no key in the selected database, and then somebody
    /// else may have reserved that.
    fn end(&mut self, cx: &mut TaskContext<'_>) {
        let collected = std::mem::take(&mut self.effects);
        if collected.is_empty() {
            return;
        }
        let outlet = &cx.worker.engine.keyspace.outlet;
        let sequence = outlet.next(cx.worker.id);
        if outlet.is_attached() {
            let body = Body::Transaction(collected);
            cx.worker.ledger.records.push(Record { sequence, database: cx.database, body });
        }
    }
}

fn new_task(command: &Command, args: Args<'_>, seed: &TaskSeed) -> Result<Box<dyn Task>> {
    match &command.run {
        Run::Wide { task, .. } | Run::Probing { task, .. } | Run::Stepped(task) => task(args, seed),
        Run::Keyed(_) | Run::Plain(_) | Run::Container(_) => Err(errors::SYNTAX),
    }
}

impl Task for ExecTask {
    fn add_locks(
        &mut self,
        cx: &mut TaskContext<'_>,
        set: &mut LockSet,
        from: usize,
    ) -> Option<usize> {
        // The upper half of the position is the command, the lower half its key.
        let (index, key) = (from >> 32, from & 0xffff_ffff);
        let keyspace = &cx.worker.engine.keyspace;
        if let Some(watch) = self.watches.get(key)
            && index == 0
        {
            set.add(keyspace, watch.database, &watch.name, Access::Shared);
            return Some(from + 1);
        }
        let key = if index == 0 { key - self.watches.len() } else { key };
        let database = self.database_of(index, cx.database, cx.worker);
        let queued = self.queued(index)?;
        let args = queued.request.args();
        match add_locks_of(queued.command, args, database, cx.worker, set, key) {
            Some(next) if index == 0 => Some(self.watches.len() + next),
            Some(next) => Some(index << 32 | next),
            None => Some((index + 1) << 32),
        }
    }

    fn begins_with_locks(&self, _: &Command) -> bool {
        true
    }

    fn reserves_databases(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.takes_databases)
    }

    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        if !self.begun && !self.check(cx) {
            return Ok(Step::Again);
        }
        if self.queued(self.next).is_none() {
            if let Some(watch) = self.watches.pop() {
                let scope = cx.scope();
                let worker = &mut *cx.worker;
                watch.end(&worker.engine.keyspace, scope);
                return Ok(Step::Again);
            }
            self.end(cx);
            return Ok(Step::Done);
        }
        self.effects.begin_command(self.next);
        cx.worker.ledger.transaction = Some(std::mem::take(&mut self.effects));
        let step = self.run_next(cx);
        self.effects = cx.worker.ledger.transaction.take().unwrap_or_default();
        if step == Step::Done {
            self.settle();
            self.next += 1;
            return Ok(Step::Again);
        }
        Ok(step)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        Some(self.transaction?)
    }
}

/// WATCH: each key by itself, as many as there are.
struct WatchTask {
    next: usize,
}

impl Task for WatchTask {
    fn begins_with_locks(&self, _: &Command) -> bool {
        false
    }

    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let (scope, args) = (cx.scope(), cx.request.args());
        let upto = args.len().min(self.next + WATCHED_PER_STEP);
        let mut bytes = 0;
        while self.next < upto && bytes <= NAME_BYTES_PER_STEP {
            let name = args.get(self.next);
            bytes += name.len();
            let is_known = |watch: &Watch| watch.database == scope.database && *watch.name == *name;
            if !cx.session.watches.iter().rev().take(KEYS_PER_STEP).any(is_known) {
                let worker = &mut *cx.worker;
                let ledger = &mut worker.ledger;
                match Watch::begin(&worker.engine.keyspace, scope, name, ledger) {
                    Ok(watch) => cx.session.watches.push(watch),
                    Err(Locked) => return Ok(Step::TakeLocks),
                }
            }
            self.next += 1;
        }
        if self.next < args.len() {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }
}

/// Ends watches in steps, then answers.
struct Unwatch {
    watches: Vec<Watch>,
    /// `None` if the answer has been given already.
    answer: Option<Result<&'static str>>,
}

impl Task for Unwatch {
    fn begins_with_locks(&self, _: &Command) -> bool {
        false
    }

    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let scope = Scope { owner: NOBODY, ..cx.scope() };
        end_watches(cx.worker, scope, &mut self.watches);
        if !self.watches.is_empty() {
            return Ok(Step::Again);
        }
        if let Some(answer) = self.answer.take() {
            cx.session.reply().writer().simple(answer?);
        }
        Ok(Step::Done)
    }
}

/// Ends a bounded number of watches.
fn end_watches(worker: &mut Worker, scope: Scope, watches: &mut Vec<Watch>) {
    for watch in watches.drain(watches.len().saturating_sub(WATCHED_PER_STEP)..) {
        watch.end(&worker.engine.keyspace, scope);
    }
}

impl Worker {
    /// Ends some of an abandoned session's watches. Returns true when none is left.
    pub fn end_some_watches(&mut self, session: &mut Session) -> bool {
        let scope = self.scope(session);
        end_watches(self, scope, &mut session.watches);
        self.settle_rest();
        session.watches.is_empty()
    }
}
