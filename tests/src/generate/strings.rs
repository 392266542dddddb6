//! GET, SET with all options, MSET, MGET, INCR, APPEND, SETRANGE, STRLEN.

use super::{Action, Generator, exact, word};

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(30) {
        0..10 => set(generator),
        10..15 => exact(vec![word("GET"), generator.key("string")]),
        15..19 => exact(vec![word("INCR"), generator.key("string")]),
        19..22 => exact(vec![word("APPEND"), generator.key("string"), generator.value()]),
        22..24 => set_range(generator),
        24..26 => exact(vec![word("STRLEN"), generator.key("string")]),
        26..28 => multi_set(generator),
        _ => multi_get(generator),
    }
}

fn set(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("SET"), generator.key("string"), generator.value()];
    let options = match generator.random.below(12) {
        0..5 => 0,
        5..10 => 1,
        10 => 2,
        _ => 3,
    };
    for _ in 0..options {
        push_option(generator, &mut arguments);
    }
    exact(arguments)
}

fn push_option(generator: &mut Generator, arguments: &mut Vec<Vec<u8>>) {
    match generator.random.below(9) {
        0 => arguments.push(word("NX")),
        1 => arguments.push(word("xx")),
        2 => arguments.push(word("GET")),
        3 => arguments.push(word("KEEPTTL")),
        4 => arguments.push(word("BOGUS")),
        5 => {
            arguments.push(word("EX"));
            arguments.push(generator.seconds_ahead());
        }
        6 => {
            arguments.push(word("px"));
            arguments.push(generator.milliseconds_ahead());
        }
        7 => {
            arguments.push(word("EXAT"));
            arguments.push(generator.seconds_since_1970());
        }
        _ => {
            arguments.push(word("PXAT"));
            arguments.push(generator.milliseconds_since_1970());
        }
    }
}

fn set_range(generator: &mut Generator) -> Action {
    let offset = match generator.random.below(20) {
        0 => generator.number(16_000, 40_000),
        // Refused: a string of 512 MB that others read two hundred times is no test but an end.
        1 => word("536870912"),
        2 => word("-1"),
        _ => generator.number(0, 60),
    };
    exact(vec![word("SETRANGE"), generator.key("string"), offset, generator.value()])
}

fn multi_set(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("MSET")];
    for _ in 0..=generator.random.below(5) {
        arguments.push(generator.key("string"));
        arguments.push(generator.value());
    }
    exact(arguments)
}

fn multi_get(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("MGET")];
    let count = if generator.random.one_in(30) { 200 } else { 1 + generator.random.below(6) };
    for _ in 0..count {
        arguments.push(generator.key("string"));
    }
    exact(arguments)
}
