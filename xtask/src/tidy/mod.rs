//! Tidy checks: rules about the text of the project that the compiler does not know.
//!
//! Each rule reads the whole tree and answers one message per offence; a message says where and
//! what to do. To add a rule, write its function and add a row to [`RULES`].

mod architecture;
mod compiled;
mod functions;
mod headers;
mod links;
mod map;
mod names;
mod source;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A rule: what it demands, and its check.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

/// All rules.
const RULES: &[Rule] = &[
    ("crates use only crates above them in ARCHITECTURE.md", architecture::crates),
    ("engine modules use only modules before them in ARCHITECTURE.md", architecture::modules),
    ("every .rs file is compiled by somebody", compiled::check),
    ("every .rs file begins with its purpose", headers::check),
    ("functions have at most 70 lines, files at most 1000", functions::check),
    ("nothing is left to do", words::leftovers),
    ("no text names a machine or a registry", words::places),
    ("relative links of documents lead somewhere", links::check),
    ("documents name files and items that exist", names::check),
];

/// A file of the project.
#[derive(Debug)]
pub(crate) struct File {
    /// Its path from the project's root, with slashes.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The text files of the project: those that git tracks or would add.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The files, sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the files below `root`; an error when git cannot list them.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git cannot list the files: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        // A file that is tracked but deleted, or is not text, is none of ours.
        let read = |path: &&str| {
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(File { path: (*path).to_owned(), text })
        };
        Ok(Tree { files: paths.iter().filter_map(read).collect() })
    }

    /// The file at a path.
    fn get(&self, path: &str) -> Option<&File> {
        let index = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[index])
    }

    /// The files whose names end in `.extension`.
    fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        let ending = format!(".{extension}");
        self.files.iter().filter(move |file| file.path.ends_with(&ending))
    }

    /// A tree for a test.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let mut files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Tree { files }
    }
}

/// What one rule found.
pub(crate) struct Finding {
    /// The rule's demand.
    pub rule: &'static str,
    /// One message per offence; none when the rule is kept.
    pub offences: Vec<String>,
}

/// Runs every rule; an error when the tree cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let tree = Tree::read(root)?;
    Ok(RULES.iter().map(|(rule, check)| Finding { rule, offences: check(&tree) }).collect())
}

/// The lines of a document outside of its fenced blocks, with their numbers from 1.
fn lines_outside_of_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let outside = move |&(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced
    };
    (1..).zip(text.lines()).filter(outside)
}

/// `path` with `.` and `..` taken out, with slashes; nothing when it leaves the project.
fn normalized(path: &Path) -> Option<String> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            std::path::Component::CurDir => {}
            other => clean.push(other),
        }
    }
    Some(clean.to_string_lossy().replace('\\', "/"))
}
