//! Starts a server on a free port with a folder and a memory limit of its own, and ends it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::settings;

/// Address space a server may use, in KiB: a leak fails the test instead of the machine.
const VIRTUAL_MEMORY_KIB: u64 = 16 * 1024 * 1024;
/// How long a server may take to answer its first PING.
const START_MAX: Duration = Duration::from_secs(15);
/// How long one PING may take before it is tried again on a new connection.
const PING_MAX: Duration = Duration::from_secs(2);
/// Starts tried on another port when someone took the one that was free a moment ago.
const START_TRIES: usize = 3;

/// A running server. Dropping it kills it, removes its folder, and fails the test when the
/// server had panicked.
pub struct Server {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Server {
    /// The server under test, with more arguments that every server understands.
    pub fn subject(arguments: &[&str]) -> Server {
        Server::start(&settings::subject_command(), arguments)
    }

    /// The server under test with Evenkeel's own options, which are left out when another server
    /// is the subject.
    pub fn subject_with_own(options: &[&str]) -> Server {
        Server::subject(if settings::foreign_subject() { &[] } else { options })
    }

    /// A redis-server to compare with.
    pub fn oracle(arguments: &[&str]) -> Server {
        Server::start(&settings::oracle_command(), arguments)
    }

    /// A redis-server that loads `effects` as its append-only file, which is how a stream of
    /// effects is meant to be read: while it loads, no deadline passes.
    pub fn oracle_that_loads(effects: &Path) -> Server {
        let directory = fresh_directory();
        fs::copy(effects, directory.join("appendonly.aof")).expect("the effect stream is a file");
        let arguments = ["--appendonly", "yes"];
        Server::start_in(&settings::oracle_command(), &arguments, directory)
            .unwrap_or_else(|log| panic!("redis-server did not load the effects:\n{log}"))
    }

    /// Starts `command` with the arguments that all servers share and `arguments`.
    ///
    /// Panics with the server's log when it does not answer.
    pub fn start(command: &[String], arguments: &[&str]) -> Server {
        let mut last = String::new();
        for _ in 0..START_TRIES {
            match Server::start_in(command, arguments, fresh_directory()) {
                Ok(server) => return server,
                Err(log) => last = log,
            }
        }
        panic!("{} ended at once:\n{last}", command.join(" "));
    }

    /// The server when it is ready, or its log when it ended. Panics when it stays silent.
    fn start_in(
        command: &[String],
        arguments: &[&str],
        directory: PathBuf,
    ) -> Result<Server, String> {
        let port = free_port();
        let log = File::create(directory.join("log")).expect("the folder is ours and new");
        let errors = log.try_clone().expect("a file handle can be copied");
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -v {VIRTUAL_MEMORY_KIB} && exec \"$0\" \"$@\""))
            .args(command)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(&directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("sh exists");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Server { child, address, directory };
        if server.wait_until_ready() { Ok(server) } else { Err(server.log()) }
    }

    /// True when it answers, false when it ended.
    fn wait_until_ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if !self.is_running() {
                return false;
            }
            if let Ok(mut client) = Client::connect(self.address)
                && client.stream().set_read_timeout(Some(PING_MAX)).is_ok()
                && client.try_call(&["PING"]).is_ok_and(|reply| reply.is_status("PONG"))
            {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the server at {} does not answer PING after {START_MAX:?}", self.address);
    }

    /// A new connection. Panics when the server refuses.
    pub fn connect(&self) -> Client {
        match Client::connect(self.address) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect: {error}\n{}", self.log()),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port, as text for command lines.
    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Its folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it has written to standard output and standard error so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("a process that runs has a status file");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("the status file tells the resident memory") * 1024
    }

    /// True while the process lives.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM and waits at most `limit`: the exit status and the time it took, or nothing
    /// when it still runs.
    pub fn terminate(&mut self, limit: Duration) -> Option<(ExitStatus, Duration)> {
        let start = Instant::now();
        let sent = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGTERM could not be sent");
        while start.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some((status, start.elapsed()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
        let log = self.log();
        fs::remove_dir_all(&self.directory).ok();
        if log.contains("panicked at") && !thread::panicking() {
            panic!("the server panicked:\n{log}");
        } else if thread::panicking() && !log.is_empty() {
            eprintln!("--- log of the server at {} ---\n{}", self.address, tail(&log));
        }
    }
}

/// The last lines of a log, enough to see why.
fn tail(log: &str) -> String {
    const LINES_MAX: usize = 40;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}

fn fresh_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("evenkeel-test-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).expect("the folder for temporary files is writable");
    directory
}
