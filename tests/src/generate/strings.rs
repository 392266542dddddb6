//! GET, SET with all options and its relatives, MSET, MSETNX, MGET, INCR and its relatives, APPEND, SETRANGE,
//! STRLEN, GETRANGE, GETDEL, GETEX.

use super::{Action, Generator, exact, word};

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(50) {
        30..34 => counter(generator),
        34..39 => relative_of_set(generator),
        39..44 => range(generator),
        44..46 => exact(vec![word("GETDEL"), generator.key("string")]),
        46..50 => get_and_expire(generator),
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

fn counter(generator: &mut Generator) -> Action {
    let key = generator.key("string");
    let amount = match generator.random.below(12) {
        0 => word("-9223372036854775808"),
        1 => word("9223372036854775807"),
        _ => generator.number(-1000, 1000),
    };
    match generator.random.below(3) {
        0 => exact(vec![word("DECR"), key]),
        1 => exact(vec![word("INCRBY"), key, amount]),
        _ => exact(vec![word("DECRBY"), key, amount]),
    }
}

fn relative_of_set(generator: &mut Generator) -> Action {
    let (key, value) = (generator.key("string"), generator.value());
    match generator.random.below(4) {
        0 => exact(vec![word("SETNX"), key, value]),
        1 => exact(vec![word("GETSET"), key, value]),
        2 => {
            let seconds = generator.seconds_ahead();
            exact(vec![word("SETEX"), key, seconds, value])
        }
        _ => {
            let milliseconds = generator.milliseconds_ahead();
            exact(vec![word("PSETEX"), key, milliseconds, value])
        }
    }
}

fn range(generator: &mut Generator) -> Action {
    let name = if generator.random.one_in(4) { "SUBSTR" } else { "GETRANGE" };
    let mut position = || match generator.random.below(8) {
        0 => generator.number(-9_000, 9_000),
        1 => generator.number(-200_000, 200_000),
        _ => generator.number(-12, 12),
    };
    let (start, stop) = (position(), position());
    exact(vec![word(name), generator.key("string"), start, stop])
}

fn get_and_expire(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("GETEX"), generator.key("string")];
    for _ in 0..generator.random.pick(&[0, 1, 1, 1, 2]) {
        match generator.random.below(6) {
            0 => arguments.push(word("persist")),
            1 => arguments.extend([word("EX"), generator.seconds_ahead()]),
            2 => arguments.extend([word("px"), generator.milliseconds_ahead()]),
            3 => arguments.extend([word("EXAT"), generator.seconds_since_1970()]),
            4 => arguments.extend([word("PXAT"), generator.milliseconds_since_1970()]),
            _ => arguments.push(word("KEEPTTL")),
        }
    }
    exact(arguments)
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
    let name = if generator.random.one_in(3) { "MSETNX" } else { "MSET" };
    let mut arguments = vec![word(name)];
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
