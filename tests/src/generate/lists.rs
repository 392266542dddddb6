//! RPUSH, LPUSH, RPOP, LPOP with and without count, LRANGE, LLEN, LINDEX, LREM, LTRIM.

use super::{Action, Generator, exact, word};

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(30) {
        0..6 => push(generator, "RPUSH"),
        6..10 => push(generator, "LPUSH"),
        10..13 => pop(generator, "RPOP"),
        13..16 => pop(generator, "LPOP"),
        16..20 => range(generator, "LRANGE"),
        20..22 => exact(vec![word("LLEN"), generator.key("list")]),
        22..25 => exact(vec![word("LINDEX"), generator.key("list"), index(generator)]),
        25..28 => remove(generator),
        _ => range(generator, "LTRIM"),
    }
}

fn push(generator: &mut Generator, name: &str) -> Action {
    let mut arguments = vec![word(name), generator.key("list")];
    let count = generator.element_count();
    for _ in 0..count {
        arguments.push(if count > 20 { generator.small_value() } else { generator.value() });
    }
    exact(arguments)
}

fn pop(generator: &mut Generator, name: &str) -> Action {
    let mut arguments = vec![word(name), generator.key("list")];
    match generator.random.below(20) {
        0..10 => {}
        10..17 => arguments.push(generator.number(0, 8)),
        17 => arguments.push(generator.number(-2, -1)),
        _ => arguments.push(generator.number(50, 400)),
    }
    exact(arguments)
}

fn range(generator: &mut Generator, name: &str) -> Action {
    let (start, stop) = match generator.random.below(4) {
        0 if name == "LRANGE" => (word("0"), word("-1")),
        1 => (generator.number(0, 10), generator.number(-10, -1)),
        _ => (index(generator), index(generator)),
    };
    exact(vec![word(name), generator.key("list"), start, stop])
}

/// A position from either end, mostly near it.
fn index(generator: &mut Generator) -> Vec<u8> {
    if generator.random.one_in(4) {
        generator.number(-1_000, 1_000)
    } else {
        generator.number(-12, 12)
    }
}

fn remove(generator: &mut Generator) -> Action {
    let count = generator.number(-3, 3);
    let element =
        if generator.random.one_in(4) { generator.value() } else { generator.small_value() };
    exact(vec![word("LREM"), generator.key("list"), count, element])
}
