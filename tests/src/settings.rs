//! The environment variables that change a run, read in one place.

use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The value of a variable, or `default` when it is not set.
///
/// Panics when it is set to something that is no number.
pub fn number<T: FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => panic!("{name}={text} is not a number"),
        },
        Err(_) => default,
    }
}

/// The seed of this run: `EVENKEEL_SEED`, or one from the clock. Whoever fails prints it.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
    number("EVENKEEL_SEED", now as u64 % 1_000_000_000)
}

/// True when another server than Evenkeel is the subject, which knows none of its own options.
pub fn foreign_subject() -> bool {
    std::env::var_os("EVENKEEL_COMMAND").is_some()
}

/// The program and first arguments that start the server under test.
///
/// Panics with a hint when there is no binary.
pub fn subject_command() -> Vec<String> {
    if let Ok(command) = std::env::var("EVENKEEL_COMMAND") {
        return command.split_whitespace().map(str::to_owned).collect();
    }
    let binary = std::env::var_os("EVENKEEL_BIN")
        .map_or_else(|| target_directory().join("quick/evenkeel"), PathBuf::from);
    assert!(
        binary.is_file(),
        "{} does not exist. `cargo xtask test` builds it and runs these tests; by hand: `cargo build \
         --profile quick -p evenkeel`, or set EVENKEEL_BIN",
        binary.display()
    );
    vec![binary.display().to_string(), "server".to_owned()]
}

/// The program of the oracle.
///
/// Panics with a hint when it is not installed.
pub fn oracle_command() -> Vec<String> {
    require_program("redis-server");
    ["redis-server", "--enable-debug-command", "yes"].map(str::to_owned).to_vec()
}

/// Panics with a hint when a program that `cargo xtask test` installs is missing.
pub fn require_program(name: &str) {
    let found = Command::new(name).arg("--version").output().is_ok();
    assert!(found, "{name} is not installed: `cargo xtask test` installs it (Debian's packages)");
}

/// A python that has redis-py.
pub fn python() -> PathBuf {
    std::env::var_os("EVENKEEL_PYTHON")
        .map_or_else(|| target_directory().join("python/bin/python"), PathBuf::from)
}

/// The folder of this crate, where transcripts and scripts are.
pub fn crate_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| crate_directory().join("../target"), PathBuf::from)
}
