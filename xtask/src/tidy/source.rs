//! Rust source with everything that is not code blanked out, so that rules can search for words
//! without a parser: comments and the contents of literals become spaces, line ends stay.

use std::ops::Range;

/// The source with comments and the contents of string and character literals as spaces. Every
/// byte keeps its place.
pub(super) fn blanked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment_end(&bytes, at);
        for byte in &mut bytes[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Whole literals and comments were replaced, and they begin and end at ASCII bytes.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the literal or comment that begins at `at` ends; `at` itself when none begins there.
fn literal_or_comment_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let in_word = at > 0 && is_word(bytes[at - 1]);
    if rest.starts_with(b"//") {
        return find(bytes, at, b"\n").unwrap_or(bytes.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return quoted_end(bytes, at + 1);
    }
    if rest[0] == b'\'' {
        return character_end(bytes, at);
    }
    if !in_word && matches!(rest[0], b'r' | b'b' | b'c') {
        return prefixed_end(bytes, at);
    }
    at
}

/// The end of `r"..."`, `r#"..."#`, `b"..."`, `br"..."`, `b'x'`; `at` when it is a plain word.
fn prefixed_end(bytes: &[u8], at: usize) -> usize {
    let letters = bytes[at..].iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    let raw = bytes[at..at + letters].contains(&b'r');
    let mut quote = at + letters;
    let hashes = bytes[quote..].iter().take_while(|byte| **byte == b'#').count();
    quote += hashes;
    match bytes.get(quote) {
        Some(b'"') if raw => {
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            find(bytes, quote + 1, &close).map_or(bytes.len(), |end| end + close.len())
        }
        Some(b'"') if hashes == 0 => quoted_end(bytes, quote + 1),
        Some(b'\'') if hashes == 0 && letters == 1 => character_end(bytes, quote),
        _ => at,
    }
}

fn quoted_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal; `at` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> usize {
    /// Bytes of the longest literal, `'\u{10ffff}'`.
    const LONGEST: usize = 12;
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = find(bytes, at + 3, b"'");
        return close.map_or(at, |end| end + 1);
    }
    let limit = bytes.len().min(at + LONGEST);
    let close = bytes[at + 1..limit].iter().position(|byte| *byte == b'\'');
    let one_character = close.is_some_and(|length| {
        std::str::from_utf8(&bytes[at + 1..at + 1 + length])
            .is_ok_and(|text| text.chars().count() == 1)
    });
    if one_character { at + 2 + close.unwrap_or(0) } else { at }
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

/// True for a byte that can be part of a name.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `word` stands in blanked source as a whole word.
pub(super) fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let bytes = code.as_bytes();
        let before = at.checked_sub(1).is_none_or(|before| !is_word(bytes[before]));
        before && bytes.get(at + word.len()).is_none_or(|after| !is_word(*after))
    })
}

/// The name that begins at `at`, after blanks; empty when there is none.
pub(super) fn name_at(code: &str, at: usize) -> &str {
    let rest = code[at..].trim_start();
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    &rest[..end]
}

/// The block in braces that follows `at`, from `{` to behind `}`; nothing when a `;` comes first.
pub(super) fn block_after(code: &str, at: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let (mut round, mut start) = (0_i32, None);
    for (offset, byte) in bytes[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b';' if round == 0 => return None,
            b'{' if round == 0 => {
                start = Some(at + offset);
                break;
            }
            _ => {}
        }
    }
    let start = start?;
    let mut depth = 0_i32;
    for (offset, byte) in bytes[start..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(start..start + offset + 1);
        }
    }
    Some(start..bytes.len())
}

/// The number of the line that byte `at` is on, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_literals_but_no_code() {
        let text = r##"let a = "x { \" }"; // {
/* { /* } */ } */ let b = '{'; let c: &'static str = r#"{"#; let d = b'\''; let r = '\u{7b}'; e"##;
        let code = blanked(text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains('{') && !code.contains('}'), "{code}");
        for kept in ["let a =", "let b =", "&'static str =", "let d =", "let r =", "; e"] {
            assert!(code.contains(kept), "{kept} is gone from {code}");
        }
    }

    #[test]
    fn finds_whole_words_and_blocks() {
        let code = "fn f() -> [u8; { 1 }] { a { b } } fnord fn g();";
        let positions: Vec<usize> = word_positions(code, "fn").collect();
        assert_eq!(positions, [0, code.rfind("fn g").unwrap_or(0)]);
        assert_eq!(block_after(code, 0).map(|block| &code[block]), Some("{ a { b } }"));
        assert_eq!(block_after(code, positions[1]), None);
        assert_eq!(name_at(code, positions[1] + 2), "g");
    }
}
