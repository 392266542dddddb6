//! Strings: SET, GET and their relatives.
//! Invariant: a value is stored as an integer exactly when its text round-trips.

use structures::big_string::BigString;
use structures::object::Object;
use structures::table::{EntryRef, Expire, NewValue, Value};

use super::strings_large::{self, AppendTask, MgetTask, MsetTask, SetTask, SetrangeTask};
use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run,
};
use crate::keyspace::locks::Access;
use crate::parse;
use crate::types::string::{self, INLINE_BYTES_MAX};
use resp::Args;

/// Keys of MGET and MSET that fit into one hold.
const KEYS_AT_ONCE: usize = 32;

/// Bytes of arguments, or of values that are answered, that fit into one hold.
const BYTES_AT_ONCE: usize = 64 * 1024;

const READ: Keys = Keys::First(Access::Shared);
const WRITE: Keys = Keys::First(Access::Exclusive);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "get",
            arity: Arity::Exactly(2),
            flags: Flags::READ.with(Flags::FAST),
            group: "string",
            keys: READ,
            cost: Cost::Streamed,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the string value of a key.",
        },
        run: Run::Keyed(get),
    },
    Command {
        row: Row {
            name: "set",
            arity: Arity::AtLeast(3),
            flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
            group: "string",
            keys: WRITE,
            cost: Cost::Detached,
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Sets the string value of a key, whatever it was before.",
        },
        run: Run::Wide { fits: value_fits::<2>, handler: set, task: SetTask::start },
    },
    Command {
        row: Row {
            name: "mget",
            arity: Arity::AtLeast(2),
            flags: Flags::READ.with(Flags::FAST),
            group: "string",
            keys: Keys::All { step: 1, access: Access::Shared },
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(N)",
            summary: "Returns the string values of several keys at one moment.",
        },
        run: Run::Wide { fits: few_keys, handler: mget, task: MgetTask::start },
    },
    Command {
        row: Row {
            name: "mset",
            arity: Arity::AtLeast(3),
            flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
            group: "string",
            keys: Keys::All { step: 2, access: Access::Exclusive },
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "1.0.1",
            complexity: "O(N)",
            summary: "Sets the string values of several keys at one moment.",
        },
        run: Run::Wide { fits: few_pairs, handler: mset, task: MsetTask::start },
    },
    Command {
        row: Row {
            name: "incr",
            arity: Arity::Exactly(2),
            flags: Flags::WRITE.with(Flags::FAST),
            group: "string",
            keys: WRITE,
            cost: Cost::Small(500),
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Adds one to the integer value of a key, which is 0 if the key is absent.",
        },
        run: Run::Keyed(incr),
    },
    Command {
        row: Row {
            name: "append",
            arity: Arity::Exactly(3),
            flags: Flags::WRITE.with(Flags::FAST).with(Flags::TAKES_CHUNKS),
            group: "string",
            keys: WRITE,
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "2.0.0",
            complexity: "O(1)",
            summary: "Adds to the end of the string value of a key.",
        },
        run: Run::Wide { fits: value_fits::<2>, handler: append, task: AppendTask::start },
    },
    Command {
        row: Row {
            name: "setrange",
            arity: Arity::Exactly(4),
            flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
            group: "string",
            keys: WRITE,
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Overwrites a part of the string value of a key from an offset on.",
        },
        run: Run::Wide { fits: value_fits::<3>, handler: setrange, task: SetrangeTask::start },
    },
    Command {
        row: Row {
            name: "strlen",
            arity: Arity::Exactly(2),
            flags: Flags::READ.with(Flags::FAST),
            group: "string",
            keys: READ,
            cost: Cost::Small(500),
            locks: Locks::Keys,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Returns the length of the string value of a key.",
        },
        run: Run::Keyed(strlen),
    },
];

/// Whether argument `N`, a value, is short enough for one hold.
fn value_fits<const N: usize>(args: Args<'_>) -> bool {
    args.len() <= N || args.arg_len(N) <= INLINE_BYTES_MAX
}

fn few_keys(args: Args<'_>) -> bool {
    args.len() - 1 <= KEYS_AT_ONCE && args.total_bytes() <= BYTES_AT_ONCE
}

fn few_pairs(args: Args<'_>) -> bool {
    args.len() / 2 <= KEYS_AT_ONCE
        && args.total_bytes() <= BYTES_AT_ONCE
        && (1..args.len()).all(|index| args.arg_len(index) <= INLINE_BYTES_MAX)
}

fn get(cx: &mut Context<'_, '_>) -> Outcome {
    match cx.hold.look_up(cx.keys[0].key) {
        None => cx.reply.writer().null(),
        Some(entry) => string::write(&entry.value(), &mut cx.reply)?,
    }
    Ok(Flow::Done)
}

fn strlen(cx: &mut Context<'_, '_>) -> Outcome {
    let length = match cx.hold.look_up(cx.keys[0].key) {
        None => 0,
        Some(entry) => string::length(&entry.value())?,
    };
    cx.reply.writer().int(length as i64);
    Ok(Flow::Done)
}

/// The options of SET.
#[derive(Clone, Copy)]
pub(super) struct SetOptions {
    pub(super) only_if: Option<Existence>,
    pub(super) get: bool,
    pub(super) expire: Expire,
}

/// A condition on the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    Absent,
    Present,
}

/// A moment or a span in seconds or milliseconds, as options name them.
struct TimeUnit {
    option: &'static str,
    per_ms: i64,
    is_span: bool,
}

const TIME_UNITS: &[TimeUnit] = &[
    TimeUnit { option: "ex", per_ms: 1000, is_span: true },
    TimeUnit { option: "px", per_ms: 1, is_span: true },
    TimeUnit { option: "exat", per_ms: 1000, is_span: false },
    TimeUnit { option: "pxat", per_ms: 1, is_span: false },
];

/// Reads the options of SET.
///
/// # Errors
/// Unknown or contradicting options; an expiry that is no positive integer or too large.
pub(super) fn set_options(args: Args<'_>, now_ms: i64) -> Result<SetOptions> {
    parse::check_words(args, "set")?;
    let mut options = SetOptions { only_if: None, get: false, expire: Expire::Clear };
    let mut keep = false;
    let mut timed: Option<(&TimeUnit, usize)> = None;
    let mut index = 3;
    while index < args.len() {
        let option = args.prefix(index);
        let is_condition = parse::is(option, "nx") || parse::is(option, "xx");
        if is_condition {
            let wants =
                if parse::is(option, "nx") { Existence::Absent } else { Existence::Present };
            if options.only_if.is_some_and(|other| other != wants) {
                return Err(errors::SYNTAX);
            }
            options.only_if = Some(wants);
        } else if parse::is(option, "get") {
            options.get = true;
        } else if parse::is(option, "keepttl") && timed.is_none() {
            keep = true;
        } else if let Some(unit) = TIME_UNITS.iter().find(|unit| parse::is(option, unit.option))
            && timed.is_none_or(|(other, _)| other.option == unit.option)
            && !keep
            && index + 1 < args.len()
        {
            // As in Redis, the same option may come twice, and only the last one counts.
            index += 1;
            timed = Some((unit, index));
        } else {
            return Err(errors::SYNTAX);
        }
        index += 1;
    }
    if let Some((unit, at)) = timed {
        options.expire = Expire::At(deadline(args.prefix(at), unit, now_ms)?);
    } else if keep {
        options.expire = Expire::Keep;
    }
    Ok(options)
}

fn deadline(text: &[u8], unit: &TimeUnit, now_ms: i64) -> Result<i64> {
    let invalid = || errors::invalid_expire("set");
    let amount = parse::integer(text)?;
    if amount <= 0 {
        return Err(invalid());
    }
    let ms = amount.checked_mul(unit.per_ms).ok_or_else(invalid)?;
    if unit.is_span { ms.checked_add(now_ms).ok_or_else(invalid) } else { Ok(ms) }
}

fn set(cx: &mut Context<'_, '_>) -> Outcome {
    if cx.args.len() == 3 {
        cx.hold.upsert(cx.keys[0].key, string::stored(cx.args.get(2)), Expire::Clear);
        cx.hold.verbatim(cx.args);
        cx.reply.writer().simple("OK");
        return Ok(Flow::Done);
    }
    let options = set_options(cx.args, cx.hold.now_ms())?;
    install(cx, options, string::stored(cx.args.get(2)))
}

/// Sets the value under the conditions of the options, and answers.
pub(super) fn install(
    cx: &mut Context<'_, '_>,
    options: SetOptions,
    value: NewValue<'_, Object>,
) -> Outcome {
    let key = cx.keys[0].key;
    let entry = cx.hold.read(key);
    let existed = entry.is_some();
    if options.get {
        let answered = match entry {
            None => {
                cx.reply.writer().null();
                Ok(())
            }
            Some(entry) => string::write(&entry.value(), &mut cx.reply),
        };
        if let Err(error) = answered {
            discard(cx, value);
            return Err(error);
        }
    }
    let allowed = match options.only_if {
        None => true,
        Some(Existence::Present) => existed,
        Some(Existence::Absent) => !existed,
    };
    if !allowed {
        discard(cx, value);
        if !options.get {
            cx.reply.writer().null();
        }
        return Ok(Flow::Done);
    }
    // A moment in the past is allowed, and the key is then gone at the next look.
    cx.hold.upsert(key, value, options.expire);
    match options.expire {
        Expire::Clear => cx.hold.verbatim_beginning(3, &[]),
        Expire::Keep => cx.hold.verbatim_beginning(3, &[b"KEEPTTL"]),
        Expire::At(at_ms) => {
            let mut digits = itoa::Buffer::new();
            let at_ms = digits.format(at_ms).as_bytes();
            cx.hold.verbatim_beginning(3, &[b"PXAT", at_ms]);
        }
    }
    if !options.get {
        cx.reply.writer().simple("OK");
    }
    Ok(Flow::Done)
}

/// Hands a value that was not wanted to whoever frees it after the latches.
fn discard(cx: &mut Context<'_, '_>, value: NewValue<'_, Object>) {
    if let NewValue::Object(object) = value {
        cx.hold.discard(object);
    }
}

fn mget(cx: &mut Context<'_, '_>) -> Outcome {
    let entries = cx.hold.look_up_all(cx.keys);
    let bytes = |entry: &EntryRef<'_, Object>| match entry.value() {
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    if cx.may_escalate && entries.iter().flatten().map(bytes).sum::<usize>() > BYTES_AT_ONCE {
        return Ok(Flow::Escalate);
    }
    cx.reply.writer().array(entries.len() as u64);
    for entry in entries {
        strings_large::write_or_null(entry, &mut cx.reply);
    }
    Ok(Flow::Done)
}

fn mset(cx: &mut Context<'_, '_>) -> Outcome {
    if cx.args.len().is_multiple_of(2) {
        return Err(errors::wrong_arity("mset"));
    }
    for (index, wanted) in cx.keys.iter().enumerate() {
        let value = string::stored(cx.args.get(2 + 2 * index));
        cx.hold.upsert(wanted.key, value, Expire::Clear);
    }
    cx.hold.verbatim(cx.args);
    cx.reply.writer().simple("OK");
    Ok(Flow::Done)
}

fn incr(cx: &mut Context<'_, '_>) -> Outcome {
    let key = cx.keys[0].key;
    let value = match cx.hold.write(key) {
        None => {
            cx.hold.insert(key, NewValue::Int(1), None);
            1
        }
        Some(mut entry) => {
            let old = match entry.value() {
                Value::Int(int) => int,
                Value::Bytes(text) => parse::integer(text)?,
                Value::Object(object) if !matches!(*object, Object::BigString(_)) => {
                    return Err(errors::WRONG_TYPE);
                }
                _ => return Err(errors::NOT_AN_INTEGER),
            };
            let value = old.checked_add(1).ok_or(errors::OVERFLOW)?;
            if !entry.set_int(value) {
                entry.set_value(NewValue::Int(value));
            }
            value
        }
    };
    cx.hold.touched(key);
    cx.hold.verbatim(cx.args);
    cx.reply.writer().int(value);
    Ok(Flow::Done)
}

fn append(cx: &mut Context<'_, '_>) -> Outcome {
    let (key, bytes_max) = (cx.keys[0].key, cx.settings.bulk_bytes_max());
    let length = strings_large::write_in(cx.hold, key, cx.args.get(2), None, bytes_max)?;
    cx.hold.verbatim(cx.args);
    cx.reply.writer().int(length as i64);
    Ok(Flow::Done)
}

fn setrange(cx: &mut Context<'_, '_>) -> Outcome {
    let offset = offset(cx.args)?;
    let (key, text) = (cx.keys[0].key, cx.args.get(3));
    if text.is_empty() {
        // Nothing is written, not even zeros up to the offset.
        let length = match cx.hold.read(key) {
            None => 0,
            Some(entry) => string::length(&entry.value())?,
        };
        cx.reply.writer().int(length as i64);
        return Ok(Flow::Done);
    }
    let bytes_max = cx.settings.bulk_bytes_max();
    let length = strings_large::write_in(cx.hold, key, text, Some(offset), bytes_max)?;
    cx.hold.verbatim(cx.args);
    cx.reply.writer().int(length as i64);
    Ok(Flow::Done)
}

/// The offset of SETRANGE.
///
/// # Errors
/// It is no integer, or negative.
pub(super) fn offset(args: Args<'_>) -> Result<u64> {
    let offset = parse::integer(args.prefix(2))?;
    u64::try_from(offset).map_err(|_| errors::OFFSET_OUT_OF_RANGE)
}

/// A big string with the bytes of a short value.
pub(super) fn enlarged(value: &Value<'_, Object>) -> Result<BigString> {
    let mut string = BigString::new();
    match value {
        Value::Bytes(bytes) => string.append(bytes),
        Value::Int(int) => string.append(itoa::Buffer::new().format(*int).as_bytes()),
        Value::Object(_) => return Err(errors::WRONG_TYPE),
    }
    Ok(string)
}
