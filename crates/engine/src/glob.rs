//! Patterns of KEYS and SCAN MATCH: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of them.
//!
//! Linear in pattern times text: a star only ever goes back to the last star before it (the greedy
//! algorithm), so no pattern takes exponential time. Even so a long pattern and a long text take
//! long: a [`Matcher`] stops after a number of bytes and goes on later. What an unfinished `[` or
//! `\` means was asked of redis-server 7.0.15.

use structures::work;

/// Bytes of pattern that are compared for one unit of work.
const BYTES_PER_UNIT: usize = 8;

/// Whether `text` matches `pattern` as a whole. For short ones only.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut budget = usize::MAX;
    Matcher::default().advance(pattern, text, &mut budget).unwrap_or(false)
}

/// A comparison that may be interrupted.
#[derive(Default)]
pub struct Matcher {
    /// Places in the pattern and in the text.
    at: usize,
    position: usize,
    /// Where to go on if what followed the last star does not fit.
    star: Option<(usize, usize)>,
}

impl Matcher {
    /// Whether `text` matches `pattern` as a whole; `None` when the budget is used up, in bytes of
    /// the pattern, and that is not known yet. Both must then be the same in the next call.
    pub fn advance(&mut self, pattern: &[u8], text: &[u8], budget: &mut usize) -> Option<bool> {
        let mut compared = 0;
        let found = loop {
            if compared > *budget {
                break None;
            }
            let rest = &pattern[self.at..];
            if rest.first() == Some(&b'*') {
                self.at += 1;
                compared += 1;
                self.star = Some((self.at, self.position));
                continue;
            }
            if self.position == text.len() {
                // A star ends the search above, so what is left does not match nothing.
                break Some(rest.is_empty());
            }
            let (fits, length) =
                if rest.is_empty() { (false, 1) } else { single(rest, text[self.position]) };
            compared += length;
            if fits {
                self.at += length;
                self.position += 1;
                continue;
            }
            let Some((after, from)) = self.star else { break Some(false) };
            if after == pattern.len() {
                // Nothing follows the last star: it takes all.
                break Some(true);
            }
            self.star = Some((after, from + 1));
            (self.at, self.position) = (after, from + 1);
        };
        work::add((compared / BYTES_PER_UNIT) as u64);
        *budget = budget.saturating_sub(compared);
        found
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
    use super::{Matcher, matches};

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

    #[test]
    fn an_interrupted_comparison_goes_on() {
        let patterns = ["a*aab*", "*a[^b]?b", "a*aaab", "*", "", r"*\*b", "a*a*a*a*c", "b*"];
        for (pattern, text) in patterns.iter().flat_map(|one| [(one, "aabaaabaab"), (one, "")]) {
            for bytes in [0, 1, 3] {
                let (mut matcher, mut calls) = (Matcher::default(), 1);
                let found = loop {
                    let mut budget = bytes;
                    match matcher.advance(pattern.as_bytes(), text.as_bytes(), &mut budget) {
                        Some(found) => break found,
                        None => calls += 1,
                    }
                    assert!(calls < 1000, "{pattern} does not end");
                };
                assert_eq!(found, matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
        }
    }
}
