//! Strings. Invariants: a value is stored as an integer exactly when its text round-trips; a value
//! over [`INLINE_BYTES_MAX`] bytes is a [`BigString`], a shorter one lies in its entry.

use std::ops::Range;

use resp::Args;
use structures::big_string::BigString;
use structures::object::Object;
use structures::table::{NewValue, Value};

use crate::errors::{self, Result};
use crate::lanes::Discard;
use crate::output::{Reply, Stream};
use crate::parse::canonical_integer;

/// The longest value that lies in its entry: what a hold may allocate and copy at once.
pub const INLINE_BYTES_MAX: usize = 8 * 1024;

/// Bytes of a long argument that become part of a big string in one step.
pub const STEP_BYTES: usize = 64 * 1024;

/// A short text as it is stored.
#[inline]
pub fn stored(text: &[u8]) -> NewValue<'_, Object> {
    // Longer texts are no 64-bit integers.
    if text.len() <= 20
        && let Some(int) = canonical_integer(text)
    {
        return NewValue::Int(int);
    }
    NewValue::Bytes(text)
}

/// Writes a string's value.
///
/// # Errors
/// The value is not a string.
#[inline]
pub fn write(value: &Value<'_, Object>, reply: &mut Reply<'_>) -> Result<()> {
    match value {
        Value::Bytes(bytes) => reply.writer().bulk(bytes),
        Value::Int(int) => reply.writer().bulk_int(*int),
        Value::Object(object) => match &**object {
            Object::BigString(string) => reply.stream(Box::new(StringStream::new(string.clone()))),
            _ => return Err(errors::WRONG_TYPE),
        },
    }
    Ok(())
}

/// The length of a string's value in bytes.
///
/// # Errors
/// The value is not a string.
pub fn length(value: &Value<'_, Object>) -> Result<u64> {
    match value {
        Value::Bytes(bytes) => Ok(bytes.len() as u64),
        Value::Int(int) => Ok(itoa::Buffer::new().format(*int).len() as u64),
        Value::Object(object) => match &**object {
            Object::BigString(string) => Ok(string.len()),
            _ => Err(errors::WRONG_TYPE),
        },
    }
}

/// The bytes of an argument from `offset` on that lie together: never more than a chunk of it.
pub fn piece(args: Args<'_>, index: usize, offset: usize) -> &[u8] {
    match args.chunked(index) {
        Some(chunked) => &chunked.chunk(offset / resp::CHUNK_BYTES)[offset % resp::CHUNK_BYTES..],
        None => {
            let rest = &args.get(index)[offset..];
            &rest[..rest.len().min(resp::CHUNK_BYTES)]
        }
    }
}

/// Makes a big string of an argument, in bounded steps.
#[derive(Default)]
pub struct Builder {
    string: BigString,
    offset: usize,
}

impl Builder {
    /// Adds up to [`STEP_BYTES`]. Returns the string when it is complete; the builder is then as
    /// new.
    pub fn step(&mut self, args: Args<'_>, index: usize) -> Option<BigString> {
        let upto = args.arg_len(index).min(self.offset + STEP_BYTES);
        while self.offset < upto {
            let piece = piece(args, index, self.offset);
            self.string.append(piece);
            self.offset += piece.len();
        }
        if self.offset < args.arg_len(index) {
            return None;
        }
        self.offset = 0;
        Some(std::mem::take(&mut self.string))
    }
}

/// A bulk string that is sent from a snapshot.
pub struct StringStream {
    string: BigString,
    begun: bool,
    /// What is still to be sent.
    range: Range<u64>,
    pinned: u64,
}

impl StringStream {
    /// The whole value.
    pub fn new(string: BigString) -> StringStream {
        let all = 0..string.len();
        StringStream::part(string, all)
    }

    /// The bytes in `range`, of which there are as many.
    pub fn part(string: BigString, range: Range<u64>) -> StringStream {
        // Charged with its share of the value: the rest is not what the client asked for.
        let share = u128::from(string.bytes()) * u128::from(range.end - range.start);
        let pinned = (share / u128::from(string.len().max(1))) as u64;
        StringStream { string, begun: false, range, pinned }
    }
}

impl Stream for StringStream {
    fn encode(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let StringStream { string, range, .. } = self;
        if !std::mem::replace(&mut self.begun, true) {
            let len = range.end - range.start;
            resp::Writer::new(out, resp::Protocol::Resp2).bulk_header(len);
        }
        let upto = range.end.min(range.start + bytes as u64);
        while range.start < upto {
            let chunk = string.chunk_at(range.start);
            let taken = (chunk.len() as u64).min(range.end - range.start);
            out.extend_from_slice(&chunk[..taken as usize]);
            range.start += taken;
        }
        let done = range.is_empty();
        if done {
            out.extend_from_slice(b"\r\n");
        }
        done
    }

    fn pinned_bytes(&self) -> u64 {
        self.pinned
    }
}

impl Discard for StringStream {
    fn discard_step(&mut self, nodes: usize) -> bool {
        self.string.drop_step(nodes)
    }
}
