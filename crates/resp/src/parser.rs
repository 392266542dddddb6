//! Hot path. The request parser: incremental, and of bounded work per call.
//!
//! A small request is read in place: its arguments are ranges of the read buffer, kept in the
//! worker's [`Scratch`]; nothing is copied or allocated. While such a request is incomplete it
//! stays in the read buffer and is read again from its start when more has arrived; `needed` makes
//! that O(1) as long as a known length is missing, and requests that have grown are not read
//! again but moved:
//!
//! ```text
//!                   more than 1024 arguments, a bulk over 16 KiB,
//!                   or incomplete after 64 arguments or 32 KiB
//!       in place ----------------------------------------------------> large
//!          |                                                             |
//!          v  complete                                                   v  complete
//!       Request: ranges in the scratch                   LargeRequest: an owned `Request`
//! ```
//!
//! A large request is consumed argument by argument, a bulk over 16 KiB chunk by chunk, into
//! storage that only grows by what has arrived: an announced length reserves nothing. So each byte
//! is looked at a bounded number of times, and [`INPUT_BYTES_MAX`] of read buffer always suffice.
//!
//! What is accepted and refused follows Redis: the two bytes behind a bulk are skipped unseen, only
//! the `\r` of a line's end is looked at, a NUL before it hides it, numbers are canonical decimals,
//! requests of no arguments are ignored.

use memchr::memchr2;

use crate::args::{IN_PLACE_ARGS_MAX, Range, Scratch};
use crate::chunked::Chunked;
use crate::error::ProtocolError;
use crate::inline;
use crate::request::{CONTIGUOUS_BYTES_MAX, Large, Request};

/// Longest inline command, and longest line of a count or length, without its end.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// With so many bytes of unconsumed input [`Parser::parse`] never answers [`Progress::NeedInput`]
/// without consuming some: what a read buffer must be able to hold.
pub const INPUT_BYTES_MAX: usize = LINE_BYTES_MAX + 1;
/// Most arguments of a request.
const ARGS_MAX: i64 = i32::MAX as i64;
/// Most arguments, and bytes of one, before authentication.
const UNAUTHENTICATED_ARGS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16384;
/// An incomplete request of more arguments or bytes is not read again from its start but moved.
const READ_AGAIN_ARGS_MAX: usize = 64;
const READ_AGAIN_BYTES_MAX: usize = 32 * 1024;
/// A line of a length that is longer than any number: it is waited for as a part of a moved
/// request, so that it alone may fill the read buffer.
const LENGTH_LINE_BYTES_MAX: usize = 64;
/// Inline commands up to this length are split into the worker's scratch.
const SCRATCH_LINE_BYTES_MAX: usize = 4 * 1024;
/// The bytes behind a line or a bulk.
const LINE_END_BYTES: usize = 2;

const _: () = assert!(
    READ_AGAIN_BYTES_MAX + LENGTH_LINE_BYTES_MAX + CONTIGUOUS_BYTES_MAX + LINE_END_BYTES
        < INPUT_BYTES_MAX,
    "an incomplete request in place fits the read buffer"
);

/// What a client is allowed to send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `proto-max-bulk-len`: bytes of one argument.
    pub bulk_bytes_max: u64,
    /// Whether the client must still authenticate: then only small requests are accepted.
    pub unauthenticated: bool,
}

/// What a call of [`Parser::parse`] came to.
#[derive(Debug)]
pub enum Progress {
    /// A whole request lies in the input: [`Scratch::args`].
    Request,
    /// A whole request that was too large for the input.
    LargeRequest(Request),
    /// The input ends before the request does: call again with more.
    NeedInput,
    /// The budget is used up: call again with what was not consumed, even if that is nothing.
    Again,
    /// The client broke the protocol: reply with the error, close, parse no more.
    Error(ProtocolError),
}

/// The state of one connection's requests: two words, and no heap while no large request is
/// arriving.
#[derive(Default)]
pub struct Parser {
    /// The large request that is arriving.
    arriving: Option<Box<Arriving>>,
    /// With fewer bytes of input the next call can't get further.
    needed: usize,
}

/// A large request of which a part has arrived.
struct Arriving {
    /// The complete arguments.
    large: Box<Large>,
    /// Arguments that are still to come, the one in `bulk` included.
    missing: u64,
    /// An argument that is received in chunks, and how many of its bytes are still to come.
    bulk: Option<(Chunked, usize)>,
}

impl Parser {
    /// A parser before its first byte.
    pub const fn new() -> Parser {
        Parser { arriving: None, needed: 0 }
    }

    /// Looks for the next request in `input`: all unconsumed bytes of the connection. Returns how
    /// many bytes to consume: on [`Progress::Request`] only after its arguments were used.
    ///
    /// `budget` bounds the arguments that one call moves (and the empty requests it skips), at
    /// least 1; the bytes moved are bounded by the input. A request that is read in place has at
    /// most 1024 arguments, whatever the budget.
    #[inline]
    pub fn parse(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        limits: &Limits,
        budget: usize,
    ) -> (usize, Progress) {
        if input.len() < self.needed {
            return (0, Progress::NeedInput);
        }
        self.needed = 0;
        // Ranges are 32-bit; no read buffer is that large.
        let input = &input[..input.len().min(u32::MAX as usize)];
        if self.arriving.is_some() {
            return self.resume(input, 0, limits, budget);
        }
        let mut position = 0;
        let mut budget = budget.max(1);
        while budget > 0 {
            let step = match input.get(position) {
                None => InPlace::NeedInput(0),
                Some(b'*') => read_in_place(input, position, scratch, limits),
                Some(_) => read_inline(input, position, scratch),
            };
            match step {
                InPlace::Request(next) => return (next, Progress::Request),
                InPlace::Ignored(next) => position = next,
                InPlace::NeedInput(needed) => {
                    self.needed = needed.saturating_sub(position);
                    return (position, Progress::NeedInput);
                }
                InPlace::Error(error) => return (position, Progress::Error(error)),
                InPlace::Large(next, request) => {
                    return (next, Progress::LargeRequest(Request::from_large(request)));
                }
                InPlace::Move(next, missing) => {
                    self.arriving = Some(Arriving::new(input, scratch, missing));
                    return self.resume(input, next, limits, budget);
                }
            }
            budget -= 1;
        }
        (position, Progress::Again)
    }

    /// After [`Progress::NeedInput`]: with fewer unconsumed bytes than this, calling again is
    /// useless. A hint for the size of reads; 0 if nothing is known.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Whether a request has arrived in part, beyond what lies in the input.
    pub fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Bytes held for the request that is arriving, the input not included.
    pub fn memory_bytes(&self) -> usize {
        self.arriving.as_ref().map_or(0, |arriving| {
            arriving.large.memory_bytes() + arriving.bulk.as_ref().map_or(0, |bulk| bulk.0.len())
        })
    }

    /// Gives up the request that is arriving, so that a closing connection frees it in steps
    /// ([`Request::drop_step`]).
    pub fn abandon(&mut self) -> Option<Request> {
        let Arriving { mut large, bulk, .. } = *self.arriving.take()?;
        self.needed = 0;
        if let Some((chunked, _)) = bulk {
            large.push_chunked(chunked);
        }
        Some(Request::from_large(large))
    }

    /// Goes on with the large request that is arriving, from `position` of the input on.
    fn resume(
        &mut self,
        input: &[u8],
        mut position: usize,
        limits: &Limits,
        budget: usize,
    ) -> (usize, Progress) {
        let mut budget = budget.max(1);
        while let Some(arriving) = &mut self.arriving {
            if arriving.missing == 0 {
                break;
            }
            if budget == 0 {
                return (position, Progress::Again);
            }
            budget -= 1;
            match arriving.step(input, position, limits) {
                Step::Consumed(next) => position = next,
                Step::NeedInput { consumed, needed } => {
                    self.needed = needed - consumed;
                    return (consumed, Progress::NeedInput);
                }
                Step::Error(error) => return (position, Progress::Error(error)),
            }
        }
        match self.abandon() {
            Some(request) => (position, Progress::LargeRequest(request)),
            None => (position, Progress::Again),
        }
    }
}

/// What reading at a request's start came to. Positions and lengths count from the input's start.
enum InPlace {
    /// A whole request, up to this position.
    Request(usize),
    /// A request without arguments, up to this position.
    Ignored(usize),
    /// The input must have this length.
    NeedInput(usize),
    Error(ProtocolError),
    /// A whole request in owned form, up to this position.
    Large(usize, Box<Large>),
    /// The arguments in the scratch end at this position and must be moved; so many are missing.
    Move(usize, u64),
}

/// Reads a request that begins with `*` at `start`.
#[inline]
fn read_in_place(input: &[u8], start: usize, scratch: &mut Scratch, limits: &Limits) -> InPlace {
    let (count, mut position) = match read_number(input, start) {
        Number::Value(count, next) => (count, next),
        Number::Incomplete => return InPlace::NeedInput(input.len() + 1),
        Number::Invalid => return InPlace::Error(ProtocolError::InvalidMultibulkLength),
        Number::TooLong => return InPlace::Error(ProtocolError::TooBigMultibulkCount),
    };
    scratch.clear();
    if count > ARGS_MAX {
        return InPlace::Error(ProtocolError::InvalidMultibulkLength);
    }
    if limits.unauthenticated && count > UNAUTHENTICATED_ARGS_MAX {
        return InPlace::Error(ProtocolError::UnauthenticatedMultibulkLength);
    }
    if count <= 0 {
        return InPlace::Ignored(position);
    }
    if count > IN_PLACE_ARGS_MAX as i64 {
        return InPlace::Move(position, count as u64);
    }
    for index in 0..count as usize {
        let length = read_length(input, position, limits);
        let needed = match length {
            Length::Bytes(len, _) if len > CONTIGUOUS_BYTES_MAX => {
                return InPlace::Move(position, count as u64 - index as u64);
            }
            Length::Bytes(len, first) if input.len() - first >= len + LINE_END_BYTES => {
                scratch.ranges.push(Range { start: first as u32, len: len as u32 });
                position = first + len + LINE_END_BYTES;
                continue;
            }
            Length::Bytes(len, first) => first + len + LINE_END_BYTES,
            Length::Incomplete => input.len() + 1,
            Length::Error(error) => return InPlace::Error(error),
        };
        let too_long_to_read_again = index > READ_AGAIN_ARGS_MAX
            || position - start > READ_AGAIN_BYTES_MAX
            || matches!(length, Length::Incomplete)
                && input.len() - position > LENGTH_LINE_BYTES_MAX;
        return if too_long_to_read_again {
            InPlace::Move(position, count as u64 - index as u64)
        } else {
            InPlace::NeedInput(needed)
        };
    }
    InPlace::Request(position)
}

/// Reads an inline command at `start`.
#[cold]
fn read_inline(input: &[u8], start: usize, scratch: &mut Scratch) -> InPlace {
    let window = &input[start..input.len().min(start + INPUT_BYTES_MAX)];
    let end = match memchr2(b'\n', 0, window) {
        Some(end) if window[end] == b'\n' => end,
        _ if window.len() > LINE_BYTES_MAX => {
            return InPlace::Error(ProtocolError::TooBigInline);
        }
        _ => return InPlace::NeedInput(input.len() + 1),
    };
    let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
    let next = start + end + 1;
    scratch.clear();
    if line.len() > SCRATCH_LINE_BYTES_MAX {
        let mut large = Box::new(Large::new());
        let result = inline::split(line, &mut Vec::new(), |word| large.push(word));
        return match result {
            Ok(()) if large.len() == 0 => InPlace::Ignored(next),
            Ok(()) => InPlace::Large(next, large),
            Err(error) => InPlace::Error(error),
        };
    }
    let Scratch { ranges, unquoted, is_inline } = scratch;
    *is_inline = true;
    unquoted.clear();
    let result = inline::split(line, &mut Vec::new(), |word| {
        ranges.push(Range { start: unquoted.len() as u32, len: word.len() as u32 });
        unquoted.extend_from_slice(word);
    });
    match result {
        Ok(()) if ranges.is_empty() => InPlace::Ignored(next),
        Ok(()) => InPlace::Request(next),
        Err(error) => InPlace::Error(error),
    }
}

/// What one step of a large request came to. Positions count from the input's start.
enum Step {
    /// An argument, or a part of it, up to this position.
    Consumed(usize),
    /// The input must have the length `needed`; what lies before `consumed` was taken.
    NeedInput {
        consumed: usize,
        needed: usize,
    },
    Error(ProtocolError),
}

impl Arriving {
    /// Moves the arguments in the scratch.
    #[cold]
    fn new(input: &[u8], scratch: &Scratch, missing: u64) -> Box<Arriving> {
        let mut large = Box::new(Large::new());
        scratch.args(input).iter().for_each(|arg| large.push(arg));
        Box::new(Arriving { large, missing, bulk: None })
    }

    /// Takes one argument, or what there is of a chunked one.
    fn step(&mut self, input: &[u8], position: usize, limits: &Limits) -> Step {
        if self.bulk.is_some() {
            return self.fill_bulk(input, position);
        }
        match read_length(input, position, limits) {
            Length::Bytes(len, first) if len > CONTIGUOUS_BYTES_MAX => {
                self.bulk = Some((Chunked::new(), len));
                self.fill_bulk(input, first)
            }
            Length::Bytes(len, first) => {
                let needed = first + len + LINE_END_BYTES;
                if input.len() < needed {
                    return Step::NeedInput { consumed: position, needed };
                }
                self.large.push(&input[first..first + len]);
                self.missing -= 1;
                Step::Consumed(needed)
            }
            Length::Incomplete => Step::NeedInput { consumed: position, needed: input.len() + 1 },
            Length::Error(error) => Step::Error(error),
        }
    }

    /// Takes what there is of the chunked argument.
    fn fill_bulk(&mut self, input: &[u8], position: usize) -> Step {
        let Some((chunked, left)) = &mut self.bulk else { return Step::Consumed(position) };
        let count = (*left).min(input.len() - position);
        let end = position + count;
        chunked.fill(&input[position..end]);
        *left -= count;
        if *left > 0 {
            return Step::NeedInput { consumed: end, needed: end + 1 };
        }
        if input.len() - end < LINE_END_BYTES {
            return Step::NeedInput { consumed: end, needed: end + LINE_END_BYTES };
        }
        if let Some((chunked, _)) = self.bulk.take() {
            self.large.push_chunked(chunked);
        }
        self.missing -= 1;
        Step::Consumed(end + LINE_END_BYTES)
    }
}

/// The length of an argument.
enum Length {
    /// Bytes of the argument, and the position of the first.
    Bytes(usize, usize),
    Incomplete,
    Error(ProtocolError),
}

/// Reads the line `$<length>` at `position`.
#[inline]
fn read_length(input: &[u8], position: usize, limits: &Limits) -> Length {
    let number = read_number(input, position);
    match number {
        Number::Incomplete => return Length::Incomplete,
        Number::TooLong => return Length::Error(ProtocolError::TooBigBulkCount),
        Number::Value(..) | Number::Invalid => {}
    }
    if input[position] != b'$' {
        return Length::Error(ProtocolError::ExpectedDollar(input[position]));
    }
    match number {
        Number::Value(len, first) if len >= 0 && len as u64 <= limits.bulk_bytes_max => {
            if limits.unauthenticated && len > UNAUTHENTICATED_BULK_BYTES_MAX {
                return Length::Error(ProtocolError::UnauthenticatedBulkLength);
            }
            Length::Bytes(len as usize, first)
        }
        _ => Length::Error(ProtocolError::InvalidBulkLength),
    }
}

/// A line that consists of a marker and a number.
enum Number {
    /// The number, and the position behind the line.
    Value(i64, usize),
    /// Whatever stands there, it is not a number.
    Invalid,
    /// The line has not ended yet.
    Incomplete,
    /// The line does not end within [`LINE_BYTES_MAX`].
    TooLong,
}

/// Reads the number behind the marker at `position` (which the caller checks).
#[inline]
fn read_number(input: &[u8], position: usize) -> Number {
    match input[position..] {
        [_, digit @ b'0'..=b'9', b'\r', _, ..] => {
            Number::Value(i64::from(digit - b'0'), position + 4)
        }
        [_, tens @ b'1'..=b'9', digit @ b'0'..=b'9', b'\r', _, ..] => {
            Number::Value(i64::from(tens - b'0') * 10 + i64::from(digit - b'0'), position + 5)
        }
        _ => read_number_of_any_length(input, position),
    }
}

#[inline(never)]
fn read_number_of_any_length(input: &[u8], position: usize) -> Number {
    let window = &input[position..input.len().min(position + INPUT_BYTES_MAX)];
    match memchr2(b'\r', 0, window) {
        Some(end) if window[end] == b'\r' => {
            if input.len() - position < end + LINE_END_BYTES {
                return Number::Incomplete;
            }
            let text = window.get(1..end).unwrap_or(&[]);
            match parse_integer(text) {
                Some(value) => Number::Value(value, position + end + LINE_END_BYTES),
                None => Number::Invalid,
            }
        }
        _ if window.len() > LINE_BYTES_MAX => Number::TooLong,
        _ => Number::Incomplete,
    }
}

/// Parses a canonical decimal: no sign but `-`, no leading zeros, no `-0`.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Towards the negative, because the least number has no positive counterpart.
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if is_negative { Some(value) } else { value.checked_neg() }
}
