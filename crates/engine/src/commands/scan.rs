//! Walks: SCAN and KEYS.

use resp::{Args, Protocol, Writer};
use structures::object::Object;
use structures::table::EntryRef;

use crate::errors::{self, Result};
use crate::execution::command::{Arity, Command, Cost, Flags, Keys, Locks, Row, Run, TaskSeed};
use crate::execution::task::{Step, Task, TaskContext};
use crate::glob::Matcher;
use crate::keyspace::database::Database;
use crate::keyspace::walk::Cursor;
use crate::parse;
use crate::sync::Arc;
use crate::types::Type;

/// Bucket chains that one step visits, in one hold each.
const CHAINS_PER_STEP: usize = 8;

/// Bytes of patterns that one step compares.
const COMPARED_BYTES_PER_STEP: usize = 16 * 1024;

/// Copying as many bytes takes as long as comparing one.
const BYTES_COPIED_PER_COMPARED: usize = 4;

/// Bytes and number of the names that a chain mostly has at most.
const ROOM_BYTES: usize = 4 * 1024;
const ROOM_NAMES: usize = 64;

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

    /// Visits one chain.
    fn step(&mut self, cx: &mut TaskContext<'_>, visit: impl FnMut(EntryRef<'_, Object>)) {
        let Some(cursor) = self.cursor else { return };
        let scope = cx.scope();
        #[cfg(all(shuttle, planted_bug = "snapshot"))]
        (self.database = cx.worker.engine.keyspace.current(scope));
        let worker = &mut *cx.worker;
        let (keyspace, ledger) = (&worker.engine.keyspace, &mut worker.ledger);
        self.cursor = keyspace.walk_step(&self.database, scope, cursor, ledger, visit);
    }
}

/// Names that were visited and are compared with a pattern, which never happens under a latch:
/// nobody knows how long that takes.
#[derive(Default)]
struct Sieve {
    /// The visited names, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The next name to be compared, where it begins, and how far that has come.
    next: usize,
    begin: usize,
    matcher: Matcher,
    /// Those that match.
    names: Names,
}

impl Sieve {
    /// Room for the names of one chain, so that none is made under a latch unless they are long.
    fn make_room(&mut self) {
        self.bytes.reserve(ROOM_BYTES);
        self.ends.reserve(ROOM_NAMES);
    }

    fn visit(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
    }

    /// Compares what was visited, all names with no pattern being wanted. Returns false when the
    /// budget is used up before that is done.
    fn sift(&mut self, pattern: Option<&[u8]>, budget: &mut usize) -> bool {
        while let Some(&end) = self.ends.get(self.next) {
            if *budget == 0 {
                return false;
            }
            let name = &self.bytes[self.begin..end];
            let wanted = match pattern {
                None => Some(true),
                Some(pattern) => self.matcher.advance(pattern, name, budget),
            };
            match wanted {
                None => return false,
                Some(true) => self.names.push(name),
                Some(false) => {}
            }
            // It has been copied, too.
            *budget = budget.saturating_sub(name.len() / BYTES_COPIED_PER_COMPARED);
            (self.next, self.begin, self.matcher) = (self.next + 1, end, Matcher::default());
        }
        self.bytes.clear();
        self.ends.clear();
        (self.next, self.begin) = (0, 0);
        true
    }
}

struct KeysTask {
    walk: Option<Walk>,
    sieve: Sieve,
}

impl KeysTask {
    fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(KeysTask { walk: None, sieve: Sieve::default() }))
    }
}

impl Task for KeysTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let walk = self.walk.get_or_insert_with(|| Walk::begin(cx, Cursor::START));
        let (sieve, pattern) = (&mut self.sieve, cx.request.args().get(1));
        let mut budget = COMPARED_BYTES_PER_STEP;
        for _ in 0..CHAINS_PER_STEP {
            if !sieve.sift(Some(pattern), &mut budget) {
                return Ok(Step::Again);
            }
            if walk.cursor.is_none() {
                std::mem::take(&mut sieve.names).write(cx);
                return Ok(Step::Done);
            }
            sieve.make_room();
            walk.step(cx, |entry| sieve.visit(entry.key()));
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
    sieve: Sieve,
}

impl ScanTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let cursor = parse::cursor(args.get(1))?;
        parse::check_words(args, "scan")?;
        let mut task = ScanTask {
            walk: None,
            cursor: Cursor::from_u64(cursor),
            pattern: None,
            of_type: None,
            count: 10,
            visited: 0,
            chains: 0,
            sieve: Sieve::default(),
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

    /// Visits one chain.
    fn visit(&mut self, cx: &mut TaskContext<'_>, walk: &mut Walk) {
        let of_type = self.of_type.map(|at| cx.request.args().get(at));
        let (sieve, visited) = (&mut self.sieve, &mut self.visited);
        sieve.make_room();
        walk.step(cx, |entry| {
            *visited += 1;
            if of_type.is_none_or(|of| parse::is(of, Type::of(&entry.value()).name())) {
                sieve.visit(entry.key());
            }
        });
        self.chains += 1;
    }

    fn answer(&mut self, cx: &mut TaskContext<'_>, walk: &Walk) {
        let next = walk.cursor.map_or(0, Cursor::to_u64);
        let mut reply = cx.session.reply();
        reply.writer().array(2);
        reply.writer().bulk(itoa::Buffer::new().format(next).as_bytes());
        std::mem::take(&mut self.sieve.names).write(cx);
    }
}

impl Task for ScanTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let pattern = self.pattern.map(|at| cx.request.args().get(at));
        let pattern = pattern.filter(|&pattern| pattern != b"*");
        let cursor = self.cursor;
        let mut walk = self.walk.take().unwrap_or_else(|| Walk::begin(cx, cursor));
        let mut budget = COMPARED_BYTES_PER_STEP;
        let mut step = Step::Again;
        for _ in 0..CHAINS_PER_STEP {
            if !self.sieve.sift(pattern, &mut budget) {
                break;
            }
            if self.is_enough() || walk.cursor.is_none() {
                self.answer(cx, &walk);
                step = Step::Done;
                break;
            }
            self.visit(cx, &mut walk);
        }
        self.walk = Some(walk);
        Ok(step)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn crate::lanes::Discard>> {
        self.walk.map(|walk| super::databases::garbage(walk.database))
    }
}
