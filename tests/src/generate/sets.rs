//! SADD, SMEMBERS, SUNIONSTORE.

use super::{Action, Generator, exact, judged, word};
use crate::judge::Judge;

/// Members come from this many names, so that sets overlap.
const MEMBERS: u64 = 2_000;
/// The longest member that is added: Evenkeel refuses members over 256 KiB.
const MEMBER_BYTES_MAX: usize = 200_000;

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(10) {
        0..5 => add(generator),
        5..7 => judged(vec![word("SMEMBERS"), generator.key("set")], Judge::Unordered),
        _ => union_store(generator),
    }
}

fn add(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("SADD"), generator.key("set")];
    let numbers = generator.random.one_in(2);
    for _ in 0..generator.element_count() {
        arguments.push(if numbers {
            generator.number(0, MEMBERS as i64)
        } else if generator.random.one_in(3) {
            let mut member = generator.value();
            member.truncate(MEMBER_BYTES_MAX);
            member
        } else {
            format!("member-{}", generator.random.below(MEMBERS)).into_bytes()
        });
    }
    exact(arguments)
}

fn union_store(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("SUNIONSTORE")];
    for _ in 0..2 + generator.random.below(3) {
        arguments.push(generator.key("set"));
    }
    exact(arguments)
}
