//! Lists: pushes, pops, ranges.
//! Invariant: an empty list is no key.

use std::ops::Range;

use structures::list::{Cursor, Element, Found, List};
use structures::object::Object;
use structures::table::{NewValue, Value};

use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::hold::Hold;
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::lanes::Discard;
use crate::parse;
use crate::types::list::{self, End};
use crate::types::string::{Builder, INLINE_BYTES_MAX, STEP_BYTES};
use resp::Args;

/// Elements that one hold pushes; more are joined as a list that was built before.
const PUSHED_AT_ONCE: usize = 32;

/// Bytes of elements that one hold pushes.
const PUSHED_BYTES_AT_ONCE: usize = 16 * 1024;

/// Elements that are pushed in steps under the key's lock; more are joined as a list.
const FILLED_MAX: usize = 4096;

/// Elements that one step of building a list adds.
const BUILT_PER_STEP: usize = 128;

/// Elements that one hold pops one by one; more are cut off.
const POPPED_AT_ONCE: u64 = 16;

/// Elements that one step of LREM removes.
const REMOVED_PER_STEP: usize = 8;

const READ: Keys = Keys::First(Access::Shared);
const WRITE: Keys = Keys::First(Access::Exclusive);

/// What the rows of all pushes have in common.
const PUSH_ROW: Row = Row {
    name: "",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::TAKES_CHUNKS),
    group: "list",
    keys: WRITE,
    cost: Cost::Stepped,
    locks: Locks::None,
    since: "1.0.0",
    complexity: "O(1) for each element",
    summary: "",
};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "rpush",
            summary: "Adds elements to the tail of a list, which is created if absent.",
            ..PUSH_ROW
        },
        run: Run::Wide {
            fits: few_elements,
            handler: |cx| push(cx, RPUSH),
            task: |args, _| Ok(PushTask::start(args, RPUSH)),
        },
    },
    Command {
        row: Row {
            name: "lpush",
            summary: "Adds elements to the head of a list, which is created if absent.",
            ..PUSH_ROW
        },
        run: Run::Wide {
            fits: few_elements,
            handler: |cx| push(cx, LPUSH),
            task: |args, _| Ok(PushTask::start(args, LPUSH)),
        },
    },
    Command {
        row: Row {
            name: "rpushx",
            since: "2.2.0",
            summary: "Adds elements to the tail of a list, if it exists.",
            ..PUSH_ROW
        },
        run: Run::Wide {
            fits: few_elements,
            handler: |cx| push(cx, RPUSHX),
            task: |args, _| Ok(PushTask::start(args, RPUSHX)),
        },
    },
    Command {
        row: Row {
            name: "lpushx",
            since: "2.2.0",
            summary: "Adds elements to the head of a list, if it exists.",
            ..PUSH_ROW
        },
        run: Run::Wide {
            fits: few_elements,
            handler: |cx| push(cx, LPUSHX),
            task: |args, _| Ok(PushTask::start(args, LPUSHX)),
        },
    },
    Command {
        row: Row {
            name: "rpop",
            arity: Arity::AtLeast(2),
            flags: Flags::WRITE.with(Flags::FAST),
            group: "list",
            keys: WRITE,
            cost: Cost::Detached,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(log N), whatever the count",
            summary: "Removes and returns elements from the tail of a list.",
        },
        run: Run::Keyed(rpop),
    },
    Command {
        row: Row {
            name: "lpop",
            arity: Arity::AtLeast(2),
            flags: Flags::WRITE.with(Flags::FAST),
            group: "list",
            keys: WRITE,
            cost: Cost::Detached,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(log N), whatever the count",
            summary: "Removes and returns elements from the head of a list.",
        },
        run: Run::Keyed(lpop),
    },
    Command {
        row: Row {
            name: "lrange",
            arity: Arity::Exactly(4),
            flags: Flags::READ,
            group: "list",
            keys: READ,
            cost: Cost::Streamed,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(log N + M)",
            summary: "Returns a range of the elements of a list.",
        },
        run: Run::Keyed(lrange),
    },
    Command {
        row: Row {
            name: "llen",
            arity: Arity::Exactly(2),
            flags: Flags::READ.with(Flags::FAST),
            group: "list",
            keys: READ,
            cost: Cost::Small(500),
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the length of a list.",
        },
        run: Run::Keyed(llen),
    },
    Command {
        row: Row {
            name: "lindex",
            arity: Arity::Exactly(3),
            flags: Flags::READ,
            group: "list",
            keys: READ,
            cost: Cost::Small(1000),
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(log N)",
            summary: "Returns an element of a list by its index.",
        },
        run: Run::Keyed(lindex),
    },
    Command {
        row: Row {
            name: "lrem",
            arity: Arity::Exactly(4),
            flags: Flags::WRITE,
            group: "list",
            keys: WRITE,
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(N)",
            summary: "Removes elements that are equal to a value from a list.",
        },
        run: Run::Probing { handler: lrem, task: LremTask::start },
    },
    Command {
        row: Row {
            name: "ltrim",
            arity: Arity::Exactly(4),
            flags: Flags::WRITE,
            group: "list",
            keys: WRITE,
            cost: Cost::Detached,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(log N)",
            summary: "Removes elements from both ends of a list.",
        },
        run: Run::Keyed(ltrim),
    },
];

fn few_elements(args: Args<'_>) -> bool {
    if args.len() == 3 {
        return args.arg_len(2) <= PUSHED_BYTES_AT_ONCE;
    }
    args.len() - 2 <= PUSHED_AT_ONCE
        && args.total_bytes() <= PUSHED_BYTES_AT_ONCE
        && (2..args.len()).all(|index| args.chunked(index).is_none())
}

/// Where a push pushes.
#[derive(Clone, Copy)]
struct Push {
    end: End,
    /// Only to a list that exists.
    if_present: bool,
}

const RPUSH: Push = Push { end: End::Right, if_present: false };
const LPUSH: Push = Push { end: End::Left, if_present: false };
const RPUSHX: Push = Push { end: End::Right, if_present: true };
const LPUSHX: Push = Push { end: End::Left, if_present: true };

fn push(cx: &mut Context<'_, '_>, push: Push) -> Outcome {
    let key = cx.keys[0].key;
    let length = push_words(cx.hold, key, push, cx.args, 2..cx.args.len())?;
    if length > 0 {
        cx.hold.touched(key);
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(length as i64);
    Ok(Flow::Done)
}

/// Pushes some of a command's words. Returns the new length, 0 if there is no list to push to.
fn push_words(
    hold: &mut Hold<'_>,
    key: Key<'_>,
    push: Push,
    args: Args<'_>,
    words: Range<usize>,
) -> Result<u64> {
    let elements = words.map(|index| list::element(args.get(index)));
    if let Some(mut entry) = hold.write(key) {
        let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
        list::len(&object)?;
        elements.for_each(|element| list::push(&mut object, push.end, element));
        return list::len(&object);
    }
    if push.if_present {
        return Ok(0);
    }
    let mut object = list::new();
    elements.for_each(|element| list::push(&mut object, push.end, element));
    let length = list::len(&object)?;
    hold.insert(key, NewValue::Object(object), None);
    Ok(length)
}

/// A push of a moderate number of short elements, in steps under the key's lock: they fill the leaf
/// at the end, which a list that was built elsewhere would leave half empty.
struct FillTask {
    push: Push,
    next: usize,
}

impl FillTask {
    fn fits(args: Args<'_>) -> bool {
        args.len() - 2 <= FILLED_MAX
            && (2..args.len()).all(|index| args.arg_len(index) <= INLINE_BYTES_MAX)
    }
}

impl Task for FillTask {
    fn begins_with_locks(&self, _: &Command) -> bool {
        true
    }

    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let (request, push, from) = (cx.request, self.push, self.next);
        let args = request.args();
        let (mut upto, mut bytes) = (from, 0);
        while upto < args.len() && upto - from < PUSHED_AT_ONCE && bytes < PUSHED_BYTES_AT_ONCE {
            bytes += args.arg_len(upto);
            upto += 1;
        }
        let is_last = upto == args.len();
        let wanted = [super::keys::wanted_key(cx, 1, Access::Exclusive)];
        let pushed = cx.hold(&wanted, |hold| {
            let length = push_words(hold, wanted[0].key, push, args, from..upto)?;
            if is_last && length > 0 {
                hold.touched(wanted[0].key);
                hold.verbatim(args);
            }
            Ok(length)
        });
        let Ok(length) = pushed else { return Ok(Step::TakeLocks) };
        let length = length?;
        self.next = upto;
        if !is_last && length > 0 {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().int(length as i64);
        Ok(Step::Done)
    }
}

/// A push of many or long elements: they become a list off the latch, one hold joins it.
struct PushTask {
    push: Push,
    built: List,
    next: usize,
    builder: Builder,
}

impl PushTask {
    fn start(args: Args<'_>, push: Push) -> Box<dyn Task> {
        if FillTask::fits(args) {
            return Box::new(FillTask { push, next: 2 });
        }
        Box::new(PushTask { push, built: List::new(), next: 2, builder: Builder::default() })
    }

    fn build(&mut self, args: Args<'_>) {
        let mut bytes = 0;
        for _ in 0..BUILT_PER_STEP {
            if self.next == args.len() || bytes > STEP_BYTES {
                break;
            }
            bytes += args.arg_len(self.next);
            let element = if args.arg_len(self.next) > INLINE_BYTES_MAX {
                match self.builder.step(args, self.next) {
                    None => return,
                    Some(string) => Element::Big(string),
                }
            } else {
                list::element(args.get(self.next))
            };
            match self.push.end {
                End::Right => self.built.push_back(element),
                End::Left => self.built.push_front(element),
            }
            self.next += 1;
        }
    }
}

impl Task for PushTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        if self.next < request.args().len() {
            self.build(request.args());
            return Ok(Step::Again);
        }
        let wanted = [super::keys::wanted_key(cx, 1, Access::Exclusive)];
        let push = self.push;
        let mut built = Some(std::mem::take(&mut self.built));
        let joined = cx.hold(&wanted, |hold| {
            let length = join(hold, wanted[0].key, push, &mut built)?;
            if length > 0 {
                hold.touched(wanted[0].key);
                hold.verbatim(request.args());
            }
            Ok(length)
        });
        // What could not be joined stays ours: it is joined later, or freed by the reaper.
        self.built = built.unwrap_or_default();
        let Ok(length) = joined else { return Ok(Step::TakeLocks) };
        cx.session.reply().writer().int(length? as i64);
        Ok(Step::Done)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        Some(list::garbage(self.built))
    }
}

/// Joins what was built. Returns the new length, 0 if there is no list to join it to.
fn join(hold: &mut Hold<'_>, key: Key<'_>, push: Push, built: &mut Option<List>) -> Result<u64> {
    Ok(match hold.write(key) {
        Some(mut entry) => {
            let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
            list::len(&object)?;
            list::join(&mut object, push.end, built.take().unwrap_or_default());
            list::len(&object)?
        }
        None if push.if_present => 0,
        None => {
            let object = Object::List(built.take().unwrap_or_default());
            let length = list::len(&object)?;
            hold.insert(key, NewValue::Object(object), None);
            length
        }
    })
}

fn rpop(cx: &mut Context<'_, '_>) -> Outcome {
    pop(cx, End::Right, "rpop")
}

fn lpop(cx: &mut Context<'_, '_>) -> Outcome {
    pop(cx, End::Left, "lpop")
}

fn pop(cx: &mut Context<'_, '_>, end: End, name: &'static str) -> Outcome {
    let count = match cx.args.len() {
        2 => None,
        3 => match parse::integer(cx.args.get(2)) {
            Ok(count) if count >= 0 => Some(count as u64),
            _ => return Err(errors::MUST_BE_POSITIVE),
        },
        _ => return Err(errors::wrong_arity(name)),
    };
    let key = cx.keys[0].key;
    let Some(mut entry) = cx.hold.write(key) else {
        match count {
            None => cx.reply.writer().null(),
            Some(_) => cx.reply.writer().null_array(),
        }
        return Ok(Flow::Done);
    };
    let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    let len = list::len(&object)?;
    match count {
        None => {
            list::pop(&mut object, end, &mut cx.reply);
        }
        Some(0) => {
            cx.reply.writer().array(0);
            return Ok(Flow::Done);
        }
        Some(count) => {
            let count = count.min(len);
            cx.reply.writer().array(count);
            match &mut *object {
                Object::List(list) if count > POPPED_AT_ONCE => {
                    list::cut_off(list, end, count, &mut cx.reply);
                }
                object => list::pop_some(object, end, count, &mut cx.reply),
            }
        }
    }
    let is_empty = list::len(&object)? == 0;
    drop(object);
    if is_empty {
        cx.hold.delete(key);
    }
    cx.hold.touched(key);
    cx.hold.verbatim(cx.args);
    Ok(Flow::Done)
}

/// The list of a read command; `None` is an absent key.
fn with_list<R>(
    cx: &mut Context<'_, '_>,
    read: impl FnOnce(&Object, &mut crate::output::Reply<'_>) -> Result<R>,
) -> Result<Option<R>> {
    let Some(entry) = cx.hold.look_up(cx.keys[0].key) else { return Ok(None) };
    match entry.value() {
        Value::Object(object) => read(&object, &mut cx.reply).map(Some),
        _ => Err(errors::WRONG_TYPE),
    }
}

fn lrange(cx: &mut Context<'_, '_>) -> Outcome {
    let start = parse::integer(cx.args.get(2))?;
    let stop = parse::integer(cx.args.get(3))?;
    let found = with_list(cx, |object, reply| {
        list::write_range(object, list::range(start, stop, list::len(object)?), reply);
        Ok(())
    })?;
    if found.is_none() {
        cx.reply.writer().array(0);
    }
    Ok(Flow::Done)
}

fn llen(cx: &mut Context<'_, '_>) -> Outcome {
    let len = with_list(cx, |object, _| list::len(object))?.unwrap_or(0);
    cx.reply.writer().int(len as i64);
    Ok(Flow::Done)
}

fn lindex(cx: &mut Context<'_, '_>) -> Outcome {
    let index = parse::integer(cx.args.get(2));
    let found = with_list(cx, |object, reply| {
        list::len(object)?;
        list::get(object, index.clone()?, reply)
    })?;
    if found.is_none() {
        cx.reply.writer().null();
    }
    Ok(Flow::Done)
}

fn ltrim(cx: &mut Context<'_, '_>) -> Outcome {
    let start = parse::integer(cx.args.get(2))?;
    let stop = parse::integer(cx.args.get(3))?;
    let key = cx.keys[0].key;
    cx.reply.writer();
    let Some(mut entry) = cx.hold.write(key) else {
        cx.reply.writer().simple("OK");
        return Ok(Flow::Done);
    };
    let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    let len = list::len(&object)?;
    let kept = list::range(start, stop, len);
    let mut cut = [List::new(), List::new()];
    match &mut *object {
        Object::List(list) => {
            let tail = list.detach(kept.end..len);
            cut = [tail, list.detach(0..kept.start.min(kept.end))];
        }
        Object::PackedList(packed) => {
            packed.remove_range(kept.end as usize..len as usize);
            packed.remove_range(0..kept.start as usize);
        }
        _ => {}
    }
    drop(object);
    cut.into_iter().for_each(|list| cx.hold.discard(Object::List(list)));
    if kept.is_empty() {
        cx.hold.delete(key);
    }
    // As in Redis, who watches the key is told even if all elements were kept.
    cx.hold.touched(key);
    if kept != (0..len) {
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().simple("OK");
    Ok(Flow::Done)
}

fn lrem(cx: &mut Context<'_, '_>) -> Outcome {
    let count = parse::integer(cx.args.get(2))?;
    let key = cx.keys[0].key;
    let needle = cx.args.get(3);
    let Some(mut entry) = cx.hold.write(key) else {
        cx.reply.writer().int(0);
        return Ok(Flow::Done);
    };
    let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
    list::len(&object)?;
    let Object::PackedList(packed) = &mut *object else { return Ok(Flow::Escalate) };
    let limit = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let equal = |&index: &usize| packed.get(index) == Some(needle);
    let mut found: Vec<usize> = if count < 0 {
        (0..packed.len()).rev().filter(equal).take(limit).collect()
    } else {
        (0..packed.len()).filter(equal).take(limit).collect()
    };
    found.sort_unstable();
    found.iter().rev().for_each(|&index| packed.remove_at(index));
    let is_empty = packed.is_empty();
    drop(object);
    if is_empty {
        cx.hold.delete(key);
    }
    if !found.is_empty() {
        cx.hold.touched(key);
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(found.len() as i64);
    Ok(Flow::Done)
}

/// LREM on a big list: searches and removes in steps under the key's lock.
struct LremTask {
    /// How many more may be removed.
    left: u64,
    backwards: bool,
    cursor: Option<Cursor>,
    removed: u64,
}

impl LremTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let count = parse::integer(args.get(2))?;
        let left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
        Ok(Box::new(LremTask { left, backwards: count < 0, cursor: None, removed: 0 }))
    }

    /// Searches on and removes what it finds; long elements go to `dropped`. Returns whether there is
    /// more to do.
    fn search(&mut self, list: &mut List, needle: &[u8], dropped: &mut Vec<Object>) -> bool {
        if list.is_empty() {
            return false;
        }
        let begin = if self.backwards { list.len() - 1 } else { 0 };
        let mut cursor = self.cursor.unwrap_or(Cursor::at(begin));
        for _ in 0..REMOVED_PER_STEP {
            let index = match list::find(list, cursor, needle, self.backwards) {
                Found::Nothing => return false,
                Found::Pending(next) => {
                    self.cursor = Some(next);
                    return true;
                }
                Found::At(index) => index,
            };
            list.remove(index, |element| dropped.extend(list::long(element)));
            self.removed += 1;
            self.left -= 1;
            if self.left == 0 || (self.backwards && index == 0) || list.is_empty() {
                return false;
            }
            cursor = Cursor::at(if self.backwards { index - 1 } else { index });
        }
        self.cursor = Some(cursor);
        true
    }
}

impl Task for LremTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        let wanted = [super::keys::wanted_key(cx, 1, Access::Exclusive)];
        let held = cx.hold(&wanted, |hold| {
            let (key, needle) = (wanted[0].key, request.args().get(3));
            let mut more = false;
            if let Some(mut entry) = hold.write(key) {
                let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
                let (own, mut dropped) = (list::tree(&mut object)?, Vec::new());
                more = self.search(own, needle, &mut dropped);
                let is_empty = own.is_empty();
                drop(object);
                dropped.into_iter().for_each(|object| hold.discard(object));
                if is_empty {
                    hold.delete(key);
                }
            }
            if !more && self.removed > 0 {
                hold.touched(key);
                hold.verbatim(request.args());
            }
            Ok(more)
        });
        let Ok(more) = held else { return Ok(Step::TakeLocks) };
        if more? {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().int(self.removed as i64);
        Ok(Step::Done)
    }
}

const _: () = assert!(INLINE_BYTES_MAX == structures::list::BLOCK_BYTES_MAX);
