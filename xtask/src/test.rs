//! `cargo xtask test`: everything that must pass before a change lands, the fast parts first.

use std::time::Instant;

use crate::report::{Outcome, Report, say};
use crate::step::Step;
use crate::{bench, fuzz, setup, shuttle, tidy, workspace};

/// A part of the run: its name and what it does.
pub(crate) type Part = (&'static str, fn(&mut Report));

const PARTS: &[Part] = &[
    ("setup", |report| {
        setup::run(report);
    }),
    ("format", format),
    ("tidy", tidy),
    ("lint", lint),
    ("unit", unit),
    ("shuttle", shuttle::run),
    ("fuzz", fuzz::small),
    ("build", build),
    ("black-box", black_box),
    ("bench", bench::smoke),
];

/// Runs the named parts, or all of them; an error when a name is unknown.
pub(crate) fn run(report: &mut Report, names: &[String]) -> Result<(), String> {
    run_parts(PARTS, report, names)
}

/// Runs the named parts of a list, or all of them, in the list's order.
pub(crate) fn run_parts(
    parts: &[Part],
    report: &mut Report,
    names: &[String],
) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| !parts.iter().any(|part| part.0 == **name)) {
        let known: Vec<&str> = parts.iter().map(|part| part.0).collect();
        return Err(format!("no part is called {unknown}; there are {}", known.join(" ")));
    }
    for (name, run) in parts {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            run(report);
        }
    }
    Ok(())
}

fn format(report: &mut Report) {
    Step::cargo("format", "fmt --all --check").run(report);
}

fn lint(report: &mut Report) {
    Step::cargo("lint", "clippy --workspace --all-targets -- -D warnings").run(report);
}

/// The rules about the project's text, each a test of its own.
pub(crate) fn tidy(report: &mut Report) {
    let start = Instant::now();
    let mut outcome = Outcome::default();
    match tidy::check(&workspace::root()) {
        Ok(findings) => {
            for finding in findings {
                if finding.offences.is_empty() {
                    outcome.passed += 1;
                    continue;
                }
                outcome.failed += 1;
                say(&format!("\nnot kept: {}", finding.rule));
                finding.offences.iter().for_each(|offence| say(&format!("  {offence}")));
            }
        }
        Err(text) => {
            outcome.failed += 1;
            say(&text);
        }
    }
    report.add("tidy", &outcome, start.elapsed());
}

fn unit(report: &mut Report) {
    Step::cargo("unit", "test --workspace --exclude tests --exclude bench --no-fail-fast")
        .at_least(1)
        .run(report);
}

fn build(report: &mut Report) {
    Step::cargo("build", "build --profile quick -p evenkeel").run(report);
}

fn black_box(report: &mut Report) {
    black_box_step("black-box", "").run(report);
}

/// The black-box tests with the binary of the quick profile; `more` are arguments of cargo test.
pub(crate) fn black_box_step(name: &str, more: &str) -> Step {
    Step::cargo(name, "test -p tests --no-fail-fast")
        .words(more)
        .words("-- --show-output")
        .env("EVENKEEL_BIN", workspace::binary("quick"))
        .env("EVENKEEL_PYTHON", workspace::python())
        .at_least(1)
}
