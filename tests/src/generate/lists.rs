//! Pushes, RPOP and LPOP with and without count, LRANGE, LLEN, LINDEX, LREM, LTRIM, LSET, LINSERT,
//! LMOVE, RPOPLPUSH, LPOS.

use super::{Action, Generator, exact, word};

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(45) {
        30..32 => push(generator, "LPUSHX"),
        32..34 => push(generator, "RPUSHX"),
        34..37 => set(generator),
        37..39 => insert(generator),
        39..42 => shift(generator),
        42..45 => positions(generator),
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

fn set(generator: &mut Generator) -> Action {
    let (key, index, element) = (generator.key("list"), index(generator), generator.value());
    exact(vec![word("LSET"), key, index, element])
}

/// An element that is likely to be in a list.
fn likely(generator: &mut Generator) -> Vec<u8> {
    if generator.random.one_in(4) { generator.value() } else { generator.small_value() }
}

fn insert(generator: &mut Generator) -> Action {
    let place = generator.random.pick(&["BEFORE", "after", "BESIDE"]);
    let (key, pivot, element) = (generator.key("list"), likely(generator), generator.value());
    exact(vec![word("LINSERT"), key, word(place), pivot, element])
}

fn shift(generator: &mut Generator) -> Action {
    let (source, destination) = (generator.key("list"), generator.key("list"));
    if generator.random.one_in(3) {
        return exact(vec![word("RPOPLPUSH"), source, destination]);
    }
    let ends = ["LEFT", "right", "Right", "left", "UP"];
    let (from, to) = (generator.random.pick(&ends), generator.random.pick(&ends));
    exact(vec![word("LMOVE"), source, destination, word(from), word(to)])
}

fn positions(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("LPOS"), generator.key("list"), likely(generator)];
    for _ in 0..generator.random.below(3) {
        match generator.random.below(10) {
            0..4 => arguments.extend([word("RANK"), generator.number(-3, 3)]),
            4..7 => arguments.extend([word("count"), generator.number(-1, 4)]),
            7..9 => arguments.extend([word("MAXLEN"), generator.number(-1, 200)]),
            _ => arguments.push(word("COUNT")),
        }
    }
    exact(arguments)
}
