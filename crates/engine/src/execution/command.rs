//! What a command is: its row, and the ways in which it may run.

pub mod container;
pub mod keys;

use resp::{Args, Protocol};

use crate::errors::Result;
use crate::execution::session::Session;
use crate::execution::task::Task;
use crate::execution::worker::Worker;
use crate::keyspace::hold::{Hold, Wanted};
use crate::output::Reply;
use crate::settings::Settings;
pub use container::{Container, Subcommand};
pub use keys::Keys;

/// How many words a command has, its name included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether a command of `words` words is well formed.
    #[inline]
    pub fn accepts(self, words: usize) -> bool {
        match self {
            Arity::Exactly(count) => words == count,
            Arity::AtLeast(count) => words >= count,
        }
    }
}

/// What the time of a command depends on, and how it keeps from delaying others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// At most this many units of work in one hold, whatever the arguments.
    Small(u64),
    /// A snapshot under the latch; encoding follows the socket.
    Streamed,
    /// A part is cut off under the latch; it is encoded and freed afterwards.
    Detached,
    /// Computed in the slow lane from snapshots, installed if nothing changed.
    Computed,
    /// Under key locks, in bounded steps.
    Stepped,
}

/// Properties of a command, combined with [`Flags::with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Changes data.
    pub const WRITE: Flags = Flags(1);
    /// Only reads data.
    pub const READ: Flags = Flags(1 << 1);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Executed at once inside MULTI instead of being queued.
    pub const CONTROLS_TRANSACTION: Flags = Flags(1 << 4);
    /// Takes arguments over 16 KiB in chunks.
    pub const TAKES_CHUNKS: Flags = Flags(1 << 5);
    /// Executed even while clients are paused.
    pub const NEVER_PAUSED: Flags = Flags(1 << 6);
    /// Without keys, and harmless while latches and the gate slot are held: it takes neither, so it
    /// may be part of a small transaction.
    pub const HARMLESS: Flags = Flags(1 << 7);
    /// Refuses a wrong number of words itself.
    pub const CHECKS_ARITY: Flags = Flags(1 << 8);
    /// Once begun it completes, whether its client is still there or not. Writes do so anyway.
    pub const COMPLETES: Flags = Flags(1 << 9);

    /// Both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Which locks a command takes when it runs in several steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// None: each step stands alone.
    None,
    /// Its keys.
    Keys,
    /// Every database.
    AllDatabases,
    /// The databases that its first two arguments name.
    NamedDatabases,
}

/// The description of a command, from which everything about it is projected.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// In lower case.
    pub name: &'static str,
    /// Number of words.
    pub arity: Arity,
    /// Properties.
    pub flags: Flags,
    /// The family it belongs to, as COMMAND DOCS names it.
    pub group: &'static str,
    /// Which arguments are keys.
    pub keys: Keys,
    /// How it keeps the promise.
    pub cost: Cost,
    /// What it locks if it takes several steps.
    pub locks: Locks,
    /// The version of Redis that introduced it.
    pub since: &'static str,
    /// Time complexity, for the documentation.
    pub complexity: &'static str,
    /// One line, for the documentation.
    pub summary: &'static str,
}

/// A row with its handler.
#[derive(Clone, Copy)]
pub struct Command {
    /// What it is.
    pub row: Row,
    /// What it does.
    pub run: Run,
}

/// A handler under one hold of the command's keys.
pub type Handler = fn(&mut Context<'_, '_>) -> Outcome;

/// Makes the task of a command that takes several steps.
pub type NewTask = fn(Args<'_>, &TaskSeed) -> Result<Box<dyn Task>>;

/// What a task may know of its session when it is made.
#[derive(Clone, Copy, Debug)]
pub struct TaskSeed {
    /// The index of the selected database.
    pub database: u8,
    /// The protocol of the reply.
    pub protocol: Protocol,
}

/// The ways in which a command may run.
#[derive(Clone, Copy)]
pub enum Run {
    /// In one hold of its keys, always.
    Keyed(Handler),
    /// In one hold if the arguments are few and small, else as a task.
    Wide {
        /// Whether these arguments fit into one hold, for certain.
        fits: fn(Args<'_>) -> bool,
        /// The handler for one hold.
        handler: Handler,
        /// The task for all else.
        task: NewTask,
    },
    /// In one hold if what it finds there is small, else as a task.
    Probing {
        /// The handler for one hold. It may answer [`Flow::Escalate`] before it changes anything.
        handler: Handler,
        /// The task for all else.
        task: NewTask,
    },
    /// Always as a task.
    Stepped(NewTask),
    /// Without keys, on the session or the server.
    Plain(Plain),
    /// The same, by one of several subcommands.
    Container(Container),
}

/// A handler without keys.
pub type Plain = fn(&mut Call<'_>) -> Outcome;

impl Command {
    /// The handler of a command without keys; `None` for any other command.
    ///
    /// # Errors
    /// The subcommand does not exist or has too few or too many words.
    pub fn plain(&self, args: Args<'_>) -> Result<Option<Plain>> {
        match &self.run {
            Run::Plain(handler) => Ok(Some(*handler)),
            Run::Container(container) => container.find(self.row.name, args).map(Some),
            _ => Ok(None),
        }
    }
}

/// How a handler ended when it did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Flow {
    /// The reply is written.
    Done,
    /// Nothing was done: the work does not fit into one hold after all.
    Escalate,
}

/// What a handler returns.
pub type Outcome = Result<Flow>;

/// What a handler under a hold has at hand.
pub struct Context<'a, 'h> {
    /// The latches of the command's keys.
    pub hold: &'a mut Hold<'h>,
    /// The command's words.
    pub args: Args<'a>,
    /// Its keys, in the order of the arguments.
    pub keys: &'a [Wanted<'a>],
    /// What CONFIG says.
    pub settings: &'a Settings,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// Whether the handler may answer [`Flow::Escalate`]. In a transaction that runs in one hold it
    /// may not: there is less to do than fits into it, which was found out before.
    pub may_escalate: bool,
}

/// What a handler without keys has at hand.
pub struct Call<'a> {
    /// The worker that executes it, and through it the engine.
    pub worker: &'a mut Worker,
    /// The session that sent it.
    pub session: &'a mut Session,
    /// The command's words.
    pub args: Args<'a>,
    /// Set by a handler whose command goes on as a task.
    pub task: Option<Box<dyn Task>>,
}

impl Call<'_> {
    /// Runs a command without keys.
    #[inline]
    pub fn run(&mut self, command: &Command) -> Outcome {
        match command.plain(self.args)? {
            Some(handler) => handler(self),
            None => Ok(Flow::Escalate),
        }
    }

    /// Writes the reply.
    pub fn reply(&mut self) -> Reply<'_> {
        self.session.reply()
    }
}
