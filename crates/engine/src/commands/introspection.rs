//! What the server tells about itself: INFO and COMMAND.

mod info;

use std::sync::LazyLock;

use resp::{Protocol, Writer};

use super::subcommand::{self, help_part, part};
use crate::execution::command::container::check_size;
use crate::execution::command::{
    Arity, Call, Command, Container, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run,
};
use crate::keyspace::locks::Access;

/// The version of Redis whose behaviour clients may expect.
pub(super) const VERSION: &str = "7.2.4";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "info",
            arity: Arity::AtLeast(1),
            flags: Flags::NONE,
            group: "server",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Shows the state of the server, in sections.",
        },
        run: Run::Plain(info),
    },
    Command {
        row: Row {
            name: "command",
            arity: Arity::AtLeast(1),
            flags: Flags::NONE,
            group: "server",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::None,
            since: "2.8.13",
            complexity: "O(N) with N commands",
            summary: "Describes the commands.",
        },
        run: Run::Container(Container {
            alone: Some(describe_commands),
            subcommands: &[
                part("count", Arity::Exactly(2), count),
                help_part(|call| subcommand::help(call, "COMMAND", COMMAND_HELP)),
            ],
        }),
    },
];

fn info(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    check_size(args, "info")?;
    let text = info::text(call.worker, args.iter().skip(1));
    call.reply().writer().verbatim(b"txt", text.as_bytes());
    Ok(Flow::Done)
}

const COMMAND_HELP: &[&str] = &[
    "(no subcommand)",
    "    Describes all commands.",
    "COUNT",
    "    Answers with the number of commands.",
];

fn describe_commands(call: &mut Call<'_>) -> Outcome {
    let text = match call.session.protocol {
        Protocol::Resp2 => &ALL_IN_RESP2,
        Protocol::Resp3 => &ALL_IN_RESP3,
    };
    call.reply().writer().raw(text);
    Ok(Flow::Done)
}

fn count(call: &mut Call<'_>) -> Outcome {
    call.reply().writer().int(super::COUNT as i64);
    Ok(Flow::Done)
}

/// What COMMAND answers without a subcommand, encoded once.
static ALL_IN_RESP2: LazyLock<Vec<u8>> = LazyLock::new(|| describe_all(Protocol::Resp2));
static ALL_IN_RESP3: LazyLock<Vec<u8>> = LazyLock::new(|| describe_all(Protocol::Resp3));

fn describe_all(protocol: Protocol) -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = Writer::new(&mut text, protocol);
    writer.array(super::COUNT as u64);
    super::TABLE.iter().for_each(|command| describe(&command.row, &mut writer));
    text
}

/// One command as COMMAND shows it.
fn describe(row: &Row, writer: &mut Writer<'_>) {
    writer.array(10);
    writer.bulk(row.name.as_bytes());
    writer.int(super::signed_arity(row.arity));
    names(writer, &flags(row.flags));
    let (first, last, step) = positions(row.keys);
    [first, last, step].iter().for_each(|position| writer.int(*position));
    names(writer, &categories(row));
    // Hints for proxies: none.
    writer.set(0);
    let specifications = specifications(row.keys);
    writer.set(specifications.len() as u64);
    specifications.iter().for_each(|specification| specification.write(writer));
    // Subcommands have no rows.
    writer.set(0);
}

fn names(writer: &mut Writer<'_>, names: &[&str]) {
    writer.set(names.len() as u64);
    names.iter().for_each(|name| writer.simple(name));
}

/// The names of those flags that clients know.
fn flags(flags: Flags) -> Vec<&'static str> {
    let known = [
        (Flags::WRITE, "write"),
        (Flags::READ, "readonly"),
        (Flags::ADMIN, "admin"),
        (Flags::FAST, "fast"),
    ];
    known.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| *name).collect()
}

fn categories(row: &Row) -> Vec<&'static str> {
    let mut found = Vec::new();
    if row.flags.has(Flags::WRITE) {
        found.push("@write");
    }
    if row.flags.has(Flags::READ) {
        found.push("@read");
    }
    found.extend(match row.group {
        "string" => Some("@string"),
        "list" => Some("@list"),
        "set" => Some("@set"),
        "generic" => Some("@keyspace"),
        "connection" => Some("@connection"),
        "transactions" => Some("@transaction"),
        _ => None,
    });
    if row.flags.has(Flags::ADMIN) {
        found.extend(["@admin", "@dangerous"]);
    }
    found.push(if row.flags.has(Flags::FAST) { "@fast" } else { "@slow" });
    found
}

/// The first key's position, the last one's (from the end if negative), and the step.
fn positions(keys: Keys) -> (i64, i64, i64) {
    match keys {
        Keys::None => (0, 0, 0),
        Keys::First(_) => (1, 1, 1),
        Keys::FirstTwo(_) => (1, 2, 1),
        Keys::All { step, .. } => (1, -1, step as i64),
        Keys::DestinationAndSources => (1, -1, 1),
    }
}

/// A run of keys among the words, and what is done to them.
#[derive(Debug, PartialEq, Eq)]
struct Specification {
    begin: i64,
    /// Relative to the first; from the end if negative.
    last: i64,
    step: i64,
    access: Access,
}

fn specifications(keys: Keys) -> Vec<Specification> {
    let one = |begin, last, step, access| Specification { begin, last, step, access };
    match keys {
        Keys::None => Vec::new(),
        Keys::First(access) => vec![one(1, 0, 1, access)],
        Keys::FirstTwo(access) => vec![one(1, 0, 1, access), one(2, 0, 1, access)],
        Keys::All { step, access } => vec![one(1, -1, step as i64, access)],
        Keys::DestinationAndSources => {
            vec![one(1, 0, 1, Access::Exclusive), one(2, -1, 1, Access::Shared)]
        }
    }
}

impl Specification {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.map(3);
        writer.bulk(b"flags");
        names(writer, if self.access == Access::Shared { &["RO"] } else { &["RW"] });
        writer.bulk(b"begin_search");
        typed(writer, "index", &[("index", self.begin)]);
        writer.bulk(b"find_keys");
        typed(writer, "range", &[("lastkey", self.last), ("keystep", self.step), ("limit", 0)]);
    }
}

/// A part of a key specification: the name of its type, and its numbers.
fn typed(writer: &mut Writer<'_>, of_type: &str, numbers: &[(&str, i64)]) {
    writer.map(2);
    writer.bulk(b"type");
    writer.bulk(of_type.as_bytes());
    writer.bulk(b"spec");
    writer.map(numbers.len() as u64);
    for (name, number) in numbers {
        writer.bulk(name.as_bytes());
        writer.int(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The description of a command, as bytes of RESP3.
    fn described(name: &str) -> String {
        let mut out = Vec::new();
        let command = super::super::find(name.as_bytes()).expect("it exists");
        describe(&command.row, &mut Writer::new(&mut out, Protocol::Resp3));
        out.escape_ascii().to_string().replace("\\r\\n", " ")
    }

    #[test]
    fn commands_are_described_as_redis_describes_them() {
        assert_eq!(
            described("ping"),
            "*10 $4 ping :-1 ~1 +fast :0 :0 :0 ~2 +@connection +@fast ~0 ~0 ~0 "
        );
        let range = "%2 $4 type $5 index $4 spec %1 $5 index";
        assert_eq!(
            described("sunionstore"),
            format!(
                "*10 $11 sunionstore :-3 ~1 +write :1 :-1 :1 ~3 +@write +@set +@slow ~0 ~2 \
                 %3 $5 flags ~1 +RW $12 begin_search {range} :1 $9 find_keys %2 $4 type $5 range \
                 $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 \
                 %3 $5 flags ~1 +RO $12 begin_search {range} :2 $9 find_keys %2 $4 type $5 range \
                 $4 spec %3 $7 lastkey :-1 $7 keystep :1 $5 limit :0 ~0 "
            )
        );
    }

    #[test]
    fn positions_of_keys_agree_with_their_specifications() {
        for command in super::super::TABLE {
            let (first, last, step) = positions(command.row.keys);
            let specifications = specifications(command.row.keys);
            match (specifications.first(), specifications.last()) {
                (Some(begin), Some(end)) => {
                    assert_eq!((begin.begin, begin.step), (first, step));
                    assert_eq!(if end.last < 0 { end.last } else { end.begin + end.last }, last);
                }
                _ => assert_eq!((first, last, step), (0, 0, 0)),
            }
        }
    }
}
