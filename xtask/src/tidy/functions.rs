//! Functions and files stay short enough to be read at once.

use super::source::{blanked, block_after, line_of, name_at, word_positions};
use super::{File, Tree};

/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file.
const FILE_LINES_MAX: usize = 1000;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.with_extension("rs").flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<String> {
    let mut offences = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        offences.push(format!(
            "{}: {lines} lines, more than {FILE_LINES_MAX}: split it by what its parts are about",
            file.path
        ));
    }
    let code = blanked(&file.text);
    for at in word_positions(&code, "fn") {
        let name = name_at(&code, at + "fn".len());
        // A function pointer type has no name, a declaration no block.
        let Some(block) = block_after(&code, at).filter(|_| !name.is_empty()) else { continue };
        let first = line_of(&code, at);
        let lines = line_of(&code, block.end - 1) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            offences.push(format!(
                "{}:{first}: `{name}` has {lines} lines, more than {FUNCTION_LINES_MAX}: take out \
                 a part that has a name of its own",
                file.path
            ));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_function_that_is_too_long() {
        let body = "    a();\n".repeat(69);
        let text =
            format!("fn short() {{\n{}}}\nfn long() {{\n{body}\n}}\n", "    a();\n".repeat(68));
        let offences = check(&Tree::of(&[("a.rs", &text)]));
        assert_eq!(offences.len(), 1);
        assert!(offences[0].starts_with("a.rs:71: `long` has 72 lines"), "{}", offences[0]);
    }

    #[test]
    fn tells_the_file_that_is_too_long() {
        let offences = check(&Tree::of(&[("a.rs", &"// a\n".repeat(1001))]));
        assert_eq!(offences.len(), 1);
    }
}
