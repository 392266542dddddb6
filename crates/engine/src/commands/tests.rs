//! Tests of the command table as a whole: names, and its projection in COMPAT.md.

use super::{COUNT, TABLE, find, signed_arity};
use crate::execution::command::{Arity, Cost, Run};

#[test]
fn every_command_is_found_in_any_case() {
    for command in &TABLE {
        for name in [command.row.name, &command.row.name.to_uppercase()] {
            let found = find(name.as_bytes()).map(|found| found.row.name);
            assert_eq!(found, Some(command.row.name));
        }
    }
    assert_eq!(TABLE.len(), COUNT);
    assert!(find(b"").is_none() && find(b"gett").is_none() && find(&[b'x'; 300]).is_none());
}

/// What COMPAT.md says of how a command keeps the promise.
fn way(cost: Cost) -> &'static str {
    match cost {
        Cost::Small(_) => "small",
        Cost::Streamed => "streamed",
        Cost::Detached => "cut off",
        Cost::Computed => "computed aside",
        Cost::Stepped => "in steps",
    }
}

fn line(name: &str, arity: Arity, rest: &str) -> String {
    format!("| {} | {} | {rest} |\n", name.to_uppercase(), signed_arity(arity))
}

/// The table of COMPAT.md, made from the rows.
fn table() -> String {
    let mut text = String::new();
    for command in &TABLE {
        let row = &command.row;
        let rest = format!("{} | {} | {}", row.since, way(row.cost), row.complexity);
        text += &line(row.name, row.arity, &rest);
        if let Run::Container(container) = &command.run {
            for part in container.subcommands {
                text += &line(&format!("{} {}", row.name, part.name), part.arity, "| |");
            }
        }
    }
    text
}

#[test]
fn compat_lists_the_commands_that_exist() {
    const COMPAT: &str = include_str!("../../../../COMPAT.md");
    let (_, behind) = COMPAT.split_once("| --- |\n").expect("the table has a head");
    let (listed, _) = behind.split_once("\n\n").expect("the table ends with an empty line");
    let table = table();
    assert!(listed == table.trim_end(), "put this table into COMPAT.md:\n{table}");
}
