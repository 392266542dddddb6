//! The clients that measure: small commands at a fixed rate, and fresh connections, in a process
//! of their own, so that nothing the heavy client does to its memory can delay them.
//!
//! Each connection has a thread and a schedule of its own, so a connection whose server thread is
//! busy does not keep the others from asking. A time of the schedule that passes while a reply is
//! awaited counts, too, with the wait that a request sent then would have had.
//!
//! [`Probe`] starts the process and gets the waits from it, as lines of text, when it ends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::setpriority_process;

use crate::client::Client;
use crate::process::now_ns;

/// Connections that ask all the time.
pub(crate) const CONNECTIONS: usize = 8;
/// Each asks once in this time: together 2,000 requests per second.
const PERIOD_NS: u64 = 4_000_000;
/// A fresh connection is opened once in this time.
const FRESH_PERIOD_NS: u64 = 50_000_000;
/// Room for waits, so that a bench of a minute allocates nothing while it measures.
const WAITS_PER_CONNECTION: usize = 1 << 14;
/// What the process says when all its connections are open.
const READY: &str = "ready";

/// What the process is told.
#[derive(Args)]
pub(crate) struct Options {
    /// The port of the server.
    #[arg(long)]
    port: u16,
    /// Its priority.
    #[arg(long, allow_hyphen_values = true)]
    nice: i32,
}

/// One request and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// When it was sent, by [`now_ns`].
    pub sent_ns: u64,
    /// How long the reply took.
    pub took_ns: u64,
    /// On what.
    pub kind: Kind,
}

/// On what a request was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An open connection.
    Open,
    /// A connection that was opened for it.
    Fresh,
}

/// The running process. It ends when this is dropped.
pub(super) struct Probe {
    child: Child,
    /// Closing it tells the process to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Probe {
    /// Starts the process and waits until it measures.
    pub(super) fn start(port: u16, nice: i32) -> Result<Probe, String> {
        let own = std::env::current_exe().map_err(|error| cannot("start", &error))?;
        let mut child = Command::new(own)
            .args(["probe", "--port", &port.to_string(), "--nice", &nice.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| cannot("start", &error))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| "the probe has no output".to_owned())?;
        let mut probe = Probe { child, input, output: BufReader::new(output) };
        let mut line = String::new();
        probe.output.read_line(&mut line).map_err(|error| cannot("start", &error))?;
        match line.trim_end() == READY {
            true => Ok(probe),
            false => Err("the clients that measure could not begin".to_owned()),
        }
    }

    /// Ends the process and returns what it measured.
    pub(super) fn finish(mut self) -> Result<Vec<Wait>, String> {
        drop(self.input.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).map_err(|error| cannot("finish", &error))?;
        let status = self.child.wait().map_err(|error| cannot("finish", &error))?;
        if !status.success() {
            return Err("a small command of another client failed".to_owned());
        }
        let waits: Option<Vec<Wait>> = text.lines().map(parse).collect();
        waits.ok_or_else(|| "the probe wrote what it should not".to_owned())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.input.take());
        // Both fail only when the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The process: measures until its standard input ends, then writes all waits.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    // Threads have the priority of the thread that starts them.
    setpriority_process(None, options.nice)
        .map_err(|error| format!("--nice {}: {error}: only root may go below 0", options.nice))?;
    let stop = AtomicBool::new(false);
    let waits = thread::scope(|scope| {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let mut client = Client::connect(options.port)?;
            client.call(&["SET", &key(number), "value"])?;
            clients.push(client);
        }
        let (stop, start_ns) = (&stop, now_ns());
        let mut threads = Vec::new();
        for (number, mut client) in clients.into_iter().enumerate() {
            let first_ns = start_ns + PERIOD_NS / CONNECTIONS as u64 * number as u64;
            let name = key(number);
            let words = if number % 2 == 0 { vec!["SET", "", "value"] } else { vec!["GET", ""] };
            threads.push(scope.spawn(move || {
                let words: Vec<&str> = words
                    .into_iter()
                    .map(|word| if word.is_empty() { &name } else { word })
                    .collect();
                repeat(stop, first_ns, PERIOD_NS, Kind::Open, || client.call(&words).map(drop))
            }));
        }
        threads.push(scope.spawn(move || {
            repeat(stop, start_ns, FRESH_PERIOD_NS, Kind::Fresh, || {
                Client::connect(options.port)?.call(&["PING"]).map(drop)
            })
        }));
        write_out(&format!("{READY}\n"))?;
        // The end of the input, and an error, both mean that nobody waits for more.
        io::stdin().read_to_end(&mut Vec::new()).ok();
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(waits) => waits,
            Err(_) => Err("a thread of the probe failed".to_owned()),
        });
        joined.collect::<Result<Vec<Vec<Wait>>, String>>()
    })?;
    let lines: String = waits.concat().iter().map(show).collect();
    write_out(&lines)
}

fn key(number: usize) -> String {
    format!("probe:{number}")
}

/// Does something once per period and measures it, until it is stopped.
fn repeat(
    stop: &AtomicBool,
    first_ns: u64,
    period_ns: u64,
    kind: Kind,
    mut request: impl FnMut() -> Result<(), String>,
) -> Result<Vec<Wait>, String> {
    let (mut waits, mut due_ns) = (Vec::with_capacity(WAITS_PER_CONNECTION), first_ns);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
        let sent_ns = now_ns();
        request()?;
        let end_ns = now_ns();
        waits.push(Wait { sent_ns, took_ns: end_ns - sent_ns, kind });
        due_ns += period_ns;
        // Times of the schedule before the request was sent were lost by this process; those
        // after it by the server.
        due_ns += sent_ns.saturating_sub(due_ns).div_ceil(period_ns) * period_ns;
        while due_ns < end_ns {
            waits.push(Wait { sent_ns: due_ns, took_ns: end_ns - due_ns, kind });
            due_ns += period_ns;
        }
    }
    Ok(waits)
}

fn show(wait: &Wait) -> String {
    let kind = if wait.kind == Kind::Open { "open" } else { "fresh" };
    format!("{} {} {kind}\n", wait.sent_ns, wait.took_ns)
}

fn parse(line: &str) -> Option<Wait> {
    let mut words = line.split(' ');
    let sent_ns = words.next()?.parse().ok()?;
    let took_ns = words.next()?.parse().ok()?;
    let kind = match words.next()? {
        "open" => Kind::Open,
        "fresh" => Kind::Fresh,
        _ => return None,
    };
    Some(Wait { sent_ns, took_ns, kind })
}

fn write_out(text: &str) -> Result<(), String> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.map_err(|error| cannot("write", &error))
}

fn cannot(what: &str, error: &io::Error) -> String {
    format!("the probe cannot {what}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_travel_as_text() {
        for kind in [Kind::Open, Kind::Fresh] {
            let wait = Wait { sent_ns: 12_345_678_901, took_ns: 42_000, kind };
            assert_eq!(parse(show(&wait).trim_end()), Some(wait));
        }
        assert_eq!(parse("1 2 other"), None);
        assert_eq!(parse("1"), None);
    }

    #[test]
    fn a_long_wait_counts_for_every_request_that_it_kept_back() {
        let (stop, mut calls) = (AtomicBool::new(false), 0);
        let period_ns = 2_000_000;
        let waits = repeat(&stop, now_ns(), period_ns, Kind::Open, || {
            calls += 1;
            thread::sleep(Duration::from_nanos(period_ns * 5));
            stop.store(calls == 2, Ordering::Relaxed);
            Ok(())
        });
        let waits = waits.expect("no request fails");
        let long = waits.iter().filter(|wait| wait.took_ns >= period_ns * 5).count();
        assert_eq!(long, 2, "{waits:?}");
        assert!(waits.len() >= 8, "{waits:?}");
    }
}
