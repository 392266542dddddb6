//! Strings in steps: values over 8 KiB, and MGET and MSET of many keys.

use structures::big_string::BigString;
use structures::object::Object;
use structures::table::{EntryRef, Expire, NewValue, Value};

use super::strings::{self, SetOptions};
use crate::errors::{self, Result};
use crate::execution::command::{Context, TaskSeed};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::hold::{Hold, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::lanes::DroppedObject;
use crate::output::Reply;
use crate::types::string::{self, Builder, INLINE_BYTES_MAX, STEP_BYTES};
use resp::Args;

/// Keys that one step of MGET or MSET serves.
const KEYS_PER_STEP: usize = 16;

/// The value of a key as MGET shows it: absent keys and other types are null.
pub(super) fn write_or_null(entry: Option<EntryRef<'_, Object>>, reply: &mut Reply<'_>) {
    match entry {
        Some(entry) if string::length(&entry.value()).is_ok() => {
            // The value is a string, so writing it cannot fail.
            let _ = string::write(&entry.value(), reply);
        }
        _ => reply.writer().null(),
    }
}

/// Writes at most a step's bytes into the string value of a key: at an offset, or at its end.
/// Returns the new length.
///
/// # Errors
/// The value is not a string, or what is written would end beyond `bytes_max`.
pub(super) fn write_in(
    hold: &mut Hold<'_>,
    key: Key<'_>,
    text: &[u8],
    offset: Option<u64>,
    bytes_max: u64,
) -> Result<u64> {
    let Some(mut entry) = hold.write(key) else {
        let length = checked_end(None, offset, text.len(), bytes_max)?;
        let offset = offset.unwrap_or(0);
        if length > INLINE_BYTES_MAX as u64 {
            let mut string = BigString::new();
            string.write_at(offset, text);
            hold.insert(key, NewValue::Object(Object::BigString(string)), None);
        } else if offset == 0 {
            hold.insert(key, string::stored(text), None);
        } else {
            hold.insert(key, NewValue::Bytes(&[]), None);
            if let Some(bytes) =
                hold.write(key).as_mut().and_then(|entry| entry.resize_bytes(length as usize))
            {
                bytes[offset as usize..].copy_from_slice(text);
            }
        }
        hold.touched(key);
        return Ok(length);
    };
    let old = string::length(&entry.value())?;
    let length = old.max(checked_end(Some(old), offset, text.len(), bytes_max)?);
    let offset = offset.unwrap_or(old);
    if let Some(mut object) = entry.object_mut() {
        if let Object::BigString(string) = &mut *object {
            string.write_at(offset, text);
        }
    } else if length > INLINE_BYTES_MAX as u64 {
        let mut string = strings::enlarged(&entry.value())?;
        string.write_at(offset, text);
        entry.set_value(NewValue::Object(Object::BigString(string)));
    } else {
        if let Value::Int(int) = entry.value() {
            entry.set_value(NewValue::Bytes(itoa::Buffer::new().format(int).as_bytes()));
        }
        if let Some(bytes) = entry.resize_bytes(length as usize) {
            bytes[offset as usize..][..text.len()].copy_from_slice(text);
        }
        renumber(&mut entry);
    }
    hold.touched(key);
    Ok(length)
}

/// Keeps the invariant that a text which round-trips as an integer is stored as one.
fn renumber(entry: &mut structures::table::EntryMut<'_, Object>) {
    let number = match entry.value() {
        Value::Bytes(bytes) => match string::stored(bytes) {
            NewValue::Int(int) => Some(int),
            _ => None,
        },
        _ => None,
    };
    if let Some(int) = number {
        entry.set_value(NewValue::Int(int));
    }
}

/// Where a text ends that is written into a value of `old` bytes, or none, at an offset or its end.
fn checked_end(
    old: Option<u64>,
    offset: Option<u64>,
    written: usize,
    bytes_max: u64,
) -> Result<u64> {
    let end = offset.or(old).unwrap_or(0).saturating_add(written as u64);
    // What is appended to nothing was short enough as an argument.
    let is_new = old.is_none() && offset.is_none();
    if end > bytes_max && !is_new { Err(errors::STRING_TOO_LONG) } else { Ok(end) }
}

/// SET of a long value: the chunks become the value off the latch, one hold installs it.
pub(super) struct SetTask {
    builder: Builder,
    parse: fn(Args<'_>, i64) -> Result<SetOptions>,
    options: Option<SetOptions>,
}

impl SetTask {
    /// A relative of SET whose arguments are read by `parse`, at a Unix time in milliseconds.
    pub(super) fn start(parse: fn(Args<'_>, i64) -> Result<SetOptions>) -> Box<dyn Task> {
        Box::new(SetTask { builder: Builder::default(), parse, options: None })
    }
}

impl Task for SetTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let options = match self.options {
            Some(options) => options,
            None => (self.parse)(cx.args(), cx.worker.now_ms)?,
        };
        self.options = Some(options);
        let Some(string) = self.builder.step(cx.args(), options.value) else {
            return Ok(Step::Again);
        };
        let (request, scope, protocol) = (cx.request, cx.scope(), cx.session.protocol);
        let worker = &mut *cx.worker;
        let key = worker.engine.keyspace.key(request.args().get(1));
        let wanted = [Wanted { key, access: Access::Exclusive }];
        let reply = cx.session.output.reply(protocol);
        let mut kept = Some(string);
        let held = worker.engine.keyspace.hold(scope, &wanted, &mut worker.ledger, |hold| {
            let value = NewValue::Object(Object::BigString(kept.take().unwrap_or_default()));
            let mut cx = Context {
                hold,
                args: request.args(),
                keys: &wanted,
                settings: &worker.engine.settings,
                reply,
                may_escalate: false,
            };
            strings::install(&mut cx, options, value)
        });
        match held {
            Ok(outcome) => outcome.map(|_| Step::Done),
            Err(_) => {
                // Built once more when the locks are held: rare, and simpler than keeping it.
                if let Some(string) = kept {
                    let garbage = DroppedObject::new(Object::BigString(string));
                    cx.worker.garbage.push(Box::new(garbage));
                }
                Ok(Step::TakeLocks)
            }
        }
    }
}

/// APPEND and SETRANGE of a long text: written piece by piece under the key's lock.
struct WriteTask {
    written: usize,
    /// Where the text begins in the value; the value's end until that is known.
    begin: Option<u64>,
    /// The position of the text among the arguments.
    argument: usize,
}

impl WriteTask {
    fn write(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let (request, argument) = (cx.request, self.argument);
        let total = request.args().arg_len(argument);
        let wanted = [cx.worker.engine.keyspace.key(request.args().get(1))]
            .map(|key| Wanted { key, access: Access::Exclusive });
        let (written, begin) = (self.written, self.begin);
        let text = string::piece(request.args(), argument, written);
        let is_last = written + text.len() == total;
        let bytes_max = cx.worker.engine.settings.bulk_bytes_max();
        let held = cx.hold(&wanted, |hold| {
            let key = wanted[0].key;
            if written == 0 {
                let old = hold.read(key).map(|entry| string::length(&entry.value()));
                checked_end(old.transpose()?, begin, total, bytes_max)?;
            }
            let offset = begin.map(|begin| begin + written as u64);
            // The whole text has been found short enough, whatever is configured meanwhile.
            let length = write_in(hold, key, text, offset, u64::MAX)?;
            if is_last {
                hold.verbatim(request.args());
            }
            Ok(length)
        });
        let Ok(result) = held else { return Ok(Step::TakeLocks) };
        let length = result?;
        self.written += text.len();
        if !is_last {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().int(length as i64);
        Ok(Step::Done)
    }
}

pub(super) struct AppendTask(WriteTask);

impl AppendTask {
    pub(super) fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(AppendTask(WriteTask { written: 0, begin: None, argument: 2 })))
    }
}

impl Task for AppendTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        self.0.write(cx)
    }
}

pub(super) struct SetrangeTask(WriteTask);

impl SetrangeTask {
    pub(super) fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let begin = Some(strings::offset(args)?);
        Ok(Box::new(SetrangeTask(WriteTask { written: 0, begin, argument: 3 })))
    }
}

impl Task for SetrangeTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        self.0.write(cx)
    }
}

/// MGET of many keys, under shared locks.
pub(super) struct MgetTask {
    next: usize,
}

impl MgetTask {
    pub(super) fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(MgetTask { next: 1 }))
    }
}

impl Task for MgetTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let (scope, protocol, args) = (cx.scope(), cx.session.protocol, cx.request.args());
        let mut reply = cx.session.output.reply(protocol);
        if self.next == 1 {
            reply.writer().array(args.len() as u64 - 1);
        }
        let upto = args.len().min(self.next + KEYS_PER_STEP);
        let worker = &mut *cx.worker;
        let mut bytes = 0;
        while self.next < upto && bytes <= INLINE_BYTES_MAX {
            let key = worker.engine.keyspace.key(args.get(self.next));
            bytes += key.bytes.len();
            self.next += 1;
            let wanted = [Wanted { key, access: Access::Shared }];
            let held = worker.engine.keyspace.hold(scope, &wanted, &mut worker.ledger, |hold| {
                write_or_null(hold.look_up(key), &mut reply);
            });
            debug_assert!(held.is_ok(), "the keys are locked");
        }
        Ok(if self.next == args.len() { Step::Done } else { Step::Again })
    }
}

/// MSET and MSETNX of many keys or long values, under exclusive locks.
pub(super) struct MsetTask {
    /// MSETNX: the next key that must not exist, until all have been looked up.
    unchecked: Option<usize>,
    /// Whether it answers a number, as MSETNX does.
    counts: bool,
    next: usize,
    builder: Builder,
}

impl MsetTask {
    pub(super) fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        MsetTask::of(args, "mset", false)
    }

    pub(super) fn start_if_absent(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        MsetTask::of(args, "msetnx", true)
    }

    fn of(args: Args<'_>, name: &str, counts: bool) -> Result<Box<dyn Task>> {
        if args.len().is_multiple_of(2) {
            return Err(errors::wrong_arity(name));
        }
        let unchecked = counts.then_some(1);
        Ok(Box::new(MsetTask { unchecked, counts, next: 1, builder: Builder::default() }))
    }

    /// Looks some keys up from `from` on. Returns whether one exists.
    fn check(&mut self, cx: &mut TaskContext<'_>, from: usize) -> bool {
        let args = cx.request.args();
        let (mut next, mut bytes) = (from, 0);
        while next < args.len() && next < from + 2 * KEYS_PER_STEP && bytes <= STEP_BYTES {
            let key = cx.worker.engine.keyspace.key(args.get(next));
            bytes += key.bytes.len();
            next += 2;
            let wanted = [Wanted { key, access: Access::Exclusive }];
            if cx.hold(&wanted, |hold| hold.read(key).is_some()).unwrap_or(true) {
                return true;
            }
        }
        self.unchecked = (next < args.len()).then_some(next);
        false
    }

    /// Sets one pair. Returns false when its value needs more steps to be built.
    fn set_one(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let (index, request) = (self.next, cx.request);
        let args = request.args();
        let value = if args.arg_len(index + 1) > INLINE_BYTES_MAX {
            match self.builder.step(args, index + 1) {
                None => return false,
                Some(string) => NewValue::Object(Object::BigString(string)),
            }
        } else {
            string::stored(args.get(index + 1))
        };
        let key = cx.worker.engine.keyspace.key(args.get(index));
        let wanted = [Wanted { key, access: Access::Exclusive }];
        let is_last = index + 2 == args.len();
        let held = cx.hold(&wanted, |hold| {
            hold.upsert(key, value, Expire::Clear);
            if is_last {
                hold.verbatim(args);
            }
        });
        debug_assert!(held.is_ok(), "the keys are locked");
        self.next += 2;
        true
    }
}

impl Task for MsetTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        if let Some(from) = self.unchecked {
            if self.check(cx, from) {
                cx.session.reply().writer().int(0);
                return Ok(Step::Done);
            }
            return Ok(Step::Again);
        }
        let (begin, mut bytes) = (self.next, 0);
        while self.next < begin + 2 * KEYS_PER_STEP && bytes <= STEP_BYTES {
            bytes += cx.args().arg_len(self.next) + cx.args().arg_len(self.next + 1);
            if !self.set_one(cx) {
                return Ok(Step::Again);
            }
            if self.next == cx.args().len() {
                match self.counts {
                    true => cx.session.reply().writer().int(1),
                    false => cx.session.reply().writer().simple("OK"),
                }
                return Ok(Step::Done);
            }
        }
        Ok(Step::Again)
    }
}
