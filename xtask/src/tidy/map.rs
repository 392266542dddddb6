//! The map: the fenced `layers` blocks of ARCHITECTURE.md.
//!
//! ````text
//! ```layers                    the crates, lowest first
//! resp        the wire protocol
//! engine      the database
//! ```
//! ```layers engine             the modules of that crate, lowest first
//! keyspace    shards and tables
//! ```
//! ````
//!
//! The first word of a line is the name; the rest describes it.

use super::Tree;

/// Where the map is.
pub(super) const PATH: &str = "ARCHITECTURE.md";

/// The names of the block that begins with ` ```layers ` and `title`, lowest layer first. The
/// error says what to write.
pub(super) fn layers<'a>(tree: &'a Tree, title: &str) -> Result<Vec<&'a str>, String> {
    let file = tree.get(PATH).ok_or_else(|| {
        format!("{PATH} does not exist: write it, with a ```layers block that lists the crates")
    })?;
    let fence = format!("```layers {title}");
    let mut lines = file.text.lines();
    if !lines.any(|line| line.trim() == fence.trim()) {
        return Err(format!("{PATH} has no block that begins with {}: add it", fence.trim()));
    }
    let names: Vec<&str> = lines
        .take_while(|line| !line.trim_start().starts_with("```"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(format!("{PATH} lists {} twice in {}: remove one", twice.1, fence.trim()));
    }
    Ok(names)
}

/// What is listed but does not exist, and what exists but is not listed.
pub(super) fn compare(listed: &[&str], present: &[&str], what: &str) -> Vec<String> {
    let absent = listed.iter().filter(|name| !present.contains(name)).map(|name| {
        format!("{PATH} lists the {what} `{name}`, which does not exist: remove the line")
    });
    let missing = present.iter().filter(|name| !listed.contains(name)).map(|name| {
        format!("the {what} `{name}` is not in {PATH}: add it to the layers, above what uses it")
    });
    absent.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Map\n```layers\na  the lowest\nb\n```\n```layers engine\nx\n```\n";

    #[test]
    fn reads_both_blocks() {
        let tree = Tree::of(&[(PATH, MAP)]);
        assert_eq!(layers(&tree, ""), Ok(vec!["a", "b"]));
        assert_eq!(layers(&tree, "engine"), Ok(vec!["x"]));
        assert!(layers(&tree, "server").is_err());
        assert!(layers(&Tree::of(&[]), "").is_err_and(|text| text.contains("does not exist")));
    }

    #[test]
    fn tells_both_kinds_of_difference() {
        assert_eq!(compare(&["a", "gone"], &["a", "new"], "crate").len(), 2);
    }
}
