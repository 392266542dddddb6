//! LPOS: where elements of a list are.

use std::collections::VecDeque;

use structures::list::{Cursor, Found, List};
use structures::object::Object;
use structures::table::Value;

use super::keys::wanted_key;
use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::locks::Access;
use crate::lanes::Discard;
use crate::output::Reply;
use crate::parse;
use crate::types::list;
use resp::Args;

/// Matches that one step finds: each begins a search of its own.
const FOUND_PER_STEP: usize = 16;

/// Positions that one step answers.
const ANSWERED_PER_STEP: usize = 512;

pub(super) const COMMANDS: &[Command] = &[Command {
    row: Row {
        name: "lpos",
        arity: Arity::AtLeast(3),
        flags: Flags::READ,
        group: "list",
        keys: Keys::First(Access::Shared),
        cost: Cost::Stepped,
        locks: Locks::None,
        since: "6.0.6",
        complexity: "O(N), from a snapshot",
        summary: "Returns the positions of elements that are equal to a value.",
    },
    run: Run::Probing { handler: lpos, task: LposTask::start },
}];

/// What is searched for.
struct Options {
    backwards: bool,
    /// Matches to pass over.
    skip: u64,
    /// Matches to return; one, and alone, if it is absent.
    count: Option<u64>,
    /// Elements to compare at most.
    compared_max: u64,
}

impl Options {
    fn read(args: Args<'_>) -> Result<Options> {
        parse::check_words(args, "lpos")?;
        let (mut rank, mut count, mut compared_max) = (1, None, 0);
        let mut index = 3;
        while index < args.len() {
            let option = args.prefix(index);
            if index + 1 == args.len() {
                return Err(errors::SYNTAX);
            }
            let value = args.prefix(index + 1);
            if parse::is(option, "rank") {
                rank = parse::integer(value)?;
                if rank == 0 {
                    return Err(errors::RANK_ZERO);
                }
            } else if parse::is(option, "count") {
                let wanted = not_negative(value, errors::NEGATIVE_COUNT)?;
                count = Some(if wanted == 0 { u64::MAX } else { wanted });
            } else if parse::is(option, "maxlen") {
                compared_max = not_negative(value, errors::NEGATIVE_MAXLEN)?;
            } else {
                return Err(errors::SYNTAX);
            }
            index += 2;
        }
        let compared_max = if compared_max == 0 { u64::MAX } else { compared_max };
        Ok(Options { backwards: rank < 0, skip: rank.unsigned_abs() - 1, count, compared_max })
    }

    fn wanted(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Takes a match into account. Returns whether it is one that was asked for.
    fn takes(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }

    /// Begins the answer. Positions follow if several may have been asked for.
    fn begin_answer(&self, found: usize, first: Option<u64>, reply: &mut Reply<'_>) {
        match (self.count, first) {
            (Some(_), _) => reply.writer().array(found as u64),
            (None, Some(index)) => reply.writer().int(index as i64),
            (None, None) => reply.writer().null(),
        }
    }
}

fn not_negative(text: &[u8], error: errors::CommandError) -> Result<u64> {
    match parse::integer(text) {
        Ok(value) => u64::try_from(value).map_err(|_| error),
        Err(_) => Err(error),
    }
}

fn lpos(cx: &mut Context<'_, '_>) -> Outcome {
    let mut options = Options::read(cx.args)?;
    let needle = cx.args.get(2);
    let mut found = Vec::new();
    if let Some(entry) = cx.hold.look_up(cx.keys[0].key) {
        let Value::Object(object) = entry.value() else { return Err(errors::WRONG_TYPE) };
        let len = list::len(&object)?;
        let Object::PackedList(packed) = &*object else { return Ok(Flow::Escalate) };
        let compared = options.compared_max.min(len);
        for step in 0..compared {
            let index = if options.backwards { len - 1 - step } else { step };
            let is_equal = packed.get(index as usize) == Some(needle);
            if is_equal && options.takes() {
                found.push(index);
                if found.len() as u64 == options.wanted() {
                    break;
                }
            }
        }
    }
    options.begin_answer(found.len(), found.first().copied(), &mut cx.reply);
    if options.count.is_some() {
        found.iter().for_each(|&index| cx.reply.writer().int(index as i64));
    }
    Ok(Flow::Done)
}

/// LPOS on a big list: a snapshot of it is searched in steps, without locks.
struct LposTask {
    options: Options,
    /// `None` until the list was looked up.
    list: Option<List>,
    cursor: Option<Cursor>,
    found: Positions,
    is_answering: bool,
}

/// Positions in pieces, so that they are never copied because they became many.
#[derive(Default)]
struct Positions {
    pieces: VecDeque<Vec<u64>>,
    count: u64,
}

impl Positions {
    fn add(&mut self, index: u64) {
        self.count += 1;
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < ANSWERED_PER_STEP => piece.push(index),
            _ => self.pieces.push_back(vec![index]),
        }
    }
}

impl LposTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let options = Options::read(args)?;
        Ok(Box::new(LposTask {
            options,
            list: None,
            cursor: None,
            found: Positions::default(),
            is_answering: false,
        }))
    }

    /// Answers a piece of what was found. Returns whether there is more.
    fn answer(&mut self, reply: &mut Reply<'_>) -> bool {
        if !std::mem::replace(&mut self.is_answering, true) {
            let first = self.found.pieces.front().and_then(|piece| piece.first()).copied();
            self.options.begin_answer(self.found.count as usize, first, reply);
            return self.options.count.is_some();
        }
        let piece = self.found.pieces.pop_front().unwrap_or_default();
        piece.iter().for_each(|&index| reply.writer().int(index as i64));
        !self.found.pieces.is_empty()
    }

    /// The first element that is compared, and the end of those that are, in the direction of the
    /// search.
    fn bounds(&self, len: u64) -> (u64, u64) {
        let compared = self.options.compared_max.min(len);
        if self.options.backwards { (len - 1, len - compared) } else { (0, compared) }
    }

    /// Searches on. Returns whether there is more to do.
    fn search(&mut self, needle: &[u8]) -> bool {
        let Some(list) = &self.list else { return false };
        if list.is_empty() {
            return false;
        }
        let (first, bound) = self.bounds(list.len());
        let backwards = self.options.backwards;
        let is_outside = |index: u64| if backwards { index < bound } else { index >= bound };
        let mut cursor = self.cursor.unwrap_or(Cursor::at(first));
        for _ in 0..FOUND_PER_STEP {
            if is_outside(cursor.index) {
                return false;
            }
            let index = match list::find(list, cursor, needle, backwards) {
                Found::Nothing => return false,
                Found::Pending(next) => {
                    self.cursor = Some(next);
                    return true;
                }
                Found::At(index) if is_outside(index) => return false,
                Found::At(index) => index,
            };
            if self.options.takes() {
                self.found.add(index);
            }
            if self.found.count == self.options.wanted() || (backwards && index == 0) {
                return false;
            }
            cursor = Cursor::at(if backwards { index - 1 } else { index + 1 });
        }
        self.cursor = Some(cursor);
        true
    }
}

impl Task for LposTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        if self.list.is_none() {
            let wanted = [wanted_key(cx, 1, Access::Shared)];
            let held = cx.hold(&wanted, |hold| {
                let Some(entry) = hold.look_up(wanted[0].key) else { return Ok(List::new()) };
                let Value::Object(object) = entry.value() else { return Err(errors::WRONG_TYPE) };
                list::len(&object)?;
                Ok(match &*object {
                    Object::List(own) => own.clone(),
                    Object::PackedList(packed) => list::unpacked(packed),
                    _ => List::new(),
                })
            });
            let Ok(list) = held else { return Ok(Step::TakeLocks) };
            self.list = Some(list?);
            return Ok(Step::Again);
        }
        let more = (!self.is_answering && self.search(request.args().get(2)))
            || self.answer(&mut cx.session.reply());
        Ok(if more { Step::Again } else { Step::Done })
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        self.list.map(list::garbage)
    }
}
