//! The effects of many concurrent random commands, replayed by redis-server, give the same data.
//!
//! Two readings: as an append-only file, where no deadline passes while it loads, with deadlines
//! of a few milliseconds among the commands; and piped in like a client's commands, with lasting
//! deadlines only, since piping late would let a deadline pass that was prolonged in time.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tests::client::{Client, encode};
use tests::dataset;
use tests::generate::{Action, DATABASES, Generator, Profile};
use tests::server::Server;
use tests::settings;

/// Commands in the short form.
const COMMANDS: u64 = 50_000;
/// Clients that write at the same time.
const CLIENTS: u64 = 4;
/// Commands sent before their replies are read.
const PIPELINE: u64 = 32;
/// Longer than any deadline that is meant to pass.
const EXPIRY_WAIT: Duration = Duration::from_millis(300);
/// How long the stream may not have grown until it counts as complete.
const QUIET: Duration = Duration::from_millis(500);
/// How long the stream may take to become complete.
const COMPLETE_MAX: Duration = Duration::from_secs(60);

#[test]
fn loaded_as_an_append_only_file() {
    let recorded = record(Profile::Effects);
    let oracle = Server::oracle_that_loads(&recorded.file());
    recorded.compare(&oracle);
}

#[test]
fn piped_in_as_commands() {
    let recorded = record(Profile::LastingEffects);
    let oracle = Server::oracle(&[]);
    pipe(&recorded.file(), &oracle);
    recorded.compare(&oracle);
}

#[test]
fn transactions_with_long_words() {
    let server = Server::subject(&["--effect-stream", "effects"]);
    let mut client = server.connect();
    let long = "x".repeat(100_000);
    let many: String = (0..1_000).map(|at| format!(" member-number-{at}")).collect();
    for line in [
        "MULTI",
        &format!("SET a {long} PX 100000000"),
        &format!("APPEND a {long}"),
        &format!("SETRANGE a 5 {long}"),
        &format!("MSET b {long} c short d {long}"),
        "EXEC",
        "MULTI",
        "SET e 1 EX 100000",
        "INCR e",
        "SET e 2 KEEPTTL",
        "EXEC",
        "MULTI",
        "SET f 1",
        "SELECT 1",
        &format!("SET f {long} GET"),
        "INCR g",
        "EXEC",
        "MULTI",
        &format!("SADD s{many}"),
        &format!("RPUSH l{many}"),
        "SUNIONSTORE t s",
        "EXEC",
        "MULTI",
        &format!("SET only {long}"),
        "EXEC",
        "MULTI",
        &format!("APPEND l {long}"),
        &format!("SET i {long} XX"),
        "EXEC",
        "SET last 1",
    ] {
        client.line(line);
    }
    let recorded = Recorded { server, seed: 0 };
    wait_until_complete(&recorded.file());
    recorded.compare(&Server::oracle_that_loads(&recorded.file()));
}

/// A server after the random commands, and the seed they came from.
struct Recorded {
    server: Server,
    seed: u64,
}

impl Recorded {
    fn file(&self) -> std::path::PathBuf {
        self.server.directory().join("effects")
    }

    fn compare(&self, oracle: &Server) {
        let (mut ours, mut theirs) = (self.server.connect(), oracle.connect());
        if let Some(difference) = dataset::difference(&mut ours, &mut theirs) {
            panic!("EVENKEEL_SEED={}\n{difference}", self.seed);
        }
        let keys = theirs.line("DBSIZE").integer().unwrap_or_default();
        eprintln!("the same data, {keys} keys in database 0");
    }
}

fn record(profile: Profile) -> Recorded {
    let commands = settings::number("EVENKEEL_EFFECTS", COMMANDS);
    let seed = settings::seed();
    eprintln!("{profile:?}: {commands} commands, EVENKEEL_SEED={seed}");
    let server = Server::subject(&["--effect-stream", "effects"]);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.connect();
            let generator = Generator::new(seed.wrapping_add(number), profile);
            scope.spawn(move || write(&mut client, generator, commands / CLIENTS));
        }
    });
    thread::sleep(EXPIRY_WAIT);
    dataset::drop_expired(&mut server.connect());
    let recorded = Recorded { server, seed };
    wait_until_complete(&recorded.file());
    recorded
}

/// Sends commands in pipelines and reads every reply.
fn write(client: &mut Client, mut generator: Generator, commands: u64) {
    let mut left = commands;
    while left > 0 {
        let batch = left.min(PIPELINE);
        let mut bytes = Vec::new();
        for _ in 0..batch {
            let arguments = match generator.action() {
                Action::Command(command) | Action::ExpireSoon(_, command) => command.arguments,
                Action::Scan(_) => vec![b"SCAN".to_vec(), b"0".to_vec()],
            };
            bytes.extend(encode(&arguments));
        }
        client.send(&bytes).expect("the server reads");
        for _ in 0..batch {
            client.read().expect("each command has a reply");
        }
        left -= batch;
    }
    // A transaction that is still open holds nothing back, but ends like a client that leaves.
    client.line("DISCARD");
}

fn wait_until_complete(file: &Path) {
    let size = || fs::metadata(file).map_or(0, |metadata| metadata.len());
    let start = Instant::now();
    let (mut last, mut since) = (size(), Instant::now());
    while since.elapsed() < QUIET {
        assert!(start.elapsed() < COMPLETE_MAX, "the effect stream keeps growing");
        thread::sleep(Duration::from_millis(20));
        if size() != last {
            (last, since) = (size(), Instant::now());
        }
    }
    assert!(last > 0, "{} is empty", file.display());
    eprintln!("{last} bytes of effects");
}

fn pipe(file: &Path, oracle: &Server) {
    settings::require_program("redis-cli");
    let output = Command::new("redis-cli")
        .args(["-p", &oracle.port(), "--pipe"])
        .stdin(Stdio::from(File::open(file).expect("the effect stream is a file")))
        .output()
        .expect("redis-cli runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("errors: 0"), "redis-cli --pipe: {text}");
    assert!(oracle.connect().line(&format!("SELECT {}", DATABASES - 1)).is_status("OK"));
}
