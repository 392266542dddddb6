//! The servers that are measured: started here, in folders of their own, or found at a port.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;

/// How long a server may take to answer its first PING.
const START_MAX: Duration = Duration::from_secs(15);
/// Pause between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(20);

/// The options of every bench that starts a server.
#[derive(clap::Args, Default)]
pub(crate) struct Subject {
    /// The binary to measure [default: the release build; the variable EVENKEEL_BIN].
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Threads that execute commands in the server [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
}

/// A running server. One that was started here is ended when this is dropped.
pub(crate) struct Server {
    /// What tables call it.
    pub name: String,
    /// Its port on this machine.
    pub port: u16,
    /// Its process.
    pub process: u32,
    /// What to clean up, if it was started here.
    own: Option<Own>,
}

struct Own {
    child: Child,
    directory: PathBuf,
}

impl Server {
    /// Starts an Evenkeel.
    pub(crate) fn evenkeel(subject: &Subject) -> Result<Server, String> {
        let binary = subject
            .binary
            .clone()
            .or_else(|| std::env::var_os("EVENKEEL_BIN").map(PathBuf::from))
            .unwrap_or_else(default_binary);
        if !binary.is_file() {
            return Err(format!(
                "{} does not exist: `cargo xtask bench` builds it; or name another with --binary",
                binary.display()
            ));
        }
        let mut command = Command::new(&binary);
        command.arg("server");
        if let Some(workers) = subject.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        Server::start("evenkeel", command)
    }

    /// Starts a redis-server; `name` tells two of them apart.
    pub(crate) fn redis(name: &str) -> Result<Server, String> {
        require("redis-server", "redis-server")?;
        let mut command = Command::new("redis-server");
        command.args(["--appendonly", "no"]);
        Server::start(name, command)
    }

    /// The server at a port. Benches delete all data, so its owner must have allowed that, or it
    /// must be empty.
    pub(crate) fn running(port: u16, flush: Flush) -> Result<Server, String> {
        let mut client = Client::connect(port)?;
        let keyspace = client.call(&["INFO", "keyspace"])?.text;
        let databases: Vec<&str> = keyspace.lines().filter(|line| line.starts_with("db")).collect();
        if !databases.is_empty() && flush == Flush::Refused {
            return Err(format!(
                "the server at port {port} is not empty ({}), and this bench deletes all data of \
                 all databases: choose another server, or allow it with --flush",
                databases.join("; ")
            ));
        }
        let process = process_of(&mut client)?;
        Ok(Server { name: format!("port {port}"), port, process, own: None })
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Result<Client, String> {
        Client::connect(self.port)
    }

    fn start(name: &str, mut command: Command) -> Result<Server, String> {
        let (port, directory) = (free_port()?, fresh_directory()?);
        let log = directory.join("log");
        let file = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, errors) = file.map_err(|error| format!("{}: {error}", log.display()))?;
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let process = child.id();
        let own = Some(Own { child, directory });
        let mut server = Server { name: name.to_owned(), port, process, own };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < START_MAX && self.is_running() {
            if self.connect().and_then(|mut client| client.call(&["PING"])).is_ok() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        let log = self.own.as_ref().map(|own| own.directory.join("log"));
        let log = log.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Err(format!("{} does not serve at port {}; it said:\n{log}", self.name, self.port))
    }

    fn is_running(&mut self) -> bool {
        self.own.as_mut().is_none_or(|own| matches!(own.child.try_wait(), Ok(None)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            // Both fail only when the process has ended already.
            own.child.kill().ok();
            own.child.wait().ok();
            fs::remove_dir_all(&own.directory).ok();
        }
    }
}

/// Whether a bench may delete the data of a server that it did not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// Its owner said so.
    Allowed,
    /// Nobody said so.
    Refused,
}

/// Looks whether a program is there; the error says how to get it.
pub(crate) fn require(program: &str, package: &str) -> Result<(), String> {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.map(drop).map_err(|error| {
        format!(
            "{program}: {error}: `cargo xtask test setup` installs it, or do it yourself: it is in \
             Debian's package {package}"
        )
    })
}

fn process_of(client: &mut Client) -> Result<u32, String> {
    let info = client.call(&["INFO", "server"])?;
    let process = info.field("process_id").and_then(|text| text.parse().ok());
    process.ok_or_else(|| "the server's INFO tells no process_id: it cannot be measured".to_owned())
}

/// The release build of this workspace: beside the folder of this program.
fn default_binary() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    target.join("release/evenkeel")
}

fn free_port() -> Result<u16, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("loopback has no free port: {error}"))
}

fn fresh_directory() -> Result<PathBuf, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("evenkeel-bench-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_or_binary_says_what_to_do() {
        let text = require("no-such-program", "some-package").expect_err("there is none");
        assert!(text.contains("cargo xtask test setup") && text.contains("some-package"), "{text}");
        let subject = Subject { binary: Some("no/such/binary".into()), workers: None };
        let text = Server::evenkeel(&subject).err().unwrap_or_default();
        assert!(text.contains("no/such/binary does not exist"), "{text}");
    }

    #[test]
    fn nobody_at_a_port_is_an_error() {
        let text = Server::running(1, Flush::Refused).err().unwrap_or_default();
        assert!(text.contains("does a server listen there?"), "{text}");
    }
}
