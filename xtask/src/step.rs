//! Runs one external command as a part of a run: its output goes to a log, its last line beside a
//! spinner, its test results to the report.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{Outcome, Report, say};
use crate::workspace;

/// Lines of the log shown when a command fails.
const SHOWN_LINES: usize = 300;
/// Lines that begin with this are shown in the summary.
const NOTE: &str = "summary: ";

/// A command with a name.
pub(crate) struct Step {
    name: String,
    command: Command,
    /// Fails when fewer tests than this ran.
    tests_min: usize,
    /// What it means when no test fails, for a command whose tests must fail.
    must_fail: Option<String>,
}

impl Step {
    /// `cargo` with words as arguments, in the root of the project.
    pub(crate) fn cargo(name: &str, arguments: &str) -> Step {
        Step::program(name, "cargo").words(arguments)
    }

    /// A program, in the root of the project.
    pub(crate) fn program(name: &str, program: &str) -> Step {
        let mut command = Command::new(program);
        command.current_dir(workspace::root()).stdin(Stdio::null());
        Step { name: name.to_owned(), command, tests_min: 0, must_fail: None }
    }

    /// More arguments, separated by blanks.
    pub(crate) fn words(mut self, arguments: &str) -> Step {
        self.command.args(arguments.split_whitespace());
        self
    }

    /// One more argument, which may have blanks.
    pub(crate) fn argument(mut self, argument: &str) -> Step {
        self.command.arg(argument);
        self
    }

    /// An environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Step {
        self.command.env(name, value);
        self
    }

    /// Fails when fewer tests than this ran: a filter that matches nothing is a mistake.
    pub(crate) fn at_least(mut self, tests: usize) -> Step {
        self.tests_min = tests;
        self
    }

    /// Passes only when a test fails; `otherwise` says what it means when none does.
    pub(crate) fn must_fail(mut self, otherwise: &str) -> Step {
        self.must_fail = Some(otherwise.to_owned());
        self
    }

    /// Runs it and adds what it found to the report. True when it passed.
    pub(crate) fn run(mut self, report: &mut Report) -> bool {
        let start = Instant::now();
        let (success, outcome, log) = match self.execute() {
            Ok(done) => done,
            Err(error) => (false, Outcome::default(), vec![format!("cannot run: {error}")]),
        };
        let outcome = self.judge(success, outcome);
        if outcome.failed > 0 {
            say(&format!("\n--- {} ---", self.name));
            log[log.len().saturating_sub(SHOWN_LINES)..].iter().for_each(|line| say(line));
        }
        report.add(&self.name, &outcome, start.elapsed());
        outcome.failed == 0
    }

    /// A command that runs no tests counts one; a failure that no test explains counts one.
    fn judge(&self, success: bool, mut outcome: Outcome) -> Outcome {
        if let Some(otherwise) = &self.must_fail {
            let noticed = outcome.failed > 0;
            let notes = if noticed { Vec::new() } else { vec![otherwise.clone()] };
            return Outcome { passed: noticed.into(), failed: (!noticed).into(), notes };
        }
        let tests = outcome.passed + outcome.failed;
        if tests < self.tests_min {
            outcome.notes.push(format!("{tests} tests ran, {} expected", self.tests_min));
            outcome.failed += 1;
        } else if !success && outcome.failed == 0 {
            outcome.failed = 1;
        } else if success && tests == 0 {
            outcome.passed = 1;
        }
        outcome
    }

    fn execute(&mut self) -> io::Result<(bool, Outcome, Vec<String>)> {
        fs::create_dir_all(log_folder())?;
        let mut log_file = File::create(log_folder().join(format!("{}.log", self.name)))?;
        let (reader, writer) = io::pipe()?;
        self.command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = self.command.spawn()?;
        // The command holds the writing ends; the reader ends when the last of them is closed.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        let spinner = spinner(&self.name);
        let (mut outcome, mut log) = (Outcome::default(), Vec::new());
        for line in BufReader::new(reader).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
            writeln!(log_file, "{line}")?;
            count(&line, &mut outcome);
            if !line.is_empty() {
                spinner.set_message(line.clone());
            }
            log.push(line);
        }
        let status = child.wait()?;
        spinner.finish_and_clear();
        Ok((status.success(), outcome, log))
    }
}

/// Where the logs are.
pub(crate) fn log_folder() -> PathBuf {
    workspace::target().join("xtask")
}

/// A spinner with a name, the time and a changing message; invisible when nobody watches.
pub(crate) fn spinner(name: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}") {
        spinner.set_style(style);
    }
    spinner.set_prefix(name.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

/// Adds up the result lines of cargo's test runner.
fn count(line: &str, outcome: &mut Outcome) {
    if let Some(note) = line.trim_start().strip_prefix(NOTE) {
        outcome.notes.push(note.to_owned());
    }
    let Some(rest) = line.strip_prefix("test result: ") else { return };
    for part in rest.split(['.', ';']) {
        let mut words = part.split_whitespace();
        let (number, kind) =
            (words.next().and_then(|word| word.parse::<usize>().ok()), words.next());
        match (number, kind) {
            (Some(number), Some("passed")) => outcome.passed += number,
            (Some(number), Some("failed")) => outcome.failed += number,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_result_lines() {
        let mut outcome = Outcome::default();
        count(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out",
            &mut outcome,
        );
        count("test result: FAILED. 2 passed; 1 failed; 0 ignored; finished in 0.1s", &mut outcome);
        count("summary: 5 steps wait", &mut outcome);
        let notes = vec!["5 steps wait".to_owned()];
        assert_eq!(outcome, Outcome { passed: 14, failed: 1, notes });
    }

    #[test]
    fn a_part_without_tests_counts_one_and_a_filter_that_matches_nothing_fails() {
        let step = Step::cargo("x", "");
        assert_eq!(step.judge(true, Outcome::default()).passed, 1);
        assert_eq!(step.judge(false, Outcome::default()).failed, 1);
        assert_eq!(step.at_least(1).judge(true, Outcome::default()).failed, 1);
    }

    #[test]
    fn a_part_that_must_fail_needs_a_failing_test() {
        let step = || Step::cargo("x", "").must_fail("not noticed");
        let noticed = Outcome { passed: 3, failed: 1, notes: Vec::new() };
        assert_eq!(step().judge(false, noticed).passed, 1);
        // What does not compile has noticed nothing.
        assert_eq!(step().judge(false, Outcome::default()).failed, 1);
    }
}
