//! Every Rust file begins with a `//!` line that says what it is for.

use super::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.with_extension("rs")
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| format!("{}: begin the file with a `//! ` line: its purpose", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_file_without_a_purpose() {
        let tree = Tree::of(&[("a.rs", "//! A.\n"), ("b.rs", "fn b() {}\n"), ("c.md", "# C\n")]);
        let offences = check(&tree);
        assert_eq!(offences.len(), 1);
        assert!(offences[0].starts_with("b.rs: "));
    }
}
