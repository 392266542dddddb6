//! Words that have no place in the project: what was left to do, and where somebody worked.
//!
//! The words are written in pieces here, so that this file keeps its own rule.

use super::source::is_word;
use super::{File, Tree};

/// Marks of unfinished work.
const LEFTOVERS: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimplemen", "ted!("),
];

/// Folders of single machines. Only the beginning of a path counts.
const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Hosts that serve packages: how a machine reaches them is its own matter.
const HOSTS: &[&str] = &[
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("py", "pi.org"),
    concat!("files.python", "hosted.org"),
    concat!("deb.deb", "ian.org"),
    concat!("registry.np", "mjs.org"),
    concat!("proxy.go", "lang.org"),
];

pub(super) fn leftovers(tree: &Tree) -> Vec<String> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        for (number, line) in numbered(file) {
            let found = LEFTOVERS.iter().find(|word| stands_alone(line, word));
            offences.extend(found.map(|word| {
                format!("{}:{number}: `{word}`: do it, or file an issue and say why", file.path)
            }));
        }
    }
    offences
}

pub(super) fn places(tree: &Tree) -> Vec<String> {
    let mut offences = Vec::new();
    for file in &tree.files {
        for (number, line) in numbered(file) {
            let folder = FOLDERS.iter().find(|folder| begins_a_path(line, folder));
            let host = HOSTS.iter().find(|host| line.contains(**host));
            offences.extend(folder.map(|folder| {
                format!(
                    "{}:{number}: `{folder}...` exists on one machine: use a path in the project",
                    file.path
                )
            }));
            offences.extend(host.map(|host| {
                format!(
                    "{}:{number}: `{host}`: name the package, not the host it comes from",
                    file.path
                )
            }));
        }
    }
    offences
}

fn numbered(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// True when `word` is in the line and not a part of a longer one.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let bytes = line.as_bytes();
        let before = at.checked_sub(1).is_none_or(|before| !is_word(bytes[before]));
        let after = bytes.get(at + word.len()).is_none_or(|after| !is_word(*after));
        before && (after || word.ends_with('('))
    })
}

/// True when `folder` is in the line and is not the middle of a longer path.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        at.checked_sub(1).is_none_or(|before| {
            let byte = line.as_bytes()[before];
            !is_word(byte) && !matches!(byte, b'.' | b'-' | b'/' | b'*' | b'}' | b'~')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_left_to_do() {
        let text = format!("//! A.\n// {} later\nlet {}s = 1;\n", LEFTOVERS[0], LEFTOVERS[1]);
        assert_eq!(leftovers(&Tree::of(&[("a.rs", &text)])).len(), 1);
    }

    #[test]
    fn tells_machines_and_hosts_but_no_relative_path() {
        let text = format!("see `{0}x`\ntarget{0}x\n../home/x\nfrom {1}\n", FOLDERS[0], HOSTS[0]);
        let offences = places(&Tree::of(&[("a.md", &text)]));
        assert_eq!(offences.len(), 2, "{offences:?}");
        assert!(offences[0].starts_with("a.md:1: ") && offences[1].starts_with("a.md:4: "));
    }
}
