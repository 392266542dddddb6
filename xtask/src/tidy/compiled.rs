//! Every Rust file is compiled by somebody: it is a target of a package, or reached from one by
//! `mod` lines.

use std::collections::HashSet;
use std::path::Path;

use super::source::{blanked, block_after, name_at, word_positions};
use super::{File, Tree, normalized};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut reached: HashSet<String> = HashSet::new();
    for manifest in tree.files.iter().filter(|file| is_manifest(&file.path)) {
        for root in roots(tree, manifest) {
            reach(tree, &root, Kind::Root, &mut reached);
        }
    }
    tree.with_extension("rs")
        .filter(|file| !reached.contains(&file.path))
        .map(|file| {
            format!("{}: nobody compiles it: add its `mod` line or delete the file", file.path)
        })
        .collect()
}

fn is_manifest(path: &str) -> bool {
    path == "Cargo.toml" || path.ends_with("/Cargo.toml")
}

/// The files at which the compiler begins: those that cargo finds by itself, and every
/// `path = "....rs"` of the manifest.
fn roots(tree: &Tree, manifest: &File) -> Vec<String> {
    let folder = manifest.path.trim_end_matches("Cargo.toml");
    let mut roots: Vec<String> = ["src/lib.rs", "src/main.rs", "build.rs"]
        .iter()
        .map(|root| format!("{folder}{root}"))
        .filter(|path| tree.get(path).is_some())
        .collect();
    for file in tree.with_extension("rs") {
        let Some(path) = file.path.strip_prefix(folder) else { continue };
        let found = ["src/bin/", "tests/", "benches/", "examples/"].iter().any(|targets| {
            let Some(rest) = path.strip_prefix(targets) else { return false };
            !rest.contains('/') || rest.ends_with("/main.rs") && rest.matches('/').count() == 1
        });
        if found {
            roots.push(file.path.clone());
        }
    }
    for line in manifest.text.lines() {
        let Some(value) = line.trim().strip_prefix("path") else { continue };
        let value = value.trim_start().trim_start_matches('=').trim().trim_matches('"');
        if value.ends_with(".rs") {
            roots.extend(normalized(&Path::new(folder).join(value)));
        }
    }
    roots
}

/// Where the `mod` lines of a file look.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// In the folder of the file: a target, or a `mod.rs`.
    Root,
    /// In the folder named like the file.
    Module,
}

fn reach(tree: &Tree, path: &str, kind: Kind, reached: &mut HashSet<String>) {
    let Some(file) = tree.get(path) else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let parent = Path::new(path).parent().unwrap_or(Path::new(""));
    let stem = Path::new(path).file_stem().unwrap_or_default();
    let folder = if kind == Kind::Root { parent.to_owned() } else { parent.join(stem) };
    let code = blanked(&file.text);
    for at in word_positions(&code, "mod") {
        let name = name_at(&code, at + "mod".len());
        if name.is_empty()
            || block_after(&code, at).is_some_and(|block| opens_here(&code, at, block.start))
        {
            continue;
        }
        if let Some(given) = path_attribute(&code, &file.text, at) {
            // The attribute's path begins at the file's own folder.
            let target = normalized(&parent.join(given)).unwrap_or_default();
            reach(tree, &target, Kind::Root, reached);
            continue;
        }
        let outer =
            enclosing_modules(&code, at).iter().fold(folder.clone(), |path, one| path.join(one));
        let flat = outer.join(format!("{name}.rs"));
        let nested = outer.join(name).join("mod.rs");
        reach(tree, &flat.to_string_lossy(), Kind::Module, reached);
        reach(tree, &nested.to_string_lossy(), Kind::Root, reached);
    }
    for at in word_positions(&code, "include") {
        if let Some(target) = first_string(&file.text[at..]) {
            let target = normalized(&parent.join(target)).unwrap_or_default();
            reach(tree, &target, Kind::Root, reached);
        }
    }
}

/// True when the block that begins at `start` belongs to the `mod` at `at`: only its name is
/// between them.
fn opens_here(code: &str, at: usize, start: usize) -> bool {
    code[at + "mod".len()..start].split_whitespace().count() == 1
}

/// The names of the inline modules around `at`, outermost first.
fn enclosing_modules(code: &str, at: usize) -> Vec<&str> {
    word_positions(code, "mod")
        .take_while(|outer| *outer < at)
        .filter(|outer| {
            block_after(code, *outer)
                .is_some_and(|block| opens_here(code, *outer, block.start) && block.contains(&at))
        })
        .map(|outer| name_at(code, outer + "mod".len()))
        .collect()
}

/// The value of a `#[path = "..."]` right above the `mod` at `at`.
fn path_attribute<'a>(code: &str, text: &'a str, at: usize) -> Option<&'a str> {
    let from = code[..at].rfind([';', '}', '{']).map_or(0, |end| end + 1);
    let attribute = code[from..at].find("#[path")?;
    first_string(&text[from + attribute..at])
}

fn first_string(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_file_that_nobody_compiles() {
        let tree = Tree::of(&[
            ("a/Cargo.toml", "[package]\n[[bin]]\npath = \"other/start.rs\"\n"),
            (
                "a/src/lib.rs",
                "mod one;\n#[path = \"../odd.rs\"]\nmod two;\nmod three { mod four; }\n",
            ),
            ("a/src/one.rs", "#[cfg(test)]\nmod tests;\n// mod gone;\n"),
            ("a/src/one/tests.rs", ""),
            ("a/src/three/four.rs", ""),
            ("a/odd.rs", ""),
            ("a/other/start.rs", "mod helper;"),
            ("a/other/helper.rs", ""),
            ("a/tests/black.rs", ""),
            ("a/src/gone.rs", ""),
        ]);
        let offences = check(&tree);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].starts_with("a/src/gone.rs: nobody compiles it"));
    }
}
