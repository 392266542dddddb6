//! Parts of strings, and reads that change the key: GETRANGE, SUBSTR, GETDEL, GETEX.

use std::ops::Range;

use structures::object::Object;
use structures::table::Value;

use super::strings::{self, TIME_UNITS, TimeUnit};
use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run,
};
use crate::keyspace::locks::Access;
use crate::parse;
use crate::types::list;
use crate::types::string::{self, StringStream};
use resp::Args;

/// The row of GETRANGE under either of its names.
const fn range_row(name: &'static str, since: &'static str) -> Row {
    Row {
        name,
        arity: Arity::Exactly(4),
        flags: Flags::READ,
        group: "string",
        keys: Keys::First(Access::Shared),
        cost: Cost::Streamed,
        locks: Locks::Keys,
        since,
        complexity: "O(1)",
        summary: "Returns a part of the string value of a key.",
    }
}

/// The row of a command that answers the value and may change the key.
const fn get_row(name: &'static str, arity: Arity, summary: &'static str) -> Row {
    Row {
        name,
        arity,
        flags: Flags::WRITE.with(Flags::FAST),
        group: "string",
        keys: Keys::First(Access::Exclusive),
        cost: Cost::Streamed,
        locks: Locks::Keys,
        since: "6.2.0",
        complexity: "O(1)",
        summary,
    }
}

pub(super) const COMMANDS: &[Command] = &[
    Command { row: range_row("getrange", "2.4.0"), run: Run::Keyed(getrange) },
    Command { row: range_row("substr", "1.0.0"), run: Run::Keyed(getrange) },
    Command {
        row: get_row(
            "getdel",
            Arity::Exactly(2),
            "Returns the string value of a key and removes the key.",
        ),
        run: Run::Keyed(getdel),
    },
    Command {
        row: get_row(
            "getex",
            Arity::AtLeast(2),
            "Returns the string value of a key and sets or removes its expiry.",
        ),
        run: Run::Keyed(getex),
    },
];

fn getrange(cx: &mut Context<'_, '_>) -> Outcome {
    let start = parse::integer(cx.args.get(2))?;
    let stop = parse::integer(cx.args.get(3))?;
    match cx.hold.look_up(cx.keys[0].key).map(|entry| entry.value()) {
        None => cx.reply.writer().bulk(b""),
        Some(value) => {
            let range = range(start, stop, string::length(&value)?);
            let within = range.start as usize..range.end as usize;
            match value {
                Value::Bytes(bytes) => cx.reply.writer().bulk(&bytes[within]),
                Value::Int(int) => {
                    let mut digits = itoa::Buffer::new();
                    cx.reply.writer().bulk(&digits.format(int).as_bytes()[within]);
                }
                Value::Object(object) => match &*object {
                    Object::BigString(string) => {
                        cx.reply.stream(Box::new(StringStream::part(string.clone(), range)));
                    }
                    _ => return Err(errors::WRONG_TYPE),
                },
            }
        }
    }
    Ok(Flow::Done)
}

/// The bytes that two positions mean, both included. Unlike the ranges of lists, one that ends
/// before the first byte ends with it, unless it also began behind its end.
fn range(start: i64, stop: i64, length: u64) -> Range<u64> {
    if start < 0 && stop < 0 && start > stop {
        return 0..0;
    }
    list::range(start, stop.max(-(length as i64)), length)
}

fn getdel(cx: &mut Context<'_, '_>) -> Outcome {
    let key = cx.keys[0].key;
    match cx.hold.look_up(key) {
        None => cx.reply.writer().null(),
        Some(entry) => {
            string::write(&entry.value(), &mut cx.reply)?;
            cx.hold.delete(key);
            cx.hold.touched(key);
            cx.hold.replaced_by(&[b"DEL", key.bytes]);
        }
    }
    Ok(Flow::Done)
}

/// What GETEX does to the expiry.
enum Change<'a> {
    Keep,
    Remove,
    Set(&'static TimeUnit, &'a [u8]),
}

/// Reads the options of GETEX.
fn change(args: Args<'_>) -> Result<Change<'_>> {
    parse::check_words(args, "getex")?;
    let (mut change, mut index) = (Change::Keep, 2);
    while index < args.len() {
        let option = args.get(index);
        let unit = TIME_UNITS.iter().find(|unit| parse::is(option, unit.option));
        change = match (unit, change) {
            (None, Change::Keep | Change::Remove) if parse::is(option, "persist") => Change::Remove,
            (Some(unit), Change::Keep) if index + 1 < args.len() => {
                index += 1;
                Change::Set(unit, args.get(index))
            }
            // As in Redis, the same option may come twice, and only the last one counts.
            (Some(unit), Change::Set(other, _))
                if unit.option == other.option && index + 1 < args.len() =>
            {
                index += 1;
                Change::Set(unit, args.get(index))
            }
            _ => return Err(errors::SYNTAX),
        };
        index += 1;
    }
    Ok(change)
}

fn getex(cx: &mut Context<'_, '_>) -> Outcome {
    let change = change(cx.args)?;
    let (key, now_ms) = (cx.keys[0].key, cx.hold.now_ms());
    let Some(entry) = cx.hold.look_up(key) else {
        cx.reply.writer().null();
        return Ok(Flow::Done);
    };
    string::length(&entry.value())?;
    let at_ms = match change {
        Change::Set(unit, amount) => Some(strings::deadline(amount, unit, now_ms, "getex")?),
        _ => None,
    };
    string::write(&entry.value(), &mut cx.reply)?;
    match (change, at_ms) {
        (Change::Set(unit, _), Some(at_ms)) if !unit.is_span && at_ms <= now_ms => {
            cx.hold.delete(key);
            cx.hold.replaced_by(&[b"DEL", key.bytes]);
        }
        (_, Some(at_ms)) => {
            if let Some(mut entry) = cx.hold.write(key) {
                entry.set_expire(Some(at_ms));
            }
            let mut digits = itoa::Buffer::new();
            cx.hold.replaced_by(&[b"PEXPIREAT", key.bytes, digits.format(at_ms).as_bytes()]);
        }
        (Change::Remove, None) if entry.expire_at().is_some() => {
            if let Some(mut entry) = cx.hold.write(key) {
                entry.set_expire(None);
            }
            cx.hold.replaced_by(&[b"PERSIST", key.bytes]);
        }
        _ => return Ok(Flow::Done),
    }
    cx.hold.touched(key);
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn positions_mean_what_redis_means() {
        for (start, stop, expected) in [
            (0, -1, 0..5),
            (1, 3, 1..4),
            (-3, -1, 2..5),
            (-1, -3, 0..0),
            (0, -100, 0..1),
            (-100, -50, 0..1),
            (-50, -100, 0..0),
            (3, 100, 3..5),
            (5, 9, 0..0),
            (3, 2, 0..0),
            (i64::MIN, i64::MAX, 0..5),
        ] {
            assert_eq!(range(start, stop, 5), expected, "{start} {stop}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
