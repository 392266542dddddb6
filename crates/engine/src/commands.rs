//! The command table: every family's rows, sorted at compile time.
//!
//! A family is listed in [`FAMILIES`]; a family that is not, a handler without a row and a name that
//! occurs twice do not build.

mod strings;
mod strings_large;
mod strings_read;
mod counters;
mod lists;
mod lists_edit;
mod lists_find;
mod sets;
mod keys;
mod scan;
mod databases;
mod transactions;
mod connection;
mod introspection;
mod server;
mod digest;
mod subcommand;

use std::sync::LazyLock;

use crate::execution::command::{Arity, Command};
use crate::execution::engine::CommandTable;

const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    strings_read::COMMANDS,
    counters::COMMANDS,
    lists::COMMANDS,
    lists_edit::COMMANDS,
    lists_find::COMMANDS,
    sets::COMMANDS,
    keys::COMMANDS,
    scan::COMMANDS,
    databases::COMMANDS,
    transactions::COMMANDS,
    connection::COMMANDS,
    introspection::COMMANDS,
    server::COMMANDS,
];

/// Number of commands.
pub const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// All commands in the order of their names.
pub static TABLE: [Command; COUNT] = sorted();

const fn sorted() -> [Command; COUNT] {
    let mut table = [FAMILIES[0][0]; COUNT];
    let (mut filled, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut index = 0;
        while index < FAMILIES[family].len() {
            let command = FAMILIES[family][index];
            let mut at = filled;
            while at > 0 && compare(command.row.name, table[at - 1].row.name) < 0 {
                table[at] = table[at - 1];
                at -= 1;
            }
            table[at] = command;
            assert!(at == 0 || compare(command.row.name, table[at - 1].row.name) > 0, "twice");
            filled += 1;
            index += 1;
        }
        family += 1;
    }
    table
}

const fn compare(left: &str, right: &str) -> i32 {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut at = 0;
    while at < left.len() && at < right.len() {
        if left[at] != right[at] {
            return left[at] as i32 - right[at] as i32;
        }
        at += 1;
    }
    left.len() as i32 - right.len() as i32
}

/// Slots of the name index: more than four per command, so that most probes hit at once.
const INDEX_SLOTS: usize = 1024;
const _: () = assert!(COUNT * 2 < INDEX_SLOTS, "the index is sparse");

/// A name in the index.
#[derive(Clone, Copy)]
struct Indexed {
    /// [`words`] of the name.
    words: Words,
    /// Position in [`TABLE`].
    position: u16,
    /// Equal words do not prove equal names: it has bytes between them, or other bytes than letters.
    compare: bool,
}

/// Open addressing over the lower-case name.
static INDEX: LazyLock<[Option<Indexed>; INDEX_SLOTS]> = LazyLock::new(|| {
    let mut index = [None; INDEX_SLOTS];
    for (position, command) in TABLE.iter().enumerate() {
        let name = command.row.name.as_bytes();
        let words = words(name);
        let mut slot = words.slot();
        while index[slot].is_some() {
            slot = (slot + 1) % INDEX_SLOTS;
        }
        let compare = name.len() > 16 || !name.iter().all(u8::is_ascii_lowercase);
        index[slot] = Some(Indexed { words, position: position as u16, compare });
    }
    index
});

/// The first and the last bytes of a name in lower case, and its length. They overlap or touch up to
/// 16 bytes, so they are the whole name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    first: u64,
    last: u64,
    len: usize,
}

#[inline]
fn words(name: &[u8]) -> Words {
    /// Makes letters small. Other bytes than letters may become equal.
    const LOWER_CASE: u64 = 0x2020_2020_2020_2020;
    let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(&first), Some(&last)) => (u64::from_le_bytes(first), u64::from_le_bytes(last)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(&first), Some(&last)) => {
                (u32::from_le_bytes(first).into(), u32::from_le_bytes(last).into())
            }
            _ => (name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0),
        },
    };
    Words { first: first | LOWER_CASE, last: last | LOWER_CASE, len: name.len() }
}

impl Words {
    #[inline]
    fn slot(self) -> usize {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = self.first ^ self.last.rotate_left(21) ^ self.len as u64;
        (mixed.wrapping_mul(MULTIPLIER) >> 32) as usize % INDEX_SLOTS
    }
}

/// The command of this name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let words = words(name);
    let mut slot = words.slot();
    loop {
        let indexed = INDEX[slot].as_ref()?;
        let command = &TABLE[indexed.position as usize];
        if indexed.words == words
            && (!indexed.compare || name.eq_ignore_ascii_case(command.row.name.as_bytes()))
        {
            return Some(command);
        }
        slot = (slot + 1) % INDEX_SLOTS;
    }
}

/// The table, for the engine.
pub fn table() -> CommandTable {
    CommandTable { all: &TABLE, find }
}

/// The arity as COMMAND shows it: negative for "at least".
pub fn signed_arity(arity: Arity) -> i64 {
    match arity {
        Arity::Exactly(words) => words as i64,
        Arity::AtLeast(words) => -(words as i64),
    }
}

#[cfg(test)]
mod tests;
