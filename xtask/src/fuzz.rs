//! The fuzz targets of `fuzz/`: with a fixed number of random inputs as ordinary tests, and for
//! long with libFuzzer.

use crate::nightly::installed;
use crate::report::Report;
use crate::step::Step;
use crate::workspace;

/// Seconds that libFuzzer spends on each target.
const SECONDS_PER_TARGET: u32 = 60;

/// What only the tests use is unused here; the part `lint` judges such things.
const LINTS: &str = "--cap-lints warn";

/// Every target on a few thousand random inputs, without libFuzzer.
pub(crate) fn small(report: &mut Report) {
    Step::cargo("fuzz", "test --manifest-path fuzz/Cargo.toml --lib")
        .env("RUSTFLAGS", format!("--cfg fuzzing {LINTS}"))
        .env("CARGO_TARGET_DIR", workspace::target().join("fuzz"))
        .at_least(1)
        .run(report);
}

/// Every target with libFuzzer and AddressSanitizer.
pub(crate) fn long(report: &mut Report) {
    if !installed(report, "cargo-fuzz") {
        return;
    }
    for target in targets() {
        let limit = format!("-max_total_time={SECONDS_PER_TARGET}");
        Step::cargo(&format!("libfuzzer-{target}"), "fuzz run --features libfuzzer")
            .words(&target)
            .words("--")
            .words(&limit)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", LINTS)
            .env("CARGO_TARGET_DIR", workspace::target().join("libfuzzer"))
            .run(report);
    }
}

/// The names of the targets: the files in `fuzz/targets`.
fn targets() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(workspace::root().join("fuzz/targets")) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut targets: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    targets.sort();
    targets
}
