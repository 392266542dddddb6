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
use crate::keyspace::locks::NOBODY;
use crate::keyspace::watches::Exchange;
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
    call.worker.engine.keyspace.prepare(call.worker.id, index as usize);
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
    let is_attached = worker.engine.keyspace.outlet.is_attached();
    let body = is_attached.then(|| Body::Command(effects::command(words)));
    if let Some(transaction) = &mut worker.ledger.transaction {
        transaction.add(cx.database, body);
    } else if let Some(body) = body {
        worker.ledger.records.push(Record { sequence, database: cx.database, body });
    }
}

/// Whether the command has closed these databases to everybody else.
fn has_reserved(cx: &TaskContext<'_>, mut indexes: impl Iterator<Item = usize>) -> bool {
    let slot = cx.worker.engine.keyspace.gate.enter(cx.worker.id);
    cx.owner != NOBODY && indexes.all(|index| slot.reserved[index] == cx.owner)
}

/// FLUSHALL: every database is replaced by an empty one.
struct FlushTask {
    /// What comes in the place of the databases.
    empty: Vec<Arc<Database>>,
    /// Watched keys must be looked up, so the databases are closed meanwhile.
    reserves: bool,
    /// Of the databases that are exchanged already.
    exchanges: Vec<Exchange>,
    exchanged: bool,
}

impl FlushTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        match args.len() {
            1 => {}
            2 if parse::is(args.get(1), "async") || parse::is(args.get(1), "sync") => {}
            _ => return Err(errors::SYNTAX),
        }
        Ok(Box::new(FlushTask {
            empty: Vec::new(),
            reserves: false,
            exchanges: Vec::new(),
            exchanged: false,
        }))
    }

    /// Makes the database that will be at the next index. The shards of one that is in use are made
    /// here and now, so that no hold has to.
    fn prepare(&mut self, cx: &TaskContext<'_>) {
        let keyspace = &cx.worker.engine.keyspace;
        let database = Database::new(keyspace.workers());
        if keyspace.gate.enter(cx.worker.id).databases[self.empty.len()].is_prepared() {
            database.prepare();
        }
        self.empty.push(Arc::new(database));
    }

    /// Exchanges all databases. Returns false if one is watched and not closed to others.
    fn exchange(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let engine = cx.worker.engine.clone();
        let keyspace = &engine.keyspace;
        let reserved = has_reserved(cx, 0..keyspace.databases());
        let empty = &self.empty;
        let mut former = Vec::with_capacity(empty.len());
        let (worker, numbered) = (cx.worker.id, cx.worker.ledger.transaction.is_none());
        let sequence = keyspace.gate.exclusively(|cut| {
            if !reserved && (0..empty.len()).any(|index| cut.database(index).is_watched()) {
                return None;
            }
            for (index, database) in empty.iter().enumerate() {
                former.push(cut.replace(index, database));
            }
            Some(if numbered { keyspace.outlet.next(worker) } else { 0 })
        });
        let Some(sequence) = sequence else { return false };
        record(cx, sequence, &[b"FLUSHALL"]);
        for (former, now) in former.into_iter().zip(self.empty.drain(..)) {
            if former.is_watched() {
                self.exchanges.push(Exchange::new(former, now));
            } else {
                cx.worker.garbage.push(garbage(former));
            }
        }
        true
    }
}

impl Task for FlushTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        if !self.exchanged {
            if self.empty.len() < cx.worker.engine.keyspace.databases() {
                self.prepare(cx);
                return Ok(Step::Again);
            }
            self.exchanged = self.exchange(cx);
            self.reserves = !self.exchanged;
            return Ok(if self.exchanged { Step::Again } else { Step::TakeLocks });
        }
        if let Some(exchange) = self.exchanges.last_mut() {
            if !exchange.step() {
                let done = self.exchanges.pop().map(Exchange::into_objects);
                cx.worker.garbage.extend(done.into_iter().flatten().map(garbage));
            }
            return Ok(Step::Again);
        }
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }

    fn reserves_databases(&self) -> bool {
        self.reserves
    }
}

struct SwapTask {
    first: u8,
    second: u8,
    /// Watched keys must be looked up, so the databases are closed meanwhile.
    reserves: bool,
    /// Of the databases, which are exchanged already.
    exchange: Option<Exchange>,
}

impl SwapTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        // Both are read before either is compared with the number of databases.
        let index = |at: usize, error| parse::small_integer(args.get(at)).map_err(|_| error);
        let first = index(1, errors::INVALID_FIRST_DATABASE)?;
        let second = index(2, errors::INVALID_SECOND_DATABASE)?;
        match (u8::try_from(first), u8::try_from(second)) {
            (Ok(first), Ok(second)) => {
                Ok(Box::new(SwapTask { first, second, reserves: false, exchange: None }))
            }
            _ => Err(errors::DATABASE_OUT_OF_RANGE),
        }
    }

    /// Exchanges the databases. Returns false if one is watched and not closed to others.
    fn swap(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let engine = cx.worker.engine.clone();
        let indexes = [usize::from(self.first), usize::from(self.second)];
        let reserved = has_reserved(cx, indexes.into_iter());
        let (worker, numbered) = (cx.worker.id, cx.worker.ledger.transaction.is_none());
        let swapped = engine.keyspace.gate.exclusively(|cut| {
            let is_watched = indexes.iter().any(|&index| cut.database(index).is_watched());
            if is_watched && !reserved {
                return None;
            }
            cut.swap(indexes[0], indexes[1]);
            let objects = is_watched.then(|| indexes.map(|index| Arc::clone(cut.database(index))));
            Some((if numbered { engine.keyspace.outlet.next(worker) } else { 0 }, objects))
        });
        let Some((sequence, objects)) = swapped else { return false };
        let request = cx.request;
        record(cx, sequence, &[b"SWAPDB", request.args().get(1), request.args().get(2)]);
        // Exchanged with itself a database stays what it was.
        let objects = objects.filter(|_| self.first != self.second);
        self.exchange = objects.map(|[one, other]| Exchange::new(one, other));
        true
    }
}

impl Task for SwapTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        if usize::from(self.first.max(self.second)) >= cx.worker.engine.keyspace.databases() {
            return Err(errors::DATABASE_OUT_OF_RANGE);
        }
        match &mut self.exchange {
            None => {
                if !self.swap(cx) {
                    self.reserves = true;
                    return Ok(Step::TakeLocks);
                }
                if self.exchange.is_some() {
                    return Ok(Step::Again);
                }
            }
            Some(exchange) => {
                if exchange.step() {
                    return Ok(Step::Again);
                }
                let done = self.exchange.take().map(Exchange::into_objects);
                cx.worker.garbage.extend(done.into_iter().flatten().map(garbage));
            }
        }
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }

    fn reserves_databases(&self) -> bool {
        self.reserves
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
