//! A reply as a tree that keeps the wire's type bytes, and the text in which transcripts and
//! failures show it:
//!
//! ```text
//! +OK   -ERR text   :1   "bulk\x00"   $-1   *-1   *["a", :1]   ~["a"]   %{"a": :1}   ,1.5   #t   _
//! ```

use std::fmt::{self, Display, Formatter, Write};

/// One reply. Two replies are equal exactly when their bytes on the wire are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A reply of one line: its type byte and the rest of the line.
    Line(u8, Vec<u8>),
    /// A string with a length in front: its type byte and its bytes.
    Bulk(u8, Vec<u8>),
    /// RESP2's missing string or array: the type byte before the `-1`.
    Missing(u8),
    /// Replies inside a reply: the type byte and the elements; a map has keys and values in turn.
    Many(u8, Vec<Reply>),
}

impl Reply {
    /// True for an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Line(b'-', _) | Reply::Bulk(b'!', _))
    }

    /// True when the server says that it has no such command or subcommand.
    pub fn is_unknown_command(&self) -> bool {
        let Reply::Line(b'-', text) = self else { return false };
        text.starts_with(b"ERR unknown command") || text.starts_with(b"ERR unknown subcommand")
    }

    /// True for exactly `+text`.
    pub fn is_status(&self, text: &str) -> bool {
        matches!(self, Reply::Line(b'+', line) if line == text.as_bytes())
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Line(b':', text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The elements of an array, set, map or push.
    pub fn elements(&self) -> Option<&[Reply]> {
        match self {
            Reply::Many(_, elements) => Some(elements),
            _ => None,
        }
    }

    /// The bytes of a string or status, for a caller that expects one.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Line(b'+', bytes) | Reply::Bulk(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a string or status; empty for anything else.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes().unwrap_or_default()).into_owned()
    }
}

/// Longest string shown in a failure, in bytes; the rest is told as a length.
const SHOWN_BYTES_MAX: usize = 400;
/// Elements of an array shown in a failure.
const SHOWN_ELEMENTS_MAX: usize = 60;

impl Display for Reply {
    /// The transcript text; `{:#}` shortens long strings and arrays, for messages.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Line(kind, text) => {
                write!(formatter, "{}{}", *kind as char, String::from_utf8_lossy(text))
            }
            Reply::Bulk(kind, bytes) => {
                if *kind != b'$' {
                    formatter.write_char(*kind as char)?;
                }
                if formatter.alternate() && bytes.len() > SHOWN_BYTES_MAX {
                    write!(formatter, "{}...({} bytes)", quote(&bytes[..60]), bytes.len())
                } else {
                    formatter.write_str(&quote(bytes))
                }
            }
            Reply::Missing(kind) => write!(formatter, "{}-1", *kind as char),
            Reply::Many(kind, elements) => fmt_many(formatter, *kind, elements),
        }
    }
}

fn fmt_many(formatter: &mut Formatter<'_>, kind: u8, elements: &[Reply]) -> fmt::Result {
    let map = kind == b'%';
    write!(formatter, "{}{}", kind as char, if map { '{' } else { '[' })?;
    for (index, element) in elements.iter().enumerate() {
        if formatter.alternate() && index == SHOWN_ELEMENTS_MAX {
            write!(formatter, ", ...({} elements)", elements.len())?;
            break;
        }
        if index > 0 {
            formatter.write_str(if map && index % 2 == 1 { ": " } else { ", " })?;
        }
        if formatter.alternate() {
            write!(formatter, "{element:#}")?;
        } else {
            write!(formatter, "{element}")?;
        }
    }
    formatter.write_char(if map { '}' } else { ']' })
}

/// The bytes in double quotes, with everything that is not printable ASCII escaped.
pub fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_every_kind() {
        let reply = Reply::Many(
            b'%',
            vec![
                Reply::Bulk(b'$', b"a\x00\"".to_vec()),
                Reply::Many(b'*', vec![Reply::Line(b':', b"1".to_vec()), Reply::Missing(b'$')]),
            ],
        );
        assert_eq!(reply.to_string(), r#"%{"a\x00\"": *[:1, $-1]}"#);
    }
}
