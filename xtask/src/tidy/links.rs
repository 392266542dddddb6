//! A relative link of a document leads to a file or folder of the project.

use std::path::Path;

use super::{File, Tree, lines_outside_of_fences, normalized};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.with_extension("md").flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<String> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut offences = Vec::new();
    for (number, line) in lines_outside_of_fences(&file.text) {
        for target in targets(line) {
            if !leads_somewhere(tree, folder, target) {
                offences.push(format!(
                    "{}:{}: the link to `{target}` leads nowhere: mend or remove it",
                    file.path, number
                ));
            }
        }
    }
    offences
}

/// The targets of the links of a line, `](target)` and `]: target`, outside of code spans.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    // Every second part between backquotes is code.
    for text in line.split('`').step_by(2) {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("](") {
            let end = after.find(')').unwrap_or(after.len());
            targets.push(after[..end].split_whitespace().next().unwrap_or_default());
            rest = &after[end..];
        }
    }
    if let Some((label, target)) = line.split_once("]: ")
        && label.starts_with('[')
    {
        targets.push(target.split_whitespace().next().unwrap_or_default());
    }
    targets
}

fn leads_somewhere(tree: &Tree, folder: &Path, target: &str) -> bool {
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or_default();
    if elsewhere || path.is_empty() {
        return true;
    }
    let Some(path) = normalized(&folder.join(path)) else { return false };
    let below = format!("{path}/");
    path.is_empty()
        || tree.get(&path).is_some()
        || tree.files.iter().any(|file| file.path.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_link_that_leads_nowhere() {
        let text = "[a](b.md) [c](../x/y.rs#L1) `[no](link)` [w](https://example.org)\n\
                    ```\n[no](link)\n```\n[f](../x) [dead](gone.md) [here](#here)\n";
        let tree = Tree::of(&[("d/a.md", text), ("d/b.md", ""), ("x/y.rs", "")]);
        let offences = check(&tree);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].starts_with("d/a.md:5: the link to `gone.md`"));
    }
}
