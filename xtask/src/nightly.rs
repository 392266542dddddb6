//! `cargo xtask nightly`: what takes too long for every change. Run `cargo xtask test` first.

use crate::report::Report;
use crate::step::Step;
use crate::test::{Part, black_box_step, run_parts};
use crate::{fuzz, setup, workspace};

const PARTS: &[Part] = &[
    ("deny", deny),
    ("address-sanitizer", address_sanitizer),
    ("rounds", rounds),
    ("libfuzzer", fuzz::long),
    ("differential", differential),
    ("large", large),
];

/// Times the usual number of rounds of the property tests.
const ROUNDS: &str = "50";
/// Random commands per protocol in the differential run.
const COMMANDS: &str = "300000";
/// Random commands in the effect stream run.
const EFFECTS: &str = "1000000";
/// Seconds of random bytes.
const SECONDS: &str = "60";
/// Megabytes of requests before the first reply is read.
const PIPELINE_MB: &str = "50";
/// Elements of the large collections.
const LARGE: &str = "10000000";

/// Runs the named parts, or all of them; an error when a name is unknown.
pub(crate) fn run(report: &mut Report, names: &[String]) -> Result<(), String> {
    run_parts(PARTS, report, names)
}

/// Licences, banned crates and sources of the dependencies, by deny.toml.
fn deny(report: &mut Report) {
    if installed(report, "cargo-deny") {
        Step::cargo("deny", "deny check bans licenses sources").run(report);
    }
}

/// The structures under AddressSanitizer. The stable compiler allows the flag when it is told
/// that it builds the compiler itself, which is the only way without a second toolchain.
fn address_sanitizer(report: &mut Report) {
    let Some(host) = host() else { return };
    Step::cargo("address-sanitizer", "test -p structures --no-fail-fast --tests --target")
        .words(&host)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_TARGET_DIR", workspace::target().join("address-sanitizer"))
        .at_least(1)
        .run(report);
}

fn rounds(report: &mut Report) {
    Step::cargo(
        "rounds",
        "test --workspace --exclude tests --exclude bench --exclude xtask --no-fail-fast",
    )
    .env("EVENKEEL_TEST_ROUNDS", ROUNDS)
    .at_least(1)
    .run(report);
}

fn differential(report: &mut Report) {
    if !setup::run(report) || !build(report, "quick") {
        return;
    }
    let tests = "--test differential --test effect_stream --test robustness";
    black_box_step("differential", tests)
        .env("EVENKEEL_COMMANDS", COMMANDS)
        .env("EVENKEEL_EFFECTS", EFFECTS)
        .env("EVENKEEL_TEST_SECONDS", SECONDS)
        .env("EVENKEEL_PIPELINE_MB", PIPELINE_MB)
        .run(report);
}

/// Ten million elements, one test after the other, with the release build.
fn large(report: &mut Report) {
    if !build(report, "release") {
        return;
    }
    black_box_step("large", "--test large")
        .words("--test-threads 1")
        .env("EVENKEEL_BIN", workspace::binary("release"))
        .env("EVENKEEL_LARGE", LARGE)
        .run(report);
}

fn build(report: &mut Report, profile: &str) -> bool {
    Step::cargo(&format!("build-{profile}"), "build -p evenkeel --profile")
        .words(profile)
        .run(report)
}

/// Installs a cargo command when it is missing. True when it is there.
pub(crate) fn installed(report: &mut Report, name: &str) -> bool {
    let program = std::process::Command::new(name).arg("--version").output();
    program.is_ok() || {
        // Its own folder: the project's profiles and flags are not for it.
        let step = Step::cargo(&format!("install-{name}"), "install --locked").words(name);
        step.env("CARGO_TARGET_DIR", workspace::target().join("install")).run(report)
    }
}

/// The name of this machine's target.
fn host() -> Option<String> {
    let output = std::process::Command::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}
