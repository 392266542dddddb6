//! The models of the engine's concurrency: shuttle runs the production code under many schedules.
//!
//! A model is a file `crates/engine/tests/shuttle_NAME.rs`. Under `--cfg shuttle` every test in
//! it passes. A checker must be checked, so the code has planted bugs,
//! `cfg(planted_bug = "NAME")` or `"NAME_MORE"`, one at a time: with each, a test of the model of
//! that name must fail, or, when no model has that name, a test of any model. Bugs are found by
//! reading the sources of the engine, so planting one is all there is to do.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::report::Report;
use crate::step::Step;
use crate::workspace;

/// Runs all models, then each planted bug.
pub(crate) fn run(report: &mut Report) {
    let engine = workspace::root().join("crates/engine");
    let models = models(&engine);
    if models.is_empty() {
        return;
    }
    let passed = step("shuttle", None)
        .words("--no-fail-fast --test shuttle*")
        .at_least(models.len())
        .run(report);
    if !passed {
        return;
    }
    let mut bugs = BTreeSet::new();
    planted_bugs(&engine.join("src"), &mut bugs);
    for bug in bugs {
        let model = model_of(&bug, &models).unwrap_or("shuttle*");
        step(&format!("shuttle-planted-{bug}"), Some(&bug))
            .words("--no-fail-fast --test")
            .words(model)
            .must_fail(&format!("no model noticed the planted bug `{bug}`"))
            .run(report);
    }
}

fn step(name: &str, bug: Option<&str>) -> Step {
    let step = Step::cargo(name, "test -Zprofile-rustflags")
        // The stable compiler takes flags for one package when told that it builds itself; with
        // flags for all, every bug would compile every dependency again.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "--cfg shuttle")
        .env("CARGO_TARGET_DIR", workspace::target().join("shuttle"));
    let step = match bug {
        None => step,
        Some(bug) => step.argument("--config").argument(&format!(
            r#"profile.dev.package.engine.rustflags=["--cfg", "planted_bug=\"{bug}\""]"#
        )),
    };
    step.words("-p engine")
}

/// The names of the model files.
fn models(engine: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(engine.join("tests")) else { return BTreeSet::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| name.starts_with("shuttle"))
        .collect()
}

/// The model that must notice a bug.
fn model_of<'a>(bug: &str, models: &'a BTreeSet<String>) -> Option<&'a str> {
    let is_own = |name: &str| match bug.strip_prefix(name) {
        Some(more) => more.is_empty() || more.starts_with('_'),
        None => false,
    };
    models
        .iter()
        .map(String::as_str)
        .find(|model| model.strip_prefix("shuttle_").is_some_and(is_own))
}

/// Collects the names of planted bugs from all sources below a folder.
fn planted_bugs(folder: &Path, bugs: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            planted_bugs(&path, bugs);
        } else if let Ok(text) = fs::read_to_string(&path) {
            bugs.extend(bugs_in(&text));
        }
    }
}

fn bugs_in(text: &str) -> Vec<String> {
    const CONDITION: &str = "planted_bug = \"";
    let names = text.split(CONDITION).skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_model_of_a_bug() {
        let models = BTreeSet::from(["shuttle_lock", "shuttle_locks"].map(str::to_owned));
        assert_eq!(model_of("locks", &models), Some("shuttle_locks"));
        assert_eq!(model_of("lock_early", &models), Some("shuttle_lock"));
        assert_eq!(model_of("other", &models), None);
    }

    #[test]
    fn finds_planted_bugs() {
        let text = "#[cfg(all(shuttle, planted_bug = \"gate\"))]\n#[cfg(planted_bug = \"watch\")]";
        assert_eq!(bugs_in(text), ["gate", "watch"]);
    }
}
