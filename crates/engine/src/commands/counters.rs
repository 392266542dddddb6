//! Strings as integers: INCR, DECR, INCRBY, DECRBY.

use structures::object::Object;
use structures::table::{NewValue, Value};

use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Handler, Keys, Locks, Outcome, Row, Run,
};
use crate::keyspace::locks::Access;
use crate::parse;

/// A command that adds to the integer value of a key.
const fn counter(
    name: &'static str,
    arity: usize,
    summary: &'static str,
    handler: Handler,
) -> Command {
    let row = Row {
        name,
        arity: Arity::Exactly(arity),
        flags: Flags::WRITE.with(Flags::FAST),
        group: "string",
        keys: Keys::First(Access::Exclusive),
        cost: Cost::Small(500),
        locks: Locks::Keys,
        since: "1.0.0",
        complexity: "O(1)",
        summary,
    };
    Command { row, run: Run::Keyed(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    counter("incr", 2, "Adds one to the integer value of a key, which is 0 if absent.", |cx| {
        add(cx, 1)
    }),
    counter("decr", 2, "Takes one off the integer value of a key, which is 0 if absent.", |cx| {
        add(cx, -1)
    }),
    counter("incrby", 3, "Adds to the integer value of a key, which is 0 if absent.", |cx| {
        let amount = parse::integer(cx.args.get(2))?;
        add(cx, amount)
    }),
    counter("decrby", 3, "Takes off the integer value of a key, which is 0 if absent.", |cx| {
        let amount = parse::integer(cx.args.get(2))?;
        add(cx, amount.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?)
    }),
];

fn add(cx: &mut Context<'_, '_>, amount: i64) -> Outcome {
    let key = cx.keys[0].key;
    let value = match cx.hold.write(key) {
        None => {
            cx.hold.insert(key, NewValue::Int(amount), None);
            amount
        }
        Some(mut entry) => {
            let value = number(&entry.value())?.checked_add(amount).ok_or(errors::OVERFLOW)?;
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

/// The integer that a value is.
fn number(value: &Value<'_, Object>) -> Result<i64> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::Bytes(text) => parse::integer(text),
        Value::Object(object) if !matches!(**object, Object::BigString(_)) => {
            Err(errors::WRONG_TYPE)
        }
        Value::Object(_) => Err(errors::NOT_AN_INTEGER),
    }
}
