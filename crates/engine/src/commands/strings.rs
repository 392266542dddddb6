//! Strings: SET, GET and their relatives.
//! Invariant: a value is stored as an integer exactly when its text round-trips.

use structures::big_string::BigString;
use structures::object::Object;
use structures::table::{EntryRef, Expire, NewValue, Value};

use super::strings_large::{self, AppendTask, MgetTask, MsetTask, SetTask, SetrangeTask};
use crate::effects::Words;
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
        run: Run::Wide {
            fits: value_fits::<2>,
            handler: set,
            task: |_, _| Ok(SetTask::start(set_options)),
        },
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
            name: "msetnx",
            arity: Arity::AtLeast(3),
            flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
            group: "string",
            keys: Keys::All { step: 2, access: Access::Exclusive },
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "1.0.1",
            complexity: "O(N)",
            summary: "Sets the string values of several keys if none of them exists.",
        },
        run: Run::Wide { fits: few_pairs, handler: msetnx, task: MsetTask::start_if_absent },
    },
    Command {
        row: Row {
            flags: Flags::WRITE.with(Flags::FAST).with(Flags::TAKES_CHUNKS),
            ..set_row("setnx", 3, "1.0.0", "Sets the string value of a key if the key is absent.")
        },
        run: Run::Wide {
            fits: value_fits::<2>,
            handler: |cx| install(cx, SetOptions::ABSENT, string::stored(cx.args.get(2))),
            task: |_, _| Ok(SetTask::start(|_, _| Ok(SetOptions::ABSENT))),
        },
    },
    Command {
        row: Row {
            flags: Flags::WRITE.with(Flags::FAST).with(Flags::TAKES_CHUNKS),
            ..set_row(
                "getset",
                3,
                "1.0.0",
                "Sets the string value of a key and returns the former one.",
            )
        },
        run: Run::Wide {
            fits: value_fits::<2>,
            handler: |cx| install(cx, SetOptions::GET, string::stored(cx.args.get(2))),
            task: |_, _| Ok(SetTask::start(|_, _| Ok(SetOptions::GET))),
        },
    },
    Command {
        row: set_row("setex", 4, "2.0.0", "Sets a value that expires after a number of seconds."),
        run: Run::Wide {
            fits: value_fits::<3>,
            handler: |cx| setex(cx, &TIME_UNITS[0]),
            task: |_, _| {
                Ok(SetTask::start(|args, now_ms| setex_options(args, now_ms, &TIME_UNITS[0])))
            },
        },
    },
    Command {
        row: set_row("psetex", 4, "2.6.0", "Sets a value that expires after some milliseconds."),
        run: Run::Wide {
            fits: value_fits::<3>,
            handler: |cx| setex(cx, &TIME_UNITS[1]),
            task: |_, _| {
                Ok(SetTask::start(|args, now_ms| setex_options(args, now_ms, &TIME_UNITS[1])))
            },
        },
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

/// The row of a relative of SET.
const fn set_row(
    name: &'static str,
    words: usize,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row {
        name,
        arity: Arity::Exactly(words),
        flags: Flags::WRITE.with(Flags::TAKES_CHUNKS),
        group: "string",
        keys: WRITE,
        cost: Cost::Detached,
        locks: Locks::None,
        since,
        complexity: "O(1)",
        summary,
    }
}

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

/// The options of SET, and how its relatives differ.
#[derive(Clone, Copy)]
pub(super) struct SetOptions {
    only_if: Option<Existence>,
    get: bool,
    expire: Expire,
    /// It answers whether the value was set, as a number.
    counts: bool,
    /// Where the value is among the arguments.
    pub(super) value: usize,
}

impl SetOptions {
    /// What SET does without options.
    const PLAIN: SetOptions =
        SetOptions { only_if: None, get: false, expire: Expire::Clear, counts: false, value: 2 };

    /// What SETNX does.
    const ABSENT: SetOptions =
        SetOptions { only_if: Some(Existence::Absent), counts: true, ..SetOptions::PLAIN };

    /// What GETSET does.
    const GET: SetOptions = SetOptions { get: true, ..SetOptions::PLAIN };
}

/// A condition on the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    Absent,
    Present,
}

/// A moment or a span in seconds or milliseconds, as options name them.
pub(super) struct TimeUnit {
    pub(super) option: &'static str,
    per_ms: i64,
    pub(super) is_span: bool,
}

pub(super) const TIME_UNITS: &[TimeUnit] = &[
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
    let mut options = SetOptions::PLAIN;
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
        options.expire = Expire::At(deadline(args.prefix(at), unit, now_ms, "set")?);
    } else if keep {
        options.expire = Expire::Keep;
    }
    Ok(options)
}

/// When something expires, Unix milliseconds.
///
/// # Errors
/// The amount is no positive integer, or too large.
pub(super) fn deadline(
    text: &[u8],
    unit: &TimeUnit,
    now_ms: i64,
    name: &'static str,
) -> Result<i64> {
    let invalid = || errors::invalid_expire(name);
    let amount = parse::integer(text)?;
    if amount <= 0 {
        return Err(invalid());
    }
    let ms = amount.checked_mul(unit.per_ms).ok_or_else(invalid)?;
    if unit.is_span { ms.checked_add(now_ms).ok_or_else(invalid) } else { Ok(ms) }
}

/// What SETEX and PSETEX do.
fn setex_options(args: Args<'_>, now_ms: i64, unit: &TimeUnit) -> Result<SetOptions> {
    let name = if unit.per_ms == 1 { "psetex" } else { "setex" };
    let expire = Expire::At(deadline(args.prefix(2), unit, now_ms, name)?);
    Ok(SetOptions { expire, value: 3, ..SetOptions::PLAIN })
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

fn setex(cx: &mut Context<'_, '_>, unit: &TimeUnit) -> Outcome {
    let options = setex_options(cx.args, cx.hold.now_ms(), unit)?;
    install(cx, options, string::stored(cx.args.get(3)))
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
    if options.counts {
        cx.reply.writer().int(i64::from(allowed));
    }
    if !allowed {
        discard(cx, value);
        if !options.get && !options.counts {
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
            let without = (options.value == 3).then_some(2);
            let words = Words { count: options.value + 1, without, name: Some("SET") };
            cx.hold.verbatim_beginning(words, &[b"PXAT", at_ms]);
        }
    }
    if !options.get && !options.counts {
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
    set_all(cx);
    cx.reply.writer().simple("OK");
    Ok(Flow::Done)
}

fn set_all(cx: &mut Context<'_, '_>) {
    for (index, wanted) in cx.keys.iter().enumerate() {
        let value = string::stored(cx.args.get(2 + 2 * index));
        cx.hold.upsert(wanted.key, value, Expire::Clear);
    }
    cx.hold.verbatim(cx.args);
}

fn msetnx(cx: &mut Context<'_, '_>) -> Outcome {
    if cx.args.len().is_multiple_of(2) {
        return Err(errors::wrong_arity("msetnx"));
    }
    let allowed = !cx.keys.iter().any(|wanted| cx.hold.read(wanted.key).is_some());
    if allowed {
        set_all(cx);
    }
    cx.reply.writer().int(i64::from(allowed));
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
