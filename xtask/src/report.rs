//! What passed and what failed, and the closing line that says so.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Counts of one run. A test counts one, and so does a part that is no set of tests.
#[derive(Debug)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    /// The names of the parts that failed.
    failures: Vec<String>,
    start: Instant,
}

/// What one part found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Lines that a reader of the summary wants to know.
    pub notes: Vec<String>,
}

impl Default for Report {
    fn default() -> Report {
        Report { passed: 0, failed: 0, failures: Vec::new(), start: Instant::now() }
    }
}

impl Report {
    /// Adds a part and shows its line.
    pub(crate) fn add(&mut self, name: &str, outcome: &Outcome, took: Duration) {
        self.passed += outcome.passed;
        self.failed += outcome.failed;
        let seconds = took.as_secs_f32();
        let (passed, failed) = (outcome.passed, outcome.failed);
        if failed == 0 {
            say(&format!("ok      {name:<34} {passed:>5} passed {seconds:>7.1} s"));
        } else {
            say(&format!(
                "FAILED  {name:<34} {passed:>5} passed, {failed} failed {seconds:>7.1} s"
            ));
            self.failures.push(name.to_owned());
        }
        for note in &outcome.notes {
            say(&format!("        {note}"));
        }
    }

    /// Shows the closing line; the exit code tells whether all passed.
    pub(crate) fn finish(&self) -> ExitCode {
        let minutes = self.start.elapsed().as_secs_f32() / 60.0;
        say(&format!("\n{minutes:.1} minutes; logs in {}", crate::step::log_folder().display()));
        if !self.failures.is_empty() {
            say(&format!("failed: {}", self.failures.join(", ")));
        }
        say(&format!("{} passed, {} failed", self.passed, self.failed));
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Writes a line to standard output. A reader who went away is no reason to stop.
pub(crate) fn say(line: &str) {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).ok();
}
