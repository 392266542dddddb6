//! MULTI, EXEC, DISCARD, WATCH, UNWATCH, SELECT, PING, ECHO, HELLO, QUIT, and no command at all.

use super::{Action, DATABASES, Generator, Profile, exact, judged, word};
use crate::judge::Judge;

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(100) {
        0..15 => exact(vec![word("MULTI")]),
        15..50 => exact(vec![word("EXEC")]),
        50..54 => exact(vec![word("DISCARD")]),
        54..64 => watch(generator),
        64..67 => exact(vec![word("UNWATCH")]),
        67..80 => exact(vec![word("SELECT"), database(generator)]),
        80..84 => exact(vec![word("PING")]),
        84..87 => exact(vec![word("PING"), generator.value()]),
        87..91 => exact(vec![word("ECHO"), generator.value()]),
        91..93 => unknown(generator),
        93 => refused(generator),
        94..97 => hello(generator),
        _ => quit(generator),
    }
}

fn watch(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("WATCH")];
    for _ in 0..=generator.random.below(3) {
        arguments.push(generator.any_key());
    }
    exact(arguments)
}

fn database(generator: &mut Generator) -> Vec<u8> {
    match generator.random.below(20) {
        0 => word(generator.random.pick(&["16", "-1", "abc", "", "9999999999999999999"])),
        _ => generator.random.below(DATABASES).to_string().into_bytes(),
    }
}

fn unknown(generator: &mut Generator) -> Action {
    let mut arguments = vec![word("NOSUCHCOMMAND")];
    for _ in 0..generator.random.below(4) {
        arguments.push(if generator.random.one_in(4) {
            vec![b'a'; 200]
        } else {
            generator.small_value()
        });
    }
    exact(arguments)
}

/// Subcommands that do not exist, or with too few or too many words: refused also when queued.
fn refused(generator: &mut Generator) -> Action {
    let choices = [
        "CLIENT",
        "CLIENT nosuch",
        "CLIENT ID x",
        "CLIENT KILL",
        "CONFIG GET",
        "CONFIG SET maxmemory",
        "CONFIG nosuch x",
        "COMMAND COUNT x",
        "COMMAND nosuch",
        "DEBUG DIGEST x",
        "CLIENT KILL ID x",
    ];
    exact(generator.random.pick(&choices).split(' ').map(word).collect())
}

/// HELLO without a version: it changes nothing and tells the protocol in use.
fn hello(generator: &mut Generator) -> Action {
    if generator.profile != Profile::Compared {
        return exact(vec![word("PING")]);
    }
    match generator.random.below(4) {
        0 => exact(vec![word("HELLO"), word(generator.random.pick(&["1", "4", "x", "-3"]))]),
        _ => judged(vec![word("HELLO")], Judge::Hello),
    }
}

fn quit(generator: &mut Generator) -> Action {
    if generator.profile == Profile::Compared && generator.random.one_in(4) {
        exact(vec![word("QUIT")])
    } else {
        exact(vec![word("UNWATCH")])
    }
}
