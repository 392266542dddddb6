//! The client's side: parses replies of RESP2 and RESP3 into owned trees, for tools and tests.
//!
//! [`ReplyScanner`] finds the end of a reply in a growing buffer and looks at each byte once: it
//! needs no stack, only the number of replies that are still to come, because every aggregate
//! just adds its elements to it. [`Reply::parse`] then builds the tree.

use memchr::memchr;

use crate::parser::parse_integer;

/// Aggregates inside aggregates, at most; a deeper reply is refused instead of recursed into.
const DEPTH_MAX: usize = 128;

/// A reply, owned.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text` or `!`
    Error(Vec<u8>),
    /// `:1`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1` or `_`
    Null,
    /// `*-1`
    NullArray,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `,1.5`
    Double(f64),
    /// `#t`
    Bool(bool),
    /// `(123`
    BigNumber(Vec<u8>),
    /// `=`
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// What follows the format and a colon.
        text: Vec<u8>,
    },
}

/// The bytes are no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedReply {
    /// Where in the buffer it became clear.
    pub offset: usize,
}

impl std::fmt::Display for MalformedReply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "malformed reply at byte {}", self.offset)
    }
}

impl std::error::Error for MalformedReply {}

impl Reply {
    /// Parses the reply at the start of `input`; returns it and its length, or `None` if it is not
    /// complete. For a buffer that grows slowly, ask a [`ReplyScanner`] first.
    ///
    /// # Errors
    /// If the bytes are no reply, or nested too deeply.
    pub fn parse(input: &[u8]) -> Result<Option<(Reply, usize)>, MalformedReply> {
        if ReplyScanner::new().scan(input)?.is_none() {
            return Ok(None);
        }
        let mut reader = Reader { input, position: 0 };
        let reply = reader.reply(0)?;
        Ok(Some((reply, reader.position)))
    }
}

/// Finds the end of a reply in a buffer that grows.
pub struct ReplyScanner {
    /// Bytes of the buffer that were understood.
    position: usize,
    /// Bytes from `position` on in which there is no line end.
    searched: usize,
    /// Replies that are still to come.
    missing: u64,
}

impl Default for ReplyScanner {
    fn default() -> ReplyScanner {
        ReplyScanner::new()
    }
}

impl ReplyScanner {
    /// A scanner at the start of a reply.
    pub const fn new() -> ReplyScanner {
        ReplyScanner { position: 0, searched: 0, missing: 1 }
    }

    /// Looks at the new bytes of `input`, which must begin where the reply begins. Returns the
    /// reply's length once it is complete; the scanner is then ready for the next one.
    ///
    /// # Errors
    /// If the bytes are no reply.
    pub fn scan(&mut self, input: &[u8]) -> Result<Option<usize>, MalformedReply> {
        while self.missing > 0 {
            let start = self.position + self.searched;
            let Some(found) = input.get(start..).and_then(|rest| memchr(b'\n', rest)) else {
                self.searched = input.len().saturating_sub(self.position);
                return Ok(None);
            };
            let malformed = MalformedReply { offset: self.position };
            let next = start + found + 1;
            let line = Line::read(&input[self.position..next]).ok_or(malformed)?;
            if input.len() < next + line.body_bytes() {
                self.searched = next - 1 - self.position;
                return Ok(None);
            }
            self.position = next + line.body_bytes();
            self.searched = 0;
            let missing = self.missing.checked_add(line.elements()).ok_or(malformed)?;
            self.missing = missing - 1;
        }
        let len = self.position;
        *self = ReplyScanner::new();
        Ok(Some(len))
    }
}

/// A reply's first line.
struct Line<'a> {
    marker: u8,
    text: &'a [u8],
    /// The count or length in `text`; `None` is null, or a kind of line that has none.
    number: Option<u64>,
}

impl<'a> Line<'a> {
    /// `bytes` ends with the first line feed.
    fn read(bytes: &'a [u8]) -> Option<Line<'a>> {
        let [marker, text @ .., b'\r', b'\n'] = bytes else { return None };
        let number = match marker {
            b'$' | b'*' if text == b"-1" => None,
            b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                let number = u64::try_from(parse_integer(text)?).ok()?;
                // Far above any reply, and far from overflow.
                (number < 1 << 48).then_some(Some(number))?
            }
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => None,
            _ => return None,
        };
        Some(Line { marker: *marker, text, number })
    }

    /// Bytes that follow the line, their end included.
    fn body_bytes(&self) -> usize {
        match (self.marker, self.number) {
            (b'$' | b'!' | b'=', Some(len)) => len as usize + 2,
            _ => 0,
        }
    }

    /// Replies that follow the line.
    fn elements(&self) -> u64 {
        match (self.marker, self.number) {
            (b'*' | b'~' | b'>', Some(count)) => count,
            (b'%', Some(count)) => count * 2,
            // Attributes stand before the reply that they describe, and are none themselves.
            (b'|', Some(count)) => count * 2 + 1,
            _ => 0,
        }
    }
}

/// Builds the tree of a reply that is known to be complete.
struct Reader<'a> {
    input: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, MalformedReply> {
        let malformed = MalformedReply { offset: self.position };
        let rest = self.input.get(self.position..).unwrap_or(&[]);
        let end = memchr(b'\n', rest).ok_or(malformed)?;
        let line = Line::read(&rest[..=end]).ok_or(malformed)?;
        let (body, len) = (end + 1, line.body_bytes());
        let body = rest.get(body..body + len.saturating_sub(2)).ok_or(malformed)?;
        self.position += end + 1 + len;
        if line.elements() > 0 && depth == DEPTH_MAX {
            return Err(malformed);
        }
        let count = line.number.unwrap_or(0);
        let text = line.text;
        Ok(match line.marker {
            b'+' => Reply::Simple(text.to_vec()),
            b'-' => Reply::Error(text.to_vec()),
            b':' => Reply::Int(parse_integer(text).ok_or(malformed)?),
            b',' => Reply::Double(parse_double(text).ok_or(malformed)?),
            b'#' => Reply::Bool(match text {
                b"t" => true,
                b"f" => false,
                _ => return Err(malformed),
            }),
            b'(' => Reply::BigNumber(text.to_vec()),
            b'_' => Reply::Null,
            b'$' if line.number.is_none() => Reply::Null,
            b'*' if line.number.is_none() => Reply::NullArray,
            b'$' => Reply::Bulk(body.to_vec()),
            b'!' => Reply::Error(body.to_vec()),
            b'=' => match body {
                [a, b, c, b':', text @ ..] => {
                    Reply::Verbatim { format: [*a, *b, *c], text: text.to_vec() }
                }
                _ => return Err(malformed),
            },
            b'*' => Reply::Array(self.replies(count, depth + 1)?),
            b'~' => Reply::Set(self.replies(count, depth + 1)?),
            b'>' => Reply::Push(self.replies(count, depth + 1)?),
            b'%' => Reply::Map(self.pairs(count, depth + 1)?),
            _ => {
                self.pairs(count, depth + 1)?;
                self.reply(depth + 1)?
            }
        })
    }

    fn replies(&mut self, count: u64, depth: usize) -> Result<Vec<Reply>, MalformedReply> {
        (0..count).map(|_| self.reply(depth)).collect()
    }

    fn pairs(&mut self, count: u64, depth: usize) -> Result<Vec<(Reply, Reply)>, MalformedReply> {
        (0..count).map(|_| Ok((self.reply(depth)?, self.reply(depth)?))).collect()
    }
}

fn parse_double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the whole, and every prefix as incomplete, and scans byte by byte.
    fn check(input: &[u8], expected: &str) {
        let result = Reply::parse(input);
        match &result {
            Ok(Some((reply, len))) => {
                assert_eq!(*len, input.len());
                assert_eq!(format!("{reply:?}"), expected);
            }
            other => assert_eq!(format!("{other:?}"), expected),
        }
        if result.is_ok() {
            let mut scanner = ReplyScanner::new();
            for len in 0..input.len() {
                assert_eq!(Reply::parse(&input[..len]), Ok(None), "prefix of {len}");
                assert_eq!(scanner.scan(&input[..len]), Ok(None), "scan of {len}");
            }
            assert_eq!(scanner.scan(input), Ok(Some(input.len())));
        }
    }

    #[test]
    fn replies_of_every_kind() {
        check(b"+OK\r\n", "Simple([79, 75])");
        check(b"-E\r\n", "Error([69])");
        check(b":-12\r\n", "Int(-12)");
        check(b"$0\r\n\r\n", "Bulk([])");
        check(b"$3\r\n\r\n1\r\n", "Bulk([13, 10, 49])");
        check(b"$-1\r\n", "Null");
        check(b"_\r\n", "Null");
        check(b"*-1\r\n", "NullArray");
        check(b"*0\r\n", "Array([])");
        check(b"*2\r\n*1\r\n:1\r\n:2\r\n", "Array([Array([Int(1)]), Int(2)])");
        check(b"%1\r\n:1\r\n*1\r\n:2\r\n", "Map([(Int(1), Array([Int(2)]))])");
        check(b"~1\r\n#t\r\n", "Set([Bool(true)])");
        check(b">1\r\n#f\r\n", "Push([Bool(false)])");
        check(b",1.5\r\n", "Double(1.5)");
        check(b",-inf\r\n", "Double(-inf)");
        check(b"(12\r\n", "BigNumber([49, 50])");
        check(b"=5\r\ntxt:a\r\n", "Verbatim { format: [116, 120, 116], text: [97] }");
        check(b"!1\r\nE\r\n", "Error([69])");
        check(b"|1\r\n:1\r\n:2\r\n:3\r\n", "Int(3)");
    }

    #[test]
    fn what_is_no_reply() {
        check(b"hello\r\n", "Err(MalformedReply { offset: 0 })");
        check(b"*1\r\n:x\r\n", "Err(MalformedReply { offset: 4 })");
        check(b"$-2\r\n", "Err(MalformedReply { offset: 0 })");
        check(b":1\n", "Err(MalformedReply { offset: 0 })");
        check(b"=1\r\na\r\n", "Err(MalformedReply { offset: 0 })");
        let deep = [b"*1\r\n".repeat(200), b":1\r\n".to_vec()].concat();
        check(&deep, "Err(MalformedReply { offset: 512 })");
    }
}
