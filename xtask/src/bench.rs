//! `cargo xtask bench`: builds the release server and the benches, and runs one of them.

use std::process::{Command, ExitCode};

use crate::report::Report;
use crate::step::Step;
use crate::workspace;

/// The variable that names the binary to measure.
const BINARY: &str = "EVENKEEL_BIN";

/// Options that say what is measured, so that it need not be built, or that nothing is.
const NO_BUILD: &[&str] = &["--binary", "--port", "--list", "--help", "-h", "help", "machine"];

/// Runs a bench with its arguments; its own exit code is the result.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let mut report = Report::default();
    let given = std::env::var_os(BINARY);
    let wanted = !arguments.is_empty()
        && given.is_none()
        && !arguments.iter().any(|argument| names_another(argument));
    let server = || Step::cargo("build-release", "build --release -p evenkeel");
    // Without the link-time optimisation of the server: its clients are simple.
    let benches = || Step::cargo("build-bench", "build --profile quick -p bench");
    if wanted && !server().run(&mut report) || !benches().run(&mut report) {
        return report.finish();
    }
    let status = Command::new(workspace::target().join("quick/bench"))
        .args(arguments)
        .env(BINARY, given.unwrap_or_else(|| workspace::binary("release").into()))
        .status();
    match status {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            code.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("the bench cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The benches on a few elements, with the binary of the quick profile: that they work, and fill
/// every column. Nothing is judged by its time.
pub(crate) fn smoke(report: &mut Report) {
    Step::cargo("bench", "test -p bench --no-fail-fast")
        .env(BINARY, workspace::binary("quick"))
        .at_least(1)
        .run(report);
}

fn names_another(argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or_default();
    NO_BUILD.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_server_is_not_built() {
        for (argument, expected) in
            [("--port", true), ("--binary=x", true), ("--list", true), ("--elements", false)]
        {
            assert_eq!(names_another(argument), expected, "{argument}");
        }
    }
}
