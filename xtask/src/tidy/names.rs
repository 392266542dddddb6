//! Documents name files and items of the code that exist: a page that tells where things are must
//! notice when they move.
//!
//! In a code span of a document, outside of fenced blocks, a path that ends in `.rs` is the end of
//! the path of some file, and of `Type::function` or `module::item` every part is a word of the code.

use std::collections::HashSet;

use super::source::{blanked, is_word};
use super::{File, Tree, lines_outside_of_fences};

/// Crates that are not ours: their names are theirs.
const FOREIGN: &[&str] = &["std", "core", "clippy", "mio", "tokio"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut words = HashSet::new();
    for file in tree.with_extension("rs") {
        let code = blanked(&file.text);
        let all = code.split(|letter: char| !letter.is_ascii() || !is_word(letter as u8));
        words.extend(all.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    tree.with_extension("md").flat_map(|file| check_file(tree, &words, file)).collect()
}

fn check_file(tree: &Tree, words: &HashSet<String>, file: &File) -> Vec<String> {
    let mut offences = Vec::new();
    for (number, line) in lines_outside_of_fences(&file.text) {
        // Every second part between backquotes is code.
        for span in line.split('`').skip(1).step_by(2) {
            let at = format!("{}:{}", file.path, number);
            if is_path(span) && !exists(tree, span) {
                offences.push(format!("{at}: there is no file `{span}`: say where it is now"));
            } else if is_item(span)
                && let Some(gone) = span.split("::").find(|part| !words.contains(*part))
            {
                offences.push(format!("{at}: `{gone}` of `{span}` is nowhere: say what it is now"));
            }
        }
    }
    offences
}

/// A path without placeholders.
fn is_path(span: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-./".contains(&byte);
    span.ends_with(".rs") && span.bytes().all(plain)
}

fn exists(tree: &Tree, path: &str) -> bool {
    tree.with_extension("rs").any(|file| {
        let before = file.path.strip_suffix(path);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

/// A path of names, of this project.
fn is_item(span: &str) -> bool {
    let mut parts = span.split("::");
    parts.next().is_some_and(|first| !FOREIGN.contains(&first))
        && span.contains("::")
        && span.split("::").all(|part| !part.is_empty() && part.bytes().all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_file_and_the_item_that_are_gone() {
        let text = "`a/b.rs` `b.rs` `gone.rs` `x/b.rs` `shuttle_NAME.rs` `cargo run`\n\
                    `T::f` `T::gone` `std::gone` `T::{f, gone}`\n```\n`gone.rs`\n```\n";
        let code = "//! A.\nstruct T;\n// gone\nfn f() {}\n";
        let offences = check(&Tree::of(&[("d.md", text), ("crates/a/b.rs", code)]));
        assert_eq!(offences.len(), 3, "{offences:?}");
        assert!(offences[0].starts_with("d.md:1: there is no file `gone.rs`"));
        assert!(offences[1].contains("`x/b.rs`"));
        assert!(offences[2].starts_with("d.md:2: `gone` of `T::gone`"));
    }
}
