//! Feeds the same random commands to the server under test and to redis-server and compares
//! every reply, and the digest of all data now and then.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use crate::client::{Client, show};
use crate::dataset;
use crate::generate::{Action, Command, Generator, Profile, SOON_MS};
use crate::judge::Judge;
use crate::reply::Reply;
use crate::server::Server;
use crate::settings;

/// Connections of a run; transactions and watches of one meet writes of the others.
const CONNECTIONS: u64 = 3;
/// Commands between two comparisons of the digest.
const DIGEST_EVERY: u64 = 500;
/// Commands shown before the one that differed, unless `EVENKEEL_HISTORY` says otherwise.
const HISTORY: usize = 30;
/// Milliseconds to wait beyond a deadline, so that both servers have passed it.
const BEYOND_MS: u64 = 4;
/// Calls of SCAN after which an iteration of a few keys is called endless.
const SCAN_CALLS_MAX: usize = 10_000;

/// The same client on both servers.
struct Connection {
    subject: Client,
    oracle: Client,
    /// What MULTI has queued; nothing outside of a transaction.
    queued: Option<Vec<Command>>,
    /// The database in use.
    database: String,
}

/// A run: both servers, the connections and what they did last.
struct Run<'a> {
    subject: &'a Server,
    oracle: &'a Server,
    protocol: u8,
    connections: Vec<Connection>,
    /// A connection that never has a transaction.
    control: Connection,
    history: VecDeque<String>,
    /// Commands that the history keeps.
    history_max: usize,
}

/// Runs `commands` random actions; an error shows the first difference and what led to it.
pub fn run(
    subject: &Server,
    oracle: &Server,
    protocol: u8,
    seed: u64,
    commands: u64,
) -> Result<(), String> {
    let mut generator = Generator::new(seed, Profile::Compared);
    let mut run = Run {
        subject,
        oracle,
        protocol,
        connections: (0..CONNECTIONS).map(|_| open(subject, oracle, protocol)).collect(),
        control: open(subject, oracle, 2),
        history: VecDeque::new(),
        history_max: settings::number("EVENKEEL_HISTORY", HISTORY),
    };
    for number in 0..commands {
        let index = generator.random.below(CONNECTIONS) as usize;
        let action = generator.action();
        run.act(index, action).and_then(|()| run.compare_data(number, commands)).map_err(
            |problem| {
                let history = run.history.make_contiguous().join("\n");
                format!(
                    "RESP{protocol}, command {number} of EVENKEEL_SEED={seed}\n{history}\n{problem}"
                )
            },
        )?;
    }
    Ok(())
}

fn open(subject: &Server, oracle: &Server, protocol: u8) -> Connection {
    let mut connection = Connection {
        subject: subject.connect(),
        oracle: oracle.connect(),
        queued: None,
        database: "0".to_owned(),
    };
    if protocol != 2 {
        let hello = format!("HELLO {protocol}");
        let (ours, theirs) = (connection.subject.line(&hello), connection.oracle.line(&hello));
        assert!(Judge::Hello.accepts(&ours, &theirs), "{hello}: {ours} against {theirs}");
    }
    connection
}

impl Run<'_> {
    fn act(&mut self, index: usize, action: Action) -> Result<(), String> {
        let in_transaction = self.connections[index].queued.is_some();
        match action {
            // It may count keys that a SET earlier in the transaction gave a past deadline.
            Action::Command(command) if in_transaction && command.is("DBSIZE") => Ok(()),
            Action::Command(command) => self.command(index, command),
            Action::Scan(_) | Action::ExpireSoon(..) if in_transaction => Ok(()),
            Action::Scan(options) => {
                self.remember(index, &[b"(whole SCAN)".to_vec()], &Reply::Missing(b'$'));
                self.connections[index].scan(&options)
            }
            Action::ExpireSoon(key, command) => {
                self.command(index, command)?;
                thread::sleep(Duration::from_millis(SOON_MS + BEYOND_MS));
                let database = self.connections[index].database.clone();
                self.drop_expired(&database, &key)
            }
        }
    }

    /// Reads a key so that both servers drop it when its deadline has passed, and agree on DBSIZE.
    fn drop_expired(&mut self, database: &str, key: &[u8]) -> Result<(), String> {
        self.control.both(&[b"SELECT", database.as_bytes()], &Judge::Exact)?;
        self.control.both(&[b"TYPE", key], &Judge::Exact).map(|_| ())
    }

    fn command(&mut self, index: usize, command: Command) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let name = command.arguments[0].to_ascii_uppercase();
        let judge = match (&connection.queued, name.as_slice()) {
            (Some(queued), b"EXEC") => {
                Judge::Each(queued.iter().map(|command| command.judge.clone()).collect())
            }
            _ => command.judge.clone(),
        };
        let reply = connection.both(&command.arguments, &judge)?;
        let arguments = command.arguments.clone();
        let expired = connection.follow(command, &name, &reply);
        if name == b"QUIT" && reply.is_status("OK") {
            self.connections[index] = open(self.subject, self.oracle, self.protocol);
        }
        self.remember(index, &arguments, &reply);
        expired.iter().try_for_each(|(database, key)| self.drop_expired(database, key))
    }

    fn remember(&mut self, index: usize, arguments: &[Vec<u8>], reply: &Reply) {
        if self.history.len() == self.history_max {
            self.history.pop_front();
        }
        let mut reply = format!("{reply:#}");
        if reply.len() > 100 {
            reply = reply.chars().take(100).collect::<String>() + "...";
        }
        self.history.push_back(format!("  {index}> {}   {reply}", show(arguments)));
    }

    fn compare_data(&mut self, number: u64, commands: u64) -> Result<(), String> {
        if number % DIGEST_EVERY != DIGEST_EVERY - 1 && number + 1 != commands {
            return Ok(());
        }
        let control = &mut self.control;
        match dataset::difference(&mut control.subject, &mut control.oracle) {
            None => Ok(()),
            Some(text) => Err(text),
        }
    }
}

impl Connection {
    /// Sends one command to both and compares; the oracle's reply.
    fn both<A: AsRef<[u8]>>(&mut self, arguments: &[A], judge: &Judge) -> Result<Reply, String> {
        let theirs = self
            .oracle
            .try_call(arguments)
            .map_err(|error| format!("> {}\n  the oracle: {error}", show(arguments)))?;
        let ours = self.subject.try_call(arguments).map_err(|error| {
            format!("> {}\n  the subject: {error}\n  oracle  {theirs:#}", show(arguments))
        })?;
        if judge.accepts(&ours, &theirs) {
            return Ok(theirs);
        }
        Err(format!("> {}\n  subject {ours:#}\n  oracle  {theirs:#}", show(arguments)))
    }

    /// Keeps track of the transaction and the database. Answers the keys, with their database,
    /// that may have been set with a deadline in the past.
    fn follow(&mut self, command: Command, name: &[u8], reply: &Reply) -> Vec<(String, Vec<u8>)> {
        if let (Some(queued), true) = (&mut self.queued, reply.is_status("QUEUED")) {
            queued.push(command);
            return Vec::new();
        }
        match name {
            b"MULTI" if reply.is_status("OK") => self.queued = Some(Vec::new()),
            b"DISCARD" if reply.is_status("OK") => self.queued = None,
            b"EXEC" if !reply.is_error() || reply.to_string().starts_with("-EXECABORT") => {
                let queued = self.queued.take().unwrap_or_default();
                let replies = reply.elements().unwrap_or_default();
                let ran = queued.iter().zip(replies);
                return ran.filter_map(|(command, reply)| self.ran(command, reply)).collect();
            }
            _ => return self.ran(&command, reply).into_iter().collect(),
        }
        Vec::new()
    }

    /// As [`Connection::follow`], for one command that was not queued.
    fn ran(&mut self, command: &Command, reply: &Reply) -> Option<(String, Vec<u8>)> {
        if command.is("SELECT") && reply.is_status("OK") {
            self.database = String::from_utf8_lossy(&command.arguments[1]).into_owned();
        }
        let absolute = |word: &Vec<u8>| word.ends_with(b"XAT");
        let may_be_past = command.is("SET") && command.arguments.iter().skip(3).any(absolute);
        may_be_past.then(|| (self.database.clone(), command.arguments[1].clone()))
    }

    /// Iterates both to the end: the same keys, and from the subject none of them twice.
    fn scan(&mut self, options: &[Vec<u8>]) -> Result<(), String> {
        let ours = scan_all(&mut self.subject, options)?;
        let mut theirs = scan_all(&mut self.oracle, options)?;
        theirs.dedup();
        if ours == theirs {
            return Ok(());
        }
        let show_all = |keys: &[Vec<u8>]| show(keys);
        Err(format!(
            "> SCAN to the end, {}\n  subject {}\n  oracle  {}",
            show(options),
            show_all(&ours),
            show_all(&theirs)
        ))
    }
}

/// Every key that an iteration answers, sorted, repeated ones too.
fn scan_all(client: &mut Client, options: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    for _ in 0..SCAN_CALLS_MAX {
        let mut arguments = vec![b"SCAN".to_vec(), cursor];
        arguments.extend_from_slice(options);
        let reply = client.call(&arguments);
        let Some([next, page]) = reply.elements() else {
            return Err(format!("> {}\n  {reply:#}", show(&arguments)));
        };
        let page = page.elements().unwrap_or_default();
        keys.extend(page.iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)));
        cursor = next.bytes().unwrap_or_default().to_vec();
        if cursor == b"0" {
            keys.sort();
            return Ok(keys);
        }
    }
    Err(format!("SCAN did not end after {SCAN_CALLS_MAX} calls"))
}
