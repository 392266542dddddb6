//! Walks: SCAN and KEYS.

use resp::{Args, Protocol, Writer};
use structures::object::Object;
use structures::table::EntryRef;

use crate::errors::{self, Result};
use crate::execution::command::{Arity, Command, Cost, Flags, Keys, Locks, Row, Run, TaskSeed};
use crate::execution::task::{Step, Task, TaskContext};
use crate::glob;
use crate::keyspace::database::Database;
use crate::keyspace::walk::Cursor;
use crate::parse;
use crate::sync::Arc;
use crate::types::Type;

/// Bucket chains that one step visits, in one hold each.
const CHAINS_PER_STEP: usize = 32;

/// Encoded names are collected in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// Chains that SCAN visits for each key that its COUNT asks for, so that a call in an almost empty
/// database ends.
const CHAINS_PER_COUNT: u64 = 10;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "scan",
            arity: Arity::AtLeast(2),
            flags: Flags::READ,
            group: "generic",
            keys: Keys::None,
            cost: Cost::Stepped,
            locks: Locks::None,
            since: "2.8.0",
            complexity: "O(COUNT) for every call",
            summary: "Iterates over the keys of a database.",
        },
        run: Run::Stepped(ScanTask::start),
    },
    Command {
        row: Row {
            name: "keys",
            arity: Arity::Exactly(2),
            flags: Flags::READ,
            group: "generic",
            keys: Keys::None,
            cost: Cost::Stepped,
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(N)",
            summary: "Returns all keys that match a pattern.",
        },
        run: Run::Stepped(KeysTask::start),
    },
];

/// Encoded bulk strings, counted.
#[derive(Default)]
struct Names {
    count: u64,
    pieces: Vec<Vec<u8>>,
}

impl Names {
    fn push(&mut self, name: &[u8]) {
        if self.pieces.last().is_none_or(|piece| piece.len() + name.len() > PIECE_BYTES) {
            let first = if self.pieces.is_empty() { 256 } else { PIECE_BYTES };
            self.pieces.push(Vec::with_capacity(first));
        }
        if let Some(piece) = self.pieces.last_mut() {
            Writer::new(piece, Protocol::Resp2).bulk(name);
        }
        self.count += 1;
    }

    /// Answers with an array of all names.
    fn write(self, cx: &mut TaskContext<'_>) {
        let mut reply = cx.session.reply();
        reply.writer().array(self.count);
        if let [only] = &self.pieces[..] {
            return reply.writer().raw(only);
        }
        self.pieces.into_iter().for_each(|piece| reply.bytes(piece));
    }
}

/// A walk that a task goes on with in every step.
struct Walk {
    database: Arc<Database>,
    cursor: Option<Cursor>,
}

impl Walk {
    fn begin(cx: &TaskContext<'_>, cursor: Cursor) -> Walk {
        let database = cx.worker.engine.keyspace.current(cx.scope());
        Walk { database, cursor: Some(cursor) }
    }

    /// Visits one chain. Returns whether there is more.
    fn step(&mut self, cx: &mut TaskContext<'_>, visit: impl FnMut(EntryRef<'_, Object>)) -> bool {
        let Some(cursor) = self.cursor else { return false };
        let scope = cx.scope();
        #[cfg(all(shuttle, planted_bug = "snapshot"))]
        (self.database = cx.worker.engine.keyspace.current(scope));
        let worker = &mut *cx.worker;
        let (keyspace, ledger) = (&worker.engine.keyspace, &mut worker.ledger);
        self.cursor = keyspace.walk_step(&self.database, scope, cursor, ledger, visit);
        self.cursor.is_some()
    }
}

struct KeysTask {
    walk: Option<Walk>,
    names: Names,
}

impl KeysTask {
    fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(KeysTask { walk: None, names: Names::default() }))
    }
}

impl Task for KeysTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let walk = self.walk.get_or_insert_with(|| Walk::begin(cx, Cursor::START));
        let (names, pattern) = (&mut self.names, cx.request.args().get(1));
        for _ in 0..CHAINS_PER_STEP {
            let more = walk.step(cx, |entry| {
                if glob::matches(pattern, entry.key()) {
                    names.push(entry.key());
                }
            });
            if !more {
                std::mem::take(names).write(cx);
                return Ok(Step::Done);
            }
        }
        Ok(Step::Again)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn crate::lanes::Discard>> {
        self.walk.map(|walk| super::databases::garbage(walk.database))
    }
}

struct ScanTask {
    walk: Option<Walk>,
    cursor: Cursor,
    /// Position of the pattern among the words.
    pattern: Option<usize>,
    /// Position of the type among the words.
    of_type: Option<usize>,
    /// Keys that the client wants to be visited.
    count: u64,
    visited: u64,
    chains: u64,
    names: Names,
}

impl ScanTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let cursor = parse::cursor(args.get(1))?;
        let mut task = ScanTask {
            walk: None,
            cursor: Cursor::from_u64(cursor),
            pattern: None,
            of_type: None,
            count: 10,
            visited: 0,
            chains: 0,
            names: Names::default(),
        };
        let mut index = 2;
        while index < args.len() {
            let (option, has_value) = (args.get(index), index + 1 < args.len());
            if parse::is(option, "count") && has_value {
                let count = parse::integer(args.get(index + 1))?;
                task.count = u64::try_from(count).ok().filter(|&n| n > 0).ok_or(errors::SYNTAX)?;
            } else if parse::is(option, "match") && has_value {
                task.pattern = Some(index + 1);
            } else if parse::is(option, "type") && has_value {
                task.of_type = Some(index + 1);
            } else {
                return Err(errors::SYNTAX);
            }
            index += 2;
        }
        Ok(Box::new(task))
    }

    fn is_enough(&self) -> bool {
        self.visited >= self.count || self.chains >= self.count.saturating_mul(CHAINS_PER_COUNT)
    }
}

impl Task for ScanTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let args = cx.request.args();
        let pattern = self.pattern.map(|at| args.get(at)).filter(|&pattern| pattern != b"*");
        let of_type = self.of_type.map(|at| args.get(at));
        let cursor = self.cursor;
        let mut walk = self.walk.take().unwrap_or_else(|| Walk::begin(cx, cursor));
        for _ in 0..CHAINS_PER_STEP {
            let (names, visited) = (&mut self.names, &mut self.visited);
            let more = walk.step(cx, |entry| {
                *visited += 1;
                let wanted = pattern.is_none_or(|pattern| glob::matches(pattern, entry.key()))
                    && of_type.is_none_or(|of| parse::is(of, Type::of(&entry.value()).name()));
                if wanted {
                    names.push(entry.key());
                }
            });
            self.chains += 1;
            if !more || self.is_enough() {
                let next = walk.cursor.map_or(0, Cursor::to_u64);
                let mut reply = cx.session.reply();
                reply.writer().array(2);
                reply.writer().bulk(itoa::Buffer::new().format(next).as_bytes());
                std::mem::take(&mut self.names).write(cx);
                self.walk = Some(walk);
                return Ok(Step::Done);
            }
        }
        self.walk = Some(walk);
        Ok(Step::Again)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn crate::lanes::Discard>> {
        self.walk.map(|walk| super::databases::garbage(walk.database))
    }
}
