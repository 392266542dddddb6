//! Whole databases: SELECT, DBSIZE, FLUSHALL, SWAPDB.

use resp::Args;
use structures::object::Object;
use structures::table::Table;

use crate::effects::{self, Body, Record};
use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Call, Command, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::database::Database;
use crate::lanes::Discard;
use crate::parse;
use crate::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "select",
            arity: Arity::Exactly(2),
            flags: Flags::FAST,
            group: "connection",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Changes the selected database.",
        },
        run: Run::Plain(select),
    },
    Command {
        row: Row {
            name: "dbsize",
            arity: Arity::Exactly(1),
            flags: Flags::READ.with(Flags::FAST),
            group: "server",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the number of keys in the database.",
        },
        run: Run::Plain(dbsize),
    },
    Command {
        row: Row {
            name: "flushall",
            arity: Arity::AtLeast(1),
            flags: Flags::WRITE,
            group: "server",
            keys: Keys::None,
            cost: Cost::Detached,
            locks: Locks::AllDatabases,
            since: "1.0.0",
            complexity: "O(1); memory is freed in the background",
            summary: "Removes all keys of all databases.",
        },
        run: Run::Stepped(FlushTask::start),
    },
    Command {
        row: Row {
            name: "swapdb",
            arity: Arity::Exactly(3),
            flags: Flags::WRITE.with(Flags::FAST),
            group: "server",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::NamedDatabases,
            since: "4.0.0",
            complexity: "O(1)",
            summary: "Exchanges two databases.",
        },
        run: Run::Stepped(SwapTask::start),
    },
];

fn select(call: &mut Call<'_>) -> Outcome {
    let index = parse::small_integer(call.args.get(1))?;
    if !(0..call.worker.engine.keyspace.databases() as i64).contains(&index) {
        return Err(errors::DATABASE_OUT_OF_RANGE);
    }
    call.session.database = index as u8;
    call.reply().writer().simple("OK");
    Ok(Flow::Done)
}

fn dbsize(call: &mut Call<'_>) -> Outcome {
    let scope = call.worker.scope(call.session);
    let (keys, _) = call.worker.engine.keyspace.key_counts(scope);
    call.reply().writer().int(keys as i64);
    Ok(Flow::Done)
}

/// Takes the number of an effect under the gate, and its record.
fn record(cx: &mut TaskContext<'_>, sequence: u64, words: &[&[u8]]) {
    let worker = &mut *cx.worker;
    if let Some(commands) = &mut worker.ledger.transaction {
        commands.push((cx.database, effects::command(words)));
    } else if worker.engine.keyspace.outlet.is_attached() {
        let body = Body::Command(effects::command(words));
        worker.ledger.records.push(Record { sequence, database: cx.database, body });
    }
}

/// FLUSHALL: every database is replaced by an empty one.
struct FlushTask;

impl FlushTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        match args.len() {
            1 => {}
            2 if parse::is(args.get(1), "async") || parse::is(args.get(1), "sync") => {}
            _ => return Err(errors::SYNTAX),
        }
        Ok(Box::new(FlushTask))
    }
}

impl Task for FlushTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let engine = cx.worker.engine.clone();
        let keyspace = &engine.keyspace;
        let empty: Vec<Arc<Database>> = (0..keyspace.databases())
            .map(|_| Arc::new(Database::new(keyspace.workers())))
            .collect();
        let mut former = Vec::with_capacity(empty.len());
        let numbered = cx.worker.ledger.transaction.is_none();
        let sequence = keyspace.gate.exclusively(|cut| {
            for (index, database) in empty.iter().enumerate() {
                former.push(cut.replace(index, database));
            }
            if numbered { keyspace.outlet.next() } else { 0 }
        });
        record(cx, sequence, &[b"FLUSHALL"]);
        cx.worker.garbage.extend(former.into_iter().map(garbage));
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }
}

struct SwapTask {
    first: u8,
    second: u8,
}

impl SwapTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        // Both are read before either is compared with the number of databases.
        let index = |at: usize, error| parse::small_integer(args.get(at)).map_err(|_| error);
        let first = index(1, errors::INVALID_FIRST_DATABASE)?;
        let second = index(2, errors::INVALID_SECOND_DATABASE)?;
        match (u8::try_from(first), u8::try_from(second)) {
            (Ok(first), Ok(second)) => Ok(Box::new(SwapTask { first, second })),
            _ => Err(errors::DATABASE_OUT_OF_RANGE),
        }
    }
}

impl Task for SwapTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let engine = cx.worker.engine.clone();
        let (first, second) = (usize::from(self.first), usize::from(self.second));
        if first.max(second) >= engine.keyspace.databases() {
            return Err(errors::DATABASE_OUT_OF_RANGE);
        }
        let numbered = cx.worker.ledger.transaction.is_none();
        let sequence = engine.keyspace.gate.exclusively(|cut| {
            cut.swap(first, second);
            if numbered { engine.keyspace.outlet.next() } else { 0 }
        });
        let request = cx.request;
        record(cx, sequence, &[b"SWAPDB", request.args().get(1), request.args().get(2)]);
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }
}

/// A database object that is no longer at any index, or a pin of one.
pub(super) fn garbage(database: Arc<Database>) -> Box<dyn Discard> {
    Box::new(FormerDatabase { database: Some(database), tables: Vec::new() })
}

struct FormerDatabase {
    database: Option<Arc<Database>>,
    tables: Vec<Table<Object>>,
}

impl Discard for FormerDatabase {
    fn discard_step(&mut self, nodes: usize) -> bool {
        if let Some(database) = self.database.take() {
            // Others that still work on it hand their reference to the reaper as well, so the last
            // one is always let go here, on the reaper's thread.
            if let Some(database) = Arc::into_inner(database) {
                self.tables = database.into_tables().collect();
            }
        }
        let mut budget = nodes;
        while let Some(table) = self.tables.last_mut() {
            let before = table.len();
            if !table.drop_step(budget) {
                return false;
            }
            self.tables.pop();
            budget = budget.saturating_sub(before);
            if budget == 0 {
                break;
            }
        }
        self.tables.is_empty()
    }
}
