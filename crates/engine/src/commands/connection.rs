//! Connections: PING, ECHO, QUIT, HELLO, CLIENT.
//!
//! CLIENT PAUSE answers when every write has ended that began before, CLIENT KILL when the clients
//! are gone and nothing writes for them any more.

use std::net::SocketAddr;

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
use crate::execution::session::registry::ClientInfo;
use crate::execution::task::{Step, Task, TaskContext};
use crate::lanes::Discard;
use crate::parse;
use crate::sync::Arc;
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
            complexity: "O(N) for KILL, with N open connections",
            summary: "Shows, closes and pauses connections.",
            ..row("client", Arity::AtLeast(2), Flags::ADMIN.with(Flags::NEVER_PAUSED), "2.4.0")
        },
        run: Run::Container(Container {
            alone: None,
            subcommands: &[
                part("id", Arity::Exactly(2), id),
                part("kill", Arity::AtLeast(3), kill),
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

fn kill(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let by_address = args.len() == 3;
    let filter = if by_address {
        Filter { peer: Some(address(args.get(2))), skip_me: false, ..Filter::default() }
    } else {
        Filter::parse(args)?
    };
    let (me, now_ms) = (call.session.info.id, call.worker.now_ms);
    let mut victims =
        call.worker.engine.registry.select(|client| filter.matches(client, me, now_ms));
    let count = victims.len();
    if by_address && count == 0 {
        return Err(errors::NO_SUCH_CLIENT);
    }
    // The own connection closes by itself when the reply is sent.
    victims.retain(|&victim| victim != me);
    let suicide = victims.len() < count;
    let answer = if by_address { Answer::Ok } else { Answer::Count(count as i64) };
    if victims.is_empty() {
        answer.write(call.session);
        call.session.closing |= suicide;
        return Ok(Flow::Done);
    }
    call.worker.engine.mailboxes.kill(Arc::from(victims));
    call.task = Some(Box::new(Acknowledged::when(Awaited::Orphans, answer).closing_if(suicide)));
    Ok(Flow::Done)
}

/// An address as a client writes it; one that is none is nobody's.
fn address(text: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Which connections CLIENT KILL means: those to which everything here applies.
#[derive(Debug, PartialEq, Eq)]
struct Filter {
    id: Option<u64>,
    /// `Some(None)`: an address that nobody has.
    peer: Option<Option<SocketAddr>>,
    local: Option<Option<SocketAddr>>,
    age_seconds_min: Option<i64>,
    /// Another type than that of all connections: replicas, subscribers.
    is_other_type: bool,
    skip_me: bool,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            id: None,
            peer: None,
            local: None,
            age_seconds_min: None,
            is_other_type: false,
            skip_me: true,
        }
    }
}

impl Filter {
    /// Reads pairs of option and value, from the third word on.
    fn parse(args: Args<'_>) -> Result<Filter> {
        let mut filter = Filter::default();
        let mut index = 2;
        while index < args.len() {
            let option = args.get(index);
            if index + 1 == args.len() {
                return Err(errors::SYNTAX);
            }
            filter.add(option, args.get(index + 1))?;
            index += 2;
        }
        Ok(filter)
    }

    fn add(&mut self, option: &[u8], value: &[u8]) -> Result<()> {
        if parse::is(option, "id") {
            let id = parse::integer(value).ok().filter(|&id| id > 0);
            self.id = Some(id.ok_or(errors::CLIENT_ID_POSITIVE)? as u64);
        } else if parse::is(option, "addr") {
            self.peer = Some(address(value));
        } else if parse::is(option, "laddr") {
            self.local = Some(address(value));
        } else if parse::is(option, "maxage") {
            let age = parse::integer(value).map_err(|_| errors::MAXAGE_NOT_AN_INTEGER)?;
            if age <= 0 {
                return Err(errors::MAXAGE_POSITIVE);
            }
            self.age_seconds_min = Some(age);
        } else if parse::is(option, "type") {
            let others = ["master", "replica", "slave", "pubsub"];
            self.is_other_type = others.iter().any(|other| parse::is(value, other));
            if !self.is_other_type && !parse::is(value, "normal") {
                return Err(errors::unknown_client_type(value));
            }
        } else if parse::is(option, "user") {
            if value != USER {
                return Err(errors::no_such_user(value));
            }
        } else if parse::is(option, "skipme") {
            self.skip_me = parse::is(value, "yes");
            if !self.skip_me && !parse::is(value, "no") {
                return Err(errors::SYNTAX);
            }
        } else {
            return Err(errors::SYNTAX);
        }
        Ok(())
    }

    fn matches(&self, client: &ClientInfo, me: u64, now_ms: i64) -> bool {
        let age_seconds = (now_ms - client.created_ms) / 1000;
        let is_at = |wanted: Option<Option<SocketAddr>>, address: Option<SocketAddr>| {
            wanted.is_none_or(|wanted| wanted.is_some() && wanted == address)
        };
        self.id.is_none_or(|id| id == client.id)
            && is_at(self.peer, client.peer)
            && is_at(self.local, client.local)
            && self.age_seconds_min.is_none_or(|min| age_seconds >= min)
            && !self.is_other_type
            && !(self.skip_me && client.id == me)
    }
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
    use crate::sync::Mutex;
    use crate::sync::atomic::AtomicI64;

    fn filter(words: &[&str]) -> Result<Filter> {
        let mut all: Vec<&[u8]> = vec![b"CLIENT", b"KILL"];
        all.extend(words.iter().map(|word| word.as_bytes()));
        Filter::parse(Args::from_slices(&all))
    }

    fn info(id: u64, peer: &str, created_ms: i64) -> ClientInfo {
        ClientInfo {
            id,
            worker: 0,
            peer: peer.parse().ok(),
            local: "127.0.0.1:6379".parse().ok(),
            created_ms,
            active_ms: AtomicI64::new(0),
            name: Mutex::new(Vec::new()),
        }
    }

    #[test]
    fn filters_of_client_kill() {
        let clients = [
            info(1, "127.0.0.1:1000", 9_000),
            info(2, "127.0.0.1:2000", 5_000),
            info(3, "[::1]:3000", 0),
        ];
        for (words, expected) in [
            (&["SKIPME", "no"][..], &[1, 2, 3][..]),
            (&["skipme", "YES"], &[2, 3]),
            (&["TYPE", "normal"], &[2, 3]),
            (&["TYPE", "pubsub", "SKIPME", "no"], &[]),
            (&["ID", "3"], &[3]),
            (&["ID", "3", "ID", "2"], &[2]),
            (&["ADDR", "[::1]:3000"], &[3]),
            (&["ADDR", "localhost"], &[]),
            (&["LADDR", "127.0.0.1:6379", "ADDR", "127.0.0.1:2000"], &[2]),
            (&["MAXAGE", "5", "USER", "default"], &[2, 3]),
            (&["MAXAGE", "6"], &[3]),
        ] {
            let filter = filter(words).expect("it is well formed");
            let matches = |client: &&ClientInfo| filter.matches(client, 1, 10_000);
            let found: Vec<u64> = clients.iter().filter(matches).map(|client| client.id).collect();
            assert_eq!(found, expected, "{words:?}");
        }
    }

    #[test]
    fn filters_that_are_refused() {
        for (words, expected) in [
            (&["ID", "0"][..], "ERR client-id should be greater than 0"),
            (&["ID", "x"], "ERR client-id should be greater than 0"),
            (&["TYPE", "foo"], "ERR Unknown client type 'foo'"),
            (&["USER", "nobody", "ID", "x"], "ERR No such user 'nobody'"),
            (&["SKIPME", "maybe"], "ERR syntax error"),
            (&["ID", "1", "ADDR"], "ERR syntax error"),
            (&["a", "b"], "ERR syntax error"),
            (&["MAXAGE", "x"], "ERR maxage is not an integer or out of range"),
            (&["MAXAGE", "0"], "ERR maxage should be greater than 0"),
        ] {
            let error = filter(words).expect_err("it is refused");
            assert_eq!(error.bytes(), expected.as_bytes(), "{words:?}");
        }
    }

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
