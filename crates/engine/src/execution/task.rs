//! Commands that do not finish at once: parked on a lock, waiting for a job, or long.
//!
//! A connection has at most one [`Running`] command, a small state machine of stages. Each call of
//! [`Worker::advance`] takes bounded steps; between them other connections are served. A command
//! parks its connection, never its thread.

use resp::{Args, Request};
use structures::work;

use crate::errors::Result;
use crate::execution::command::{Command, Flags, Flow, Locks, Run, TaskSeed};
use crate::execution::session::Session;
use crate::execution::worker::{Incoming, Worker};
use crate::keyspace::hold::{Hold, Locked, Scope, Wanted};
use crate::keyspace::locks::{Access, NOBODY, Owner};
use crate::keyspace::lockset::{KEYS_PER_STEP, LockSet, NAME_BYTES_PER_STEP, Progress};
use crate::lanes::Discard;

/// Bytes of a long argument that are made contiguous in one step.
const FLATTEN_STEP_BYTES: usize = 64 * 1024;

/// Units that every step counts at least, so that a loop over steps ends.
const UNITS_PER_STEP: u64 = 20;

/// How often a paused command looks whether the pause is over.
const PAUSE_POLL_MS: i64 = 5;

/// How one step ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    Again,
    /// The connection's address will be resumed.
    Waiting,
    /// The locks of the command's keys are needed from here on.
    TakeLocks,
    /// The reply is complete.
    Done,
}

/// The part of a command that runs in steps.
pub trait Task: Send {
    /// Adds some of the locks that the command needs, from the `from`-th on. Returns where to go
    /// on, `None` when all are added. The default is what the command's row says.
    fn add_locks(
        &mut self,
        cx: &mut TaskContext<'_>,
        set: &mut LockSet,
        from: usize,
    ) -> Option<usize> {
        add_locks_of(cx.command, cx.request.args(), cx.database, cx.worker, set, from)
    }

    /// Whether locks are taken before the first step. The default is what the row says.
    fn begins_with_locks(&self, command: &Command) -> bool {
        command.row.locks != Locks::None
    }

    /// Takes one bounded step.
    ///
    /// # Errors
    /// The error reply; nothing of the command's effect remains then.
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step>;

    /// Whether other connections may see the keyspace while only half of the effect is there:
    /// then the databases that it holds exclusively are closed to them.
    fn reserves_databases(&self) -> bool {
        false
    }

    /// Gives up what may be large. The default drops the task where it is.
    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        None
    }
}

/// What a task has at hand in a step.
pub struct TaskContext<'a> {
    /// The worker that takes the step.
    pub worker: &'a mut Worker,
    /// The session that sent the command.
    pub session: &'a mut Session,
    /// Which command.
    pub command: &'static Command,
    /// Its words.
    pub request: &'a Request,
    /// The database that was selected when it was sent.
    pub database: u8,
    /// Whose locks its holds pass.
    pub owner: Owner,
}

impl TaskContext<'_> {
    /// The words of the command.
    pub fn args(&self) -> Args<'_> {
        self.request.args()
    }

    /// On whose behalf holds are taken.
    pub fn scope(&self) -> Scope {
        Scope { owner: self.owner, database: self.database, ..self.worker.scope(self.session) }
    }

    /// Takes the latches of `wanted` for one step.
    ///
    /// # Errors
    /// [`Locked`] if the command holds no locks and somebody else holds one of the keys.
    pub fn hold<R>(
        &mut self,
        wanted: &[Wanted<'_>],
        step: impl FnOnce(&mut Hold<'_>) -> R,
    ) -> std::result::Result<R, Locked> {
        let scope = self.scope();
        let Worker { engine, ledger, .. } = &mut *self.worker;
        engine.keyspace.hold(scope, wanted, ledger, step)
    }

    /// The key at position `index` of the words, to be read or written.
    pub fn wanted(&self, index: usize, access: Access) -> Wanted<'_> {
        Wanted { key: self.worker.engine.keyspace.key(self.request.args().get(index)), access }
    }
}

/// Adds the locks that a row asks for.
pub fn add_locks_of(
    command: &Command,
    args: Args<'_>,
    database: u8,
    worker: &Worker,
    set: &mut LockSet,
    from: usize,
) -> Option<usize> {
    let keyspace = &worker.engine.keyspace;
    match command.row.locks {
        Locks::AllDatabases => {
            (0..keyspace.databases()).for_each(|index| set.add_database(index as u8));
            None
        }
        Locks::NamedDatabases => {
            let named =
                (1..args.len()).filter_map(|at| crate::parse::small_integer(args.get(at)).ok());
            for index in named.filter(|&index| (0..keyspace.databases() as i64).contains(&index)) {
                set.add_database(index as u8);
            }
            None
        }
        Locks::None | Locks::Keys => {
            let count = command.row.keys.count(args);
            let upto = count.min(from + KEYS_PER_STEP);
            let (mut index, mut bytes) = (from, 0);
            while index < upto && bytes <= NAME_BYTES_PER_STEP {
                let (at, access) = command.row.keys.get(index);
                set.add(keyspace, database, args.get(at), access);
                (index, bytes) = (index + 1, bytes + args.arg_len(at));
            }
            (index < count).then_some(index)
        }
    }
}

enum Stage {
    /// Clients are paused.
    Paused,
    /// Long arguments are made contiguous; then the command begins anew.
    Flatten,
    /// The lock set is put together.
    Collect(usize),
    /// Its locks are taken.
    Acquire,
    /// The command itself.
    Run,
    /// The locks are given back.
    Release,
    /// The request is freed.
    Free,
}

enum Body {
    /// The command has not begun.
    Whole,
    /// The handler of one hold, under key locks.
    Handler,
    /// Steps.
    Task(Box<dyn Task>),
}

/// A command that is not finished.
pub struct Running {
    command: &'static Command,
    request: Option<Request>,
    database: u8,
    stage: Stage,
    body: Body,
    locks: Option<LockSet>,
    /// When the first step under locks was taken, Unix milliseconds.
    began_ms: Option<i64>,
    ticks: u64,
}

/// What [`Worker::advance`] left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// The command is finished: the next one may begin.
    Done,
    /// More steps are due.
    Again,
    /// The session will be resumed.
    Waiting,
}

impl Running {
    fn new(command: &'static Command, request: Request, database: u8, body: Body) -> Running {
        let (request, ticks, locks) = (Some(request), 0, None);
        Running {
            command,
            request,
            database,
            stage: Stage::Run,
            body,
            locks,
            began_ms: None,
            ticks,
        }
    }

    fn owner(&self) -> Owner {
        self.locks.as_ref().map_or(NOBODY, LockSet::owner)
    }

    /// Whether an absent client must not stop it, if it has begun.
    fn completes(&self) -> bool {
        let flags = self.command.row.flags;
        flags.has(Flags::WRITE) || flags.has(Flags::COMPLETES)
    }

    fn step(&mut self, worker: &mut Worker, session: &mut Session) -> Step {
        work::add(UNITS_PER_STEP);
        match self.stage {
            Stage::Paused => {
                if worker.is_paused(session, self.command) {
                    worker.resume_at(worker.now_ms + PAUSE_POLL_MS, session.address.session);
                    return Step::Waiting;
                }
                self.begin_anew(worker, session)
            }
            Stage::Flatten => {
                work::bytes(FLATTEN_STEP_BYTES);
                let request = self.request.as_mut();
                if request.is_some_and(|request| !request.flatten_step(FLATTEN_STEP_BYTES)) {
                    return Step::Again;
                }
                self.begin_anew(worker, session)
            }
            Stage::Collect(from) => self.collect(worker, session, from),
            Stage::Acquire => self.acquire(worker),
            Stage::Run => self.run(worker, session),
            Stage::Release => self.release(worker),
            Stage::Free => self.free(worker),
        }
    }

    /// Executes the command from the beginning; what is then running, if anything, replaces this.
    fn begin_anew(&mut self, worker: &mut Worker, session: &mut Session) -> Step {
        if let Some(request) = self.request.take() {
            worker.execute(session, Incoming::Owned(request));
        }
        Step::Done
    }

    fn collect(&mut self, worker: &mut Worker, session: &mut Session, from: usize) -> Step {
        let Some(request) = &self.request else { return Step::Done };
        let engine = worker.engine.clone();
        let address = session.address;
        let set = self.locks.get_or_insert_with(|| LockSet::new(&engine.keyspace, address));
        let (command, database) = (self.command, self.database);
        let next = match &mut self.body {
            Body::Task(task) => {
                let owner = set.owner();
                let mut cx = TaskContext { worker, session, command, request, database, owner };
                task.add_locks(&mut cx, set, from)
            }
            _ => add_locks_of(command, request.args(), database, worker, set, from),
        };
        self.stage = next.map_or(Stage::Acquire, Stage::Collect);
        Step::Again
    }

    fn acquire(&mut self, worker: &mut Worker) -> Step {
        let Some(set) = &mut self.locks else { return Step::Done };
        match set.acquire_step(&worker.engine.keyspace) {
            Progress::Again => Step::Again,
            Progress::Waiting => {
                worker.stats().parked.add(1);
                Step::Waiting
            }
            Progress::Held => {
                if let Body::Task(task) = &self.body
                    && task.reserves_databases()
                {
                    set.reserve(&worker.engine.keyspace);
                }
                self.stage = Stage::Run;
                Step::Again
            }
        }
    }

    fn run(&mut self, worker: &mut Worker, session: &mut Session) -> Step {
        if self.locks.is_none() {
            return self.run_now(worker, session);
        }
        // All steps under one set of locks see the same time: a key that has an expiry does not
        // vanish between two of them.
        let turn_ms = worker.now_ms;
        worker.now_ms = *self.began_ms.get_or_insert(turn_ms);
        let step = self.run_now(worker, session);
        worker.now_ms = turn_ms;
        step
    }

    fn run_now(&mut self, worker: &mut Worker, session: &mut Session) -> Step {
        let Some(request) = &self.request else { return Step::Done };
        let (command, database, owner) = (self.command, self.database, self.owner());
        let result = match &mut self.body {
            Body::Whole => return self.begin_anew(worker, session),
            Body::Handler => match worker.run_held(session, command, request.args(), owner) {
                // The command holds its locks.
                Err(Locked) => Ok(Step::TakeLocks),
                Ok(Ok(Flow::Escalate)) => return self.escalate(session),
                Ok(outcome) => outcome.map(|_| Step::Done),
            },
            Body::Task(task) => {
                task.step(&mut TaskContext { worker, session, command, request, database, owner })
            }
        };
        worker.settle(&mut self.request);
        match result {
            Ok(Step::TakeLocks) => {
                self.stage = Stage::Collect(0);
                Step::Again
            }
            Ok(Step::Done) => self.finish(worker, session, Ok(())),
            Ok(step) => step,
            Err(error) => self.finish(worker, session, Err(error)),
        }
    }

    fn escalate(&mut self, session: &Session) -> Step {
        if let (Run::Wide { task, .. } | Run::Probing { task, .. }, Some(request)) =
            (&self.command.run, &self.request)
        {
            let seed = TaskSeed { database: self.database, protocol: session.protocol };
            if let Ok(task) = task(request.args(), &seed) {
                self.body = Body::Task(task);
                return Step::Again;
            }
        }
        Step::Done
    }

    fn finish(&mut self, worker: &mut Worker, session: &mut Session, result: Result<()>) -> Step {
        worker.finish(session, self.command, result.map(|()| Flow::Done), self.ticks);
        self.stage = Stage::Release;
        Step::Again
    }

    fn release(&mut self, worker: &mut Worker) -> Step {
        let released = match &mut self.locks {
            Some(set) => set.release_step(&worker.engine.keyspace, &mut worker.ledger),
            None => true,
        };
        worker.settle(&mut None);
        if released {
            self.stage = Stage::Free;
        }
        Step::Again
    }

    fn free(&mut self, worker: &mut Worker) -> Step {
        if let Some(request) = self.request.take() {
            worker.free_request(request);
        }
        if let Some(set) = self.locks.take_if(|set| set.is_large()) {
            worker.garbage.push(Box::new(set));
        }
        if let Body::Task(task) = std::mem::replace(&mut self.body, Body::Whole) {
            worker.garbage.extend(task.discard());
        }
        Step::Done
    }
}

impl Worker {
    /// Begins a command that cannot be finished here and now, and takes its first steps.
    pub(crate) fn start(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        request: Request,
        start: Start,
    ) {
        let database = session.database;
        let (body, stage) = match start {
            Start::Paused => (Body::Whole, Stage::Paused),
            Start::Flatten => (Body::Whole, Stage::Flatten),
            Start::Locked => (Body::Handler, Stage::Collect(0)),
            Start::Task(task) if task.begins_with_locks(command) => {
                (Body::Task(task), Stage::Collect(0))
            }
            Start::Task(task) => (Body::Task(task), Stage::Run),
        };
        let mut running = Running::new(command, request, database, body);
        running.stage = stage;
        if matches!(running.stage, Stage::Paused) {
            self.end_write(session);
        } else if running.completes() {
            self.begin_write(session);
        }
        session.running = Some(Box::new(running));
    }

    /// Takes steps of the session's running command until it is finished, waits, or has used about
    /// `us` microseconds. A step itself is bounded in counted work.
    pub fn advance(&mut self, session: &mut Session, us: u64) -> Advanced {
        let mut ticks = self.ticks();
        let deadline = ticks.wrapping_add(self.engine.clock.ticks_of_us(us));
        loop {
            let Some(mut running) = session.running.take() else { return Advanced::Done };
            let step = running.step(self, session);
            let now = self.ticks();
            running.ticks += now.wrapping_sub(ticks);
            self.note_hold(running.command, now.wrapping_sub(ticks));
            ticks = now;
            if step == Step::Done {
                // A command that began anew may be running in its place.
                if session.running.is_none() {
                    self.end_write(session);
                    return Advanced::Done;
                }
                continue;
            }
            session.running = Some(running);
            if step == Step::Waiting {
                return Advanced::Waiting;
            }
            if now.wrapping_sub(deadline) as i64 >= 0 {
                return Advanced::Again;
            }
        }
    }

    /// The client is gone. Reads stop where they are; a write that has begun completes, one that
    /// waits for the end of a pause does not.
    pub fn abandon(&mut self, session: &mut Session) {
        session.closing = true;
        session.output.clear(&mut self.garbage);
        if let Some(transaction) = session.transaction.take() {
            self.garbage.push(transaction);
        }
        match &mut session.running {
            Some(running) if running.completes() && !matches!(running.stage, Stage::Paused) => {
                self.orphan_write(session);
            }
            Some(running) => running.stage = Stage::Release,
            None => {}
        }
    }
}

/// How a command begins that cannot be finished here and now.
pub enum Start {
    /// When the pause is over.
    Paused,
    /// When its long arguments are contiguous.
    Flatten,
    /// With the locks of its keys, then in one hold.
    Locked,
    /// In steps.
    Task(Box<dyn Task>),
}
