//! Dependencies point one way: up the list of layers in ARCHITECTURE.md.
//!
//! Crates are judged by the dependency tables of their Cargo.toml, modules of the engine by the
//! `crate::` paths in their code. Tests inside a module may use any module.

use std::ops::Range;

use super::map::{PATH, compare, layers};
use super::source::{blanked, block_after, line_of, name_at, word_positions};
use super::{File, Tree};

/// The crate whose modules are layered too.
const ENGINE: &str = "engine";

/// Crates use only crates above them.
pub(super) fn crates(tree: &Tree) -> Vec<String> {
    let listed = match layers(tree, "") {
        Ok(listed) => listed,
        Err(offence) => return vec![offence],
    };
    let manifests: Vec<(&str, &File)> = tree
        .files
        .iter()
        .filter_map(|file| {
            let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            Some((name, file)).filter(|_| !name.contains('/'))
        })
        .collect();
    let present: Vec<&str> = manifests.iter().map(|(name, _)| *name).collect();
    let mut offences = compare(&listed, &present, "crate");
    for (name, manifest) in manifests {
        let Some(place) = listed.iter().position(|one| *one == name) else { continue };
        for used in dependencies(&manifest.text) {
            if listed.iter().position(|one| *one == used).is_some_and(|other| other >= place) {
                offences.push(format!(
                    "{}: `{name}` uses `{used}`, which is not above it in {PATH}: move what is \
                     shared to a crate above both",
                    manifest.path
                ));
            }
        }
    }
    offences
}

/// The names in the dependency tables of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_table = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            in_table = table.ends_with("dependencies");
            // `[dependencies.name]` is a table of its own.
            if let Some((_, name)) = table.split_once("dependencies.") {
                names.push(name);
            }
        } else if in_table && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            names.push(line[..end].trim_matches('"'));
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Modules of the engine use only modules before them.
pub(super) fn modules(tree: &Tree) -> Vec<String> {
    let listed = match layers(tree, ENGINE) {
        Ok(listed) => listed,
        Err(offence) => return vec![offence],
    };
    let folder = format!("crates/{ENGINE}/src/");
    let Some(root) = tree.get(&format!("{folder}lib.rs")) else {
        return vec![format!("{folder}lib.rs does not exist: the engine needs a root")];
    };
    let root_code = blanked(&root.text);
    let present: Vec<&str> = word_positions(&root_code, "mod")
        .filter(|at| !is_test_item(&root_code, *at))
        .map(|at| name_at(&root_code, at + "mod".len()))
        .collect();
    let mut offences = compare(&listed, &present, "engine module");
    for file in tree.with_extension("rs") {
        let Some(path) = file.path.strip_prefix(&folder) else { continue };
        let module = path.split(['/', '.']).next().unwrap_or_default();
        let tests_only = path.ends_with("/tests.rs") || path.contains("/tests/");
        let Some(place) = listed.iter().position(|one| *one == module) else { continue };
        if !tests_only {
            offences.extend(check_module(file, &listed, place));
        }
    }
    offences
}

fn check_module(file: &File, listed: &[&str], place: usize) -> Vec<String> {
    let code = blanked(&file.text);
    let tests: Vec<Range<usize>> = word_positions(&code, "mod")
        .filter(|at| is_test_item(&code, *at))
        .filter_map(|at| block_after(&code, at))
        .collect();
    let mut offences = Vec::new();
    for at in word_positions(&code, "crate") {
        if tests.iter().any(|block| block.contains(&at)) {
            continue;
        }
        for used in first_names(&code[at + "crate".len()..]) {
            if listed.iter().position(|one| *one == used).is_some_and(|other| other > place) {
                offences.push(format!(
                    "{}:{}: `{}` uses `crate::{used}`, which comes after it in {PATH}: turn the \
                     dependency around or move what is shared before both",
                    file.path,
                    line_of(&code, at),
                    listed[place]
                ));
            }
        }
    }
    offences
}

/// The names that follow `crate`: one after `::name`, several after `::{a::b, c}`.
fn first_names(rest: &str) -> Vec<&str> {
    let Some(rest) = rest.strip_prefix("::") else { return Vec::new() };
    let Some(group) = rest.trim_start().strip_prefix('{') else { return vec![name_at(rest, 0)] };
    let mut names = vec![name_at(group, 0)];
    let mut depth = 0;
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b',' if depth == 0 => names.push(name_at(group, at + 1)),
            _ => {}
        }
    }
    names
}

/// True when the item at `at` is compiled for tests only, by the attribute lines above it.
fn is_test_item(code: &str, at: usize) -> bool {
    let above = &code[..at];
    let from = above.rfind([';', '}', '{']).map_or(0, |end| end + 1);
    ["cfg(test)", "cfg(all(test", "cfg(any(test"].iter().any(|test| above[from..].contains(test))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "```layers\nresp\nengine\n```\n```layers engine\ntypes\nkeyspace\n```\n";

    #[test]
    fn tells_the_crate_that_uses_one_below() {
        let resp = "[package]\nname = \"resp\"\n[dev-dependencies]\nengine.workspace = true\n";
        let engine = "[dependencies]\nresp = { workspace = true }\n[lints]\nworkspace = true\n";
        let tree = Tree::of(&[
            (PATH, MAP),
            ("crates/resp/Cargo.toml", resp),
            ("crates/engine/Cargo.toml", engine),
        ]);
        let offences = crates(&tree);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].contains("`resp` uses `engine`"));
    }

    #[test]
    fn tells_the_module_that_uses_a_later_one() {
        let types = "use crate::{types::{A, keyspace}, keyspace::K};\n// crate::keyspace\n\
                     #[cfg(test)]\nmod tests {\n use crate::keyspace;\n}\n";
        let root = "mod types;\npub mod keyspace;\n#[cfg(test)]\nmod helpers;\n";
        let tree = Tree::of(&[
            (PATH, MAP),
            ("crates/engine/src/lib.rs", root),
            ("crates/engine/src/types.rs", types),
            ("crates/engine/src/keyspace/mod.rs", "use crate::types;\n"),
            ("crates/engine/src/types/tests.rs", "use crate::keyspace;\n"),
        ]);
        let offences = modules(&tree);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].starts_with("crates/engine/src/types.rs:1: `types` uses"));
    }

    #[test]
    fn reads_every_form_of_dependency() {
        let manifest = "[dependencies]\na = \"1\"\nb.workspace = true\n# c\n[dependencies.d]\n\
                        version = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\n\"e\" = \"1\"\n";
        assert_eq!(dependencies(manifest), ["a", "b", "d", "e"]);
    }
}
