//! Lists that are changed in their middle, and elements that move: LSET, LINSERT, LMOVE, RPOPLPUSH.

use structures::list::{Cursor, Element, Found};
use structures::object::Object;
use structures::table::NewValue;

use super::keys::wanted_key;
use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::hold::Hold;
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::lanes::{Discard, DroppedObject};
use crate::parse;
use crate::types::list::{self, End};
use crate::types::string::{Builder, INLINE_BYTES_MAX};
use resp::Args;
use structures::big_string::BigString;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "lset",
            arity: Arity::Exactly(4),
            flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
            group: "list",
            keys: Keys::First(Access::Exclusive),
            cost: Cost::Small(1000),
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(log N)",
            summary: "Replaces an element of a list.",
        },
        run: Run::Wide { fits: element_fits, handler: lset, task: LsetTask::start },
    },
    Command {
        row: Row {
            name: "linsert",
            arity: Arity::Exactly(5),
            flags: Flags::WRITE,
            group: "list",
            keys: Keys::First(Access::Exclusive),
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "2.2.0",
            complexity: "O(N), to find the element",
            summary: "Adds an element to a list before or after another one.",
        },
        run: Run::Probing { handler: linsert, task: LinsertTask::start },
    },
    Command {
        row: move_row(
            "lmove",
            5,
            "6.2.0",
            "Moves an element from an end of a list to another list.",
        ),
        run: Run::Keyed(|cx| {
            let (from, to) = (end(cx.args.get(3))?, end(cx.args.get(4))?);
            shift(cx, from, to)
        }),
    },
    Command {
        row: move_row(
            "rpoplpush",
            3,
            "1.2.0",
            "Moves the last element of a list to the head of another.",
        ),
        run: Run::Keyed(|cx| shift(cx, End::Right, End::Left)),
    },
];

/// The row of a command that moves an element.
const fn move_row(
    name: &'static str,
    words: usize,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row {
        name,
        arity: Arity::Exactly(words),
        flags: Flags::WRITE,
        group: "list",
        keys: Keys::FirstTwo(Access::Exclusive),
        cost: Cost::Small(2000),
        locks: Locks::Keys,
        since,
        complexity: "O(1)",
        summary,
    }
}

fn element_fits(args: Args<'_>) -> bool {
    args.arg_len(3) <= INLINE_BYTES_MAX
}

fn lset(cx: &mut Context<'_, '_>) -> Outcome {
    set(cx.hold, cx.keys[0].key, cx.args, list::element(cx.args.get(3)))?;
    cx.reply.writer().simple("OK");
    Ok(Flow::Done)
}

fn set(hold: &mut Hold<'_>, key: Key<'_>, args: Args<'_>, element: Element<'_>) -> Result<()> {
    let Some(mut entry) = hold.write(key) else { return Err(errors::NO_SUCH_KEY) };
    let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    let len = list::len(&object)?;
    let index = list::position(parse::integer(args.prefix(2))?, len);
    let index = index.ok_or(errors::INDEX_OUT_OF_RANGE)?;
    let displaced = list::set(&mut object, index, element);
    drop(object);
    displaced.into_iter().for_each(|object| hold.discard(object));
    hold.touched(key);
    hold.verbatim(args);
    Ok(())
}

/// LSET of a long element: it is built off the latch.
#[derive(Default)]
struct LsetTask {
    builder: Builder,
    built: Option<BigString>,
}

impl LsetTask {
    fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(LsetTask::default()))
    }
}

impl Task for LsetTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        if self.built.is_none() {
            self.built = self.builder.step(request.args(), 3);
            return Ok(Step::Again);
        }
        let wanted = [wanted_key(cx, 1, Access::Exclusive)];
        let built = &mut self.built;
        let held = cx.hold(&wanted, |hold| {
            // An error leaves a second reference, so that nothing large is freed here.
            let element = Element::Big(built.clone().unwrap_or_default());
            set(hold, wanted[0].key, request.args(), element)?;
            *built = None;
            Ok(())
        });
        let Ok(result) = held else { return Ok(Step::TakeLocks) };
        result?;
        cx.session.reply().writer().simple("OK");
        Ok(Step::Done)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        garbage(self.built)
    }
}

/// A long element that was built and is not wanted.
fn garbage(built: Option<BigString>) -> Option<Box<dyn Discard>> {
    let object = Object::BigString(built?);
    Some(Box::new(DroppedObject::new(object)))
}

/// Whether LINSERT inserts behind the element that it finds.
fn is_after(args: Args<'_>) -> Result<bool> {
    match args.prefix(2) {
        word if parse::is(word, "after") => Ok(true),
        word if parse::is(word, "before") => Ok(false),
        _ => Err(errors::SYNTAX),
    }
}

fn linsert(cx: &mut Context<'_, '_>) -> Outcome {
    let after = is_after(cx.args)?;
    let key = cx.keys[0].key;
    let (pivot, text) = (cx.args.get(3), cx.args.get(4));
    let Some(mut entry) = cx.hold.write(key) else {
        cx.reply.writer().int(0);
        return Ok(Flow::Done);
    };
    let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    list::len(&object)?;
    let Object::PackedList(packed) = &*object else { return Ok(Flow::Escalate) };
    let Some(found) = (0..packed.len()).find(|&index| packed.get(index) == Some(pivot)) else {
        cx.reply.writer().int(-1);
        return Ok(Flow::Done);
    };
    if text.len() > INLINE_BYTES_MAX {
        return Ok(Flow::Escalate);
    }
    list::insert(&mut object, (found + usize::from(after)) as u64, list::element(text));
    let len = list::len(&object)?;
    drop(object);
    cx.hold.touched(key);
    cx.hold.verbatim(cx.args);
    cx.reply.writer().int(len as i64);
    Ok(Flow::Done)
}

/// LINSERT into a big list, or of a long element: searches in steps under the key's lock.
struct LinsertTask {
    after: bool,
    builder: Builder,
    built: Option<BigString>,
    cursor: Cursor,
}

impl LinsertTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(LinsertTask {
            after: is_after(args)?,
            builder: Builder::default(),
            built: None,
            cursor: Cursor::at(0),
        }))
    }

    /// Searches on, and inserts if the element is found. Returns the answer when there is one.
    fn search(&mut self, object: &mut Object, args: Args<'_>) -> Result<Option<i64>> {
        let own = list::tree(object)?;
        let found = match list::find(own, self.cursor, args.get(3), false) {
            Found::Pending(cursor) => {
                self.cursor = cursor;
                return Ok(None);
            }
            Found::Nothing => return Ok(Some(-1)),
            Found::At(index) => index,
        };
        let element = match self.built.take() {
            Some(string) => Element::Big(string),
            None => list::element(args.get(4)),
        };
        own.insert(found + u64::from(self.after), element);
        Ok(Some(own.len() as i64))
    }
}

impl Task for LinsertTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        let args = request.args();
        if args.arg_len(4) > INLINE_BYTES_MAX && self.built.is_none() {
            self.built = self.builder.step(args, 4);
            return Ok(Step::Again);
        }
        let wanted = [wanted_key(cx, 1, Access::Exclusive)];
        let held = cx.hold(&wanted, |hold| {
            let key = wanted[0].key;
            let Some(mut entry) = hold.write(key) else { return Ok(Some(0)) };
            let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
            let answer = self.search(&mut object, args)?;
            drop(object);
            if answer.is_some_and(|len| len > 0) {
                hold.touched(key);
                hold.verbatim(args);
            }
            Ok(answer)
        });
        let Ok(answer) = held else { return Ok(Step::TakeLocks) };
        let Some(answer) = answer? else { return Ok(Step::Again) };
        cx.session.reply().writer().int(answer);
        Ok(Step::Done)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        garbage(self.built)
    }
}

/// The end of a list that a word names.
fn end(word: &[u8]) -> Result<End> {
    match word {
        word if parse::is(word, "left") => Ok(End::Left),
        word if parse::is(word, "right") => Ok(End::Right),
        _ => Err(errors::SYNTAX),
    }
}

fn shift(cx: &mut Context<'_, '_>, from: End, to: End) -> Outcome {
    let (source, destination) = (cx.keys[0].key, cx.keys[1].key);
    if check(cx.hold, source)?.is_none() {
        cx.reply.writer().null();
        return Ok(Flow::Done);
    }
    let is_new = check(cx.hold, destination)?.is_none();
    let Some((taken, left)) = take(cx.hold, source, from) else { return Ok(Flow::Done) };
    list::write(taken.item(), &mut cx.reply);
    let mut bytes = Vec::new();
    let element = taken.into_element(&mut bytes);
    if is_new {
        let mut object = list::new();
        list::push(&mut object, to, element);
        cx.hold.insert(destination, NewValue::Object(object), None);
    } else if let Some(mut entry) = cx.hold.write(destination)
        && let Some(mut object) = entry.object_mut()
    {
        list::push(&mut object, to, element);
    }
    let rotates = source.hash == destination.hash && source.bytes == destination.bytes;
    if left == 0 && !rotates {
        cx.hold.delete(source);
    }
    cx.hold.touched(source);
    cx.hold.touched(destination);
    cx.hold.verbatim(cx.args);
    Ok(Flow::Done)
}

/// The length of the list at a key, if there is one.
fn check(hold: &mut Hold<'_>, key: Key<'_>) -> Result<Option<u64>> {
    let Some(mut entry) = hold.write(key) else { return Ok(None) };
    let Some(object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    list::len(&object).map(Some)
}

/// Removes the element at an end of a list. Returns it, and how many are left.
fn take(hold: &mut Hold<'_>, key: Key<'_>, end: End) -> Option<(list::Taken, u64)> {
    let mut entry = hold.write(key)?;
    let mut object = entry.object_mut()?;
    let taken = list::take(&mut object, end)?;
    Some((taken, list::len(&object).unwrap_or(0)))
}
