//! Inline commands: a line of words, as a person types them into telnet.
//!
//! A word ends at a blank. A part of it in double quotes may contain blanks and the escapes
//! `\n \r \t \b \a \xHH` (any other escaped byte stands for itself); a part in single quotes only
//! knows `\'`. A closing quote ends the word and must be followed by a blank or the line's end.

use crate::error::ProtocolError;

/// Splits a line into words and calls `each` with every one; `word` is a buffer to use. O(line).
pub(crate) fn split(
    line: &[u8],
    word: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        word.clear();
        rest = read_word(rest, word).ok_or(ProtocolError::UnbalancedQuotes)?;
        each(word);
    }
}

/// Reads one word into `word` and returns what follows; `None` if its quotes are not balanced.
fn read_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            // Not all spaces that may precede a word end one: vertical tab and form feed do not.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Some(rest),
            [b'"', tail @ ..] => return read_double_quoted(tail, word),
            [b'\'', tail @ ..] => return read_single_quoted(tail, word),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn read_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'"', tail @ ..] => return after_quote(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_value(*high) << 4 | hex_value(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.push(byte);
        rest = tail;
    }
}

fn read_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'\'', tail @ ..] => return after_quote(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.push(byte);
        rest = tail;
    }
}

fn after_quote(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_space(byte)).then_some(rest)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C)
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of an ASCII hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
