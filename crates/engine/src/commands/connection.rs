//! Connections: PING, ECHO, QUIT, HELLO, CLIENT.
//!
//! CLIENT PAUSE answers when every write has ended that began before, CLIENT KILL when the clients
//! are gone and nothing writes for them any more.

mod kill;

use resp::{Args, Protocol};
use structures::big_string::BigString;

use super::introspection::VERSION;
use super::subcommand::{self, Acknowledged, Answer, help_part, part};
use crate::control::Awaited;
use crate::errors::{self, Result};
use crate::execution::command::container::check_size;
use crate::execution::command::{
    Arity, Call, Command, Container, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run,
};
use crate::execution::session::Session;
use crate::execution::task::{Step, Task, TaskContext};
use crate::lanes::Discard;
use crate::parse;
use crate::types::string::{self, StringStream};

/// The only user until there are others; any password is his.
const USER: &[u8] = b"default";

/// A message that PING and ECHO send back where they are executed. A longer one is copied in steps.
const MESSAGE_AT_ONCE_BYTES: usize = 16 * 1024;

/// Bytes of a longer message that one step copies.
const MESSAGE_STEP_BYTES: usize = 64 * 1024;

/// The row of a command about connections.
const fn row(name: &'static str, arity: Arity, flags: Flags, since: &'static str) -> Row {
    Row {
        name,
        arity,
        flags,
        group: "connection",
        keys: Keys::None,
        cost: Cost::Small(100),
        locks: Locks::None,
        since,
        complexity: "O(1)",
        summary: "",
    }
}

const MESSAGE: Flags = Flags::FAST.with(Flags::HARMLESS).with(Flags::TAKES_CHUNKS);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            summary: "Answers, with the client's message if there is one.",
            ..row("ping", Arity::AtLeast(1), MESSAGE, "1.0.0")
        },
        run: Run::Plain(ping),
    },
    Command {
        row: Row {
            summary: "Answers with the client's message.",
            ..row("echo", Arity::Exactly(2), MESSAGE, "1.0.0")
        },
        run: Run::Plain(echo),
    },
    Command {
        row: Row {
            summary: "Closes the connection after its replies.",
            ..row("quit", Arity::AtLeast(1), Flags::FAST.with(Flags::CONTROLS_TRANSACTION), "1.0.0")
        },
        run: Run::Plain(quit),
    },
    Command {
        row: Row {
            summary: "Chooses the protocol, names the connection, describes the server.",
            ..row("hello", Arity::AtLeast(1), Flags::FAST, "6.0.0")
        },
        run: Run::Plain(hello),
    },
    Command {
        row: Row {
            cost: Cost::Stepped,
            complexity: "O(N) for KILL, with N open connections",
            summary: "Shows, closes and pauses connections.",
            ..row("client", Arity::AtLeast(2), Flags::ADMIN.with(Flags::NEVER_PAUSED), "2.4.0")
        },
        run: Run::Container(Container {
            alone: None,
            subcommands: &[
                part("id", Arity::Exactly(2), id),
                part("kill", Arity::AtLeast(3), kill::kill),
                part("pause", Arity::AtLeast(3), pause),
                help_part(|call| subcommand::help(call, "CLIENT", CLIENT_HELP)),
            ],
        }),
    },
];

fn ping(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        1 => {
            call.reply().writer().simple("PONG");
            Ok(Flow::Done)
        }
        2 => echo(call),
        _ => Err(errors::wrong_arity("ping")),
    }
}

fn echo(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    if args.chunked(1).is_some() || args.arg_len(1) > MESSAGE_AT_ONCE_BYTES {
        call.task = Some(Box::new(EchoTask { copy: BigString::new() }));
    } else {
        call.reply().writer().bulk(args.get(1));
    }
    Ok(Flow::Done)
}

/// A long message on its way back.
struct EchoTask {
    copy: BigString,
}

impl Task for EchoTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let args = cx.request.args();
        let len = args.arg_len(1);
        let mut offset = self.copy.len() as usize;
        let upto = len.min(offset + MESSAGE_STEP_BYTES);
        while offset < upto {
            let piece = string::piece(args, 1, offset);
            self.copy.append(piece);
            offset += piece.len();
        }
        if offset < len {
            return Ok(Step::Again);
        }
        let copy = std::mem::take(&mut self.copy);
        cx.session.reply().stream(Box::new(StringStream::new(copy)));
        Ok(Step::Done)
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        Some(Box::new(StringStream::new(self.copy)))
    }
}

fn quit(call: &mut Call<'_>) -> Outcome {
    call.reply().writer().simple("OK");
    call.session.closing = true;
    Ok(Flow::Done)
}

fn hello(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    check_size(args, "hello")?;
    if args.len() > 1 {
        let protocol = match parse::integer(args.get(1)) {
            Ok(2) => Protocol::Resp2,
            Ok(3) => Protocol::Resp3,
            Ok(_) => return Err(errors::UNSUPPORTED_PROTOCOL),
            Err(_) => return Err(errors::PROTOCOL_NOT_AN_INTEGER),
        };
        if let Some(name) = hello_options(args)? {
            *call.session.info.name.lock() = name.to_vec();
        }
        call.session.protocol = protocol;
    }
    describe(call.session);
    Ok(Flow::Done)
}

/// Checks the options; the new name of the connection if there is one.
fn hello_options(args: Args<'_>) -> Result<Option<&[u8]>> {
    let mut name = None;
    let mut index = 2;
    while index < args.len() {
        let (option, values) = (args.get(index), args.len() - 1 - index);
        if parse::is(option, "auth") && values >= 2 {
            if args.get(index + 1) != USER {
                return Err(errors::WRONG_PASSWORD);
            }
            index += 3;
        } else if parse::is(option, "setname") && values >= 1 {
            let wanted = args.get(index + 1);
            if !wanted.iter().all(u8::is_ascii_graphic) {
                return Err(errors::CLIENT_NAME_SPACES);
            }
            name = Some(wanted);
            index += 2;
        } else {
            return Err(errors::hello_option(option));
        }
    }
    Ok(name)
}

/// What HELLO answers.
fn describe(session: &mut Session) {
    let (id, protocol) = (session.info.id, session.protocol);
    let mut reply = session.reply();
    let mut writer = reply.writer();
    writer.map(7);
    let texts = [("server", "redis"), ("version", VERSION)];
    for (field, value) in texts {
        writer.bulk(field.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"proto");
    writer.int(if protocol == Protocol::Resp3 { 3 } else { 2 });
    writer.bulk(b"id");
    writer.int(id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        writer.bulk(field.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
}

const CLIENT_HELP: &[&str] = &[
    "ID",
    "    Answers with the number of this connection.",
    "KILL <ip:port>",
    "    Closes the connection from this address.",
    "KILL <option> <value> [<option> <value> ...]",
    "    Closes the connections to which all options apply:",
    "    * ADDR <ip:port>: the client's address.",
    "    * ID <number>",
    "    * LADDR <ip:port>: the server's address that the client reached.",
    "    * MAXAGE <seconds>: connected for at least this long.",
    "    * SKIPME (YES|NO): whether this connection is spared; it is unless told otherwise.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "    * USER <name>",
    "PAUSE <milliseconds> [WRITE|ALL]",
    "    Lets commands, or only writes, wait.",
];

fn id(call: &mut Call<'_>) -> Outcome {
    let id = call.session.info.id;
    call.reply().writer().int(id as i64);
    Ok(Flow::Done)
}

fn pause(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let writes_only = match args.len() {
        3 => false,
        4 if parse::is(args.get(3), "write") => true,
        4 if parse::is(args.get(3), "all") => false,
        4 => return Err(errors::PAUSE_MODE),
        _ => return Err(errors::subcommand_syntax(args.get(1), "client")),
    };
    let ms = parse::integer(args.get(2)).map_err(|_| errors::NOT_A_TIMEOUT)?;
    if ms < 0 {
        return Err(errors::NEGATIVE_TIMEOUT);
    }
    let now_ms = call.worker.now_ms;
    let until_ms = now_ms.checked_add(ms).ok_or(errors::TIMEOUT_OUT_OF_RANGE)?;
    call.worker.engine.keyspace.keep_expired_until(until_ms);
    call.worker.engine.pause.set(until_ms, writes_only, now_ms);
    call.task = Some(Box::new(Acknowledged::when(Awaited::Writes, Answer::Ok)));
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_hello() {
        for (words, expected) in [
            (&["AUTH", "default", "any"][..], Ok(None)),
            (&["setname", "a", "SETNAME", "b"], Ok(Some("b"))),
            (&["SETNAME", ""], Ok(Some(""))),
            (&["SETNAME", "a b"], Err(errors::CLIENT_NAME_SPACES)),
            (&["AUTH", "nobody", "x", "SETNAME", "a b"], Err(errors::WRONG_PASSWORD)),
            (&["AUTH", "default"], Err(errors::hello_option(b"AUTH"))),
            (&["SETNAME"], Err(errors::hello_option(b"SETNAME"))),
            (&["BOGUS"], Err(errors::hello_option(b"BOGUS"))),
        ] {
            let mut all: Vec<&[u8]> = vec![b"HELLO", b"3"];
            all.extend(words.iter().map(|word| word.as_bytes()));
            let found = hello_options(Args::from_slices(&all));
            assert_eq!(found, expected.map(|name| name.map(str::as_bytes)), "{words:?}");
        }
    }
}
