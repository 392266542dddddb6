//! Commands of many keys or values, repeated ones among them: what a server must do in several
//! steps and still as a whole. MSET, MGET, DEL, WATCH, SUNIONSTORE, RPUSH, LPUSH, SADD.

use super::{Action, Generator, exact, word};

/// Names come from this many, so that long commands repeat some.
const NAMES: u64 = 400;

pub(super) fn action(generator: &mut Generator) -> Action {
    let count = count(generator);
    match generator.random.below(10) {
        0 | 1 => multi_set(generator, count),
        2 | 3 => of_names(generator, "MGET", count),
        4 => of_names(generator, "DEL", count),
        5 => of_names(generator, "WATCH", count),
        6 => union_store(generator, count),
        7 => of_values(generator, "RPUSH", "list", count),
        8 => of_values(generator, "LPUSH", "list", count),
        _ => of_values(generator, "SADD", "set", count),
    }
}

/// Around the numbers at which commands change their way.
fn count(generator: &mut Generator) -> u64 {
    match generator.random.below(20) {
        0 => generator.random.between(900, 1_100) as u64,
        1 => 2_000,
        2..8 => generator.random.between(100, 300) as u64,
        8..14 => generator.random.between(60, 70) as u64,
        _ => generator.random.between(28, 36) as u64,
    }
}

/// A name that only such commands use, or one of the pool.
fn name(generator: &mut Generator) -> Vec<u8> {
    if generator.random.one_in(20) {
        return generator.any_key();
    }
    format!("many:{}", generator.random.below(NAMES)).into_bytes()
}

fn of_names(generator: &mut Generator, command: &str, count: u64) -> Action {
    let mut arguments = vec![word(command)];
    arguments.extend((0..count).map(|_| name(generator)));
    exact(arguments)
}

fn multi_set(generator: &mut Generator, count: u64) -> Action {
    let mut arguments = vec![word("MSET")];
    for _ in 0..count {
        arguments.push(name(generator));
        let long = generator.random.one_in(200);
        arguments.push(if long { generator.value() } else { generator.small_value() });
    }
    exact(arguments)
}

fn union_store(generator: &mut Generator, count: u64) -> Action {
    let mut arguments = vec![word("SUNIONSTORE"), generator.key("set")];
    arguments.extend((0..count).map(|_| {
        // Mostly absent names, or the first string among them would refuse the command.
        if generator.random.one_in(4) {
            format!("set:{}", generator.random.below(4)).into_bytes()
        } else {
            format!("none:{}", generator.random.below(NAMES)).into_bytes()
        }
    }));
    exact(arguments)
}

fn of_values(generator: &mut Generator, command: &str, family: &str, count: u64) -> Action {
    let mut arguments = vec![word(command), generator.key(family)];
    arguments.extend((0..count).map(|_| generator.small_value()));
    exact(arguments)
}
