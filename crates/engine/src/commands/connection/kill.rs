//! CLIENT KILL: goes through the clients in steps, and answers when those it means are gone.
//!
//! Clients that connect meanwhile are not looked at.

use std::net::SocketAddr;

use resp::Args;

use super::USER;
use crate::commands::subcommand::{Acknowledged, Answer};
use crate::control::Awaited;
use crate::errors::{self, Result};
use crate::execution::command::{Call, Flow, Outcome};
use crate::execution::engine::Engine;
use crate::execution::session::registry::ClientInfo;
use crate::execution::task::{Step, Task, TaskContext};
use crate::parse;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Clients that one step looks at.
const CLIENTS_PER_STEP: usize = 64;

pub(super) fn kill(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let by_address = args.len() == 3;
    let filter = if by_address {
        Filter { peer: Some(address(args.get(2))), skip_me: false, ..Filter::default() }
    } else {
        Filter::parse(args)?
    };
    let (next, last) = match filter.id {
        Some(id) => (id, id),
        None => (0, call.worker.engine.registry.newest()),
    };
    call.task = Some(Box::new(KillTask {
        by_address,
        filter,
        next: Some(next),
        last,
        killed: 0,
        suicide: false,
        kills_others: false,
        answering: None,
    }));
    Ok(Flow::Done)
}

struct KillTask {
    by_address: bool,
    filter: Filter,
    /// The first client that was not looked at, `None` when all were.
    next: Option<u64>,
    /// The last client to be looked at.
    last: u64,
    killed: i64,
    /// The client kills itself, which it does by itself when its reply is sent.
    suicide: bool,
    kills_others: bool,
    answering: Option<Acknowledged>,
}

impl KillTask {
    fn look_at_some(&mut self, cx: &mut TaskContext<'_>, from: u64) {
        let (me, now_ms) = (cx.session.info.id, cx.worker.now_ms);
        let engine = &cx.worker.engine;
        let (some, next) = engine.registry.some(from..=self.last, CLIENTS_PER_STEP);
        let is_victim = |client: &Arc<ClientInfo>| self.filter.matches(client, me, now_ms);
        let mut victims: Vec<_> = some.into_iter().filter(is_victim).collect();
        self.next = next;
        self.killed += victims.len() as i64;
        let count = victims.len();
        victims.retain(|victim| victim.id != me);
        self.suicide |= victims.len() < count;
        if !victims.is_empty() {
            kill_all(engine, &victims);
            self.kills_others = true;
        }
    }
}

/// Closes some clients on whatever workers they are.
fn kill_all(engine: &Engine, victims: &[Arc<ClientInfo>]) {
    victims.iter().for_each(|victim| victim.killed.store(true, Ordering::Relaxed));
    for worker in 0..engine.keyspace.workers() {
        let mut own = victims.iter().filter(|victim| victim.worker == worker).peekable();
        if own.peek().is_some() {
            engine.mailboxes.kill(worker, own.map(|victim| victim.id));
        }
    }
}

impl Task for KillTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        if let Some(from) = self.next {
            self.look_at_some(cx, from);
            return Ok(Step::Again);
        }
        if self.by_address && self.killed == 0 {
            return Err(errors::NO_SUCH_CLIENT);
        }
        let answer = if self.by_address { Answer::Ok } else { Answer::Count(self.killed) };
        if !self.kills_others {
            answer.write(cx.session);
            cx.session.closing |= self.suicide;
            return Ok(Step::Done);
        }
        let suicide = self.suicide;
        let answering = || Acknowledged::when(Awaited::Orphans, answer).closing_if(suicide);
        self.answering.get_or_insert_with(answering).step(cx)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use crate::sync::atomic::{AtomicBool, AtomicI64};

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
            killed: AtomicBool::new(false),
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
}
