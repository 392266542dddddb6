//! Patterns of KEYS and SCAN MATCH: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of them.
//!
//! Linear in pattern times text: a star only ever goes back to the last star before it (the greedy
//! algorithm), so no pattern takes exponential time. What an unfinished `[` or `\` means was asked
//! of redis-server 7.0.15.

/// Whether `text` matches `pattern` as a whole.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // Where to go on if what followed the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            star = Some((at + 1, position));
            at += 1;
            continue;
        }
        if position == text.len() {
            return pattern[at..].iter().all(|&byte| byte == b'*');
        }
        match (at < pattern.len()).then(|| single(&pattern[at..], text[position])) {
            Some((true, length)) => {
                at += length;
                position += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, position) = (after, from + 1);
            }
        }
    }
}

/// Whether the element that `pattern` begins with fits a byte, and the element's length.
fn single(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern[0] {
        b'?' => (true, 1),
        b'[' => class(pattern, byte),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte, 2),
        literal => (literal == byte, 1),
    }
}

fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match pattern.get(at) {
            None => return (found != negated, at),
            Some(b']') => return (found != negated, at + 1),
            Some(b'\\') if at + 1 < pattern.len() => {
                found |= pattern[at + 1] == byte;
                at += 2;
            }
            Some(&first) if pattern.len() > at + 2 && pattern[at + 1] == b'-' => {
                let last = pattern[at + 2];
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            Some(&only) => {
                found |= only == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_redis_matches_them() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("a**b", "ab", true),
            ("[", "a", false),
            ("[a", "a", true),
            ("[^", "a", true),
            (r"a\", "a", false),
            (r"a\", r"a\", true),
            ("[]", "a", false),
            (r"[\]]", "]", true),
        ] {
            let got = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(got, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_are_not_exponential() {
        let pattern = "a*".repeat(64) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(4096).as_bytes()));
    }
}
