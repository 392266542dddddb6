//! Hot path. A view of one request's arguments, wherever they lie.
//!
//! ```text
//! Ranges          bytes   ..*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n..  the read buffer, in place
//!                 ranges               ^^^         ^^^          { start u32, len u32 } in Scratch
//! Packed, Large   a `Request`, see `request.rs`
//! Slices          arguments that no client sent: scripts, tests
//! ```

use crate::chunked::Chunked;
use crate::request::{Large, Packed};

/// Arguments up to which a request is read in place; more are moved into a [`crate::Request`].
pub(crate) const IN_PLACE_ARGS_MAX: usize = 1024;

/// Where an argument lies in the read buffer.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// What the parser keeps of a request that lies in the read buffer, until the next call. One per
/// worker: a connection that waits for input needs none.
pub struct Scratch {
    /// One per argument: at most [`IN_PLACE_ARGS_MAX`], or twice as many in an inline command.
    pub(crate) ranges: Vec<Range>,
    /// The arguments of an inline command, without their quotes.
    pub(crate) unquoted: Vec<u8>,
    /// Whether the ranges lie in `unquoted` instead of the read buffer.
    pub(crate) is_inline: bool,
}

impl Scratch {
    /// Allocates 8 KiB: what the longest request in place needs (an inline command may need 16).
    #[expect(clippy::new_without_default, reason = "an allocation should be visible in the code")]
    pub fn new() -> Scratch {
        Scratch {
            ranges: Vec::with_capacity(IN_PLACE_ARGS_MAX),
            unquoted: Vec::new(),
            is_inline: false,
        }
    }

    /// The request that the last [`crate::Parser::parse`] found: `input` must be what it was given.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let bytes = if self.is_inline { self.unquoted.as_slice() } else { input };
        Args(Form::Ranges { bytes, ranges: &self.ranges })
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.is_inline = false;
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy)]
pub struct Args<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Ranges { bytes: &'a [u8], ranges: &'a [Range] },
    Packed(&'a Packed),
    Large(&'a Large),
    Slices(&'a [&'a [u8]]),
}

impl<'a> Args<'a> {
    /// Arguments that did not come from a client.
    pub const fn from_slices(slices: &'a [&'a [u8]]) -> Args<'a> {
        Args(Form::Slices(slices))
    }

    pub(crate) const fn packed(packed: &'a Packed) -> Args<'a> {
        Args(Form::Packed(packed))
    }

    pub(crate) const fn large(large: &'a Large) -> Args<'a> {
        Args(Form::Large(large))
    }

    /// Arguments, the command's name included: at least 1 if a client sent them.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no request is empty")]
    pub fn len(self) -> usize {
        match self.0 {
            Form::Ranges { ranges, .. } => ranges.len(),
            Form::Packed(packed) => packed.len(),
            Form::Large(large) => large.len(),
            Form::Slices(slices) => slices.len(),
        }
    }

    /// The bytes of an argument. One that is still chunked is made contiguous here and now, in
    /// O(its length): correct, but for debug builds a panic, because callers should have made it
    /// contiguous in steps ([`crate::Request::flatten_step`]) or read its chunks.
    ///
    /// # Panics
    /// If `index >= len()`.
    #[inline]
    pub fn get(self, index: usize) -> &'a [u8] {
        match self.0 {
            Form::Ranges { bytes, ranges } => {
                let range = ranges[index];
                &bytes[range.start as usize..][..range.len as usize]
            }
            Form::Packed(packed) => packed.get(index),
            Form::Large(large) => large.get(index).unwrap_or_else(|chunked| {
                debug_assert!(false, "argument {index} is chunked: flatten the request first");
                chunked.flat_now()
            }),
            Form::Slices(slices) => slices[index],
        }
    }

    /// The first contiguous bytes of an argument: all of them, or the first chunk. Enough to look
    /// up a command's name or to quote an argument in an error.
    ///
    /// # Panics
    /// If `index >= len()`.
    pub fn prefix(self, index: usize) -> &'a [u8] {
        self.chunked(index).map_or_else(|| self.get(index), |chunked| chunked.chunk(0))
    }

    /// The chunks of an argument that is not contiguous; `None` if it is (or does not exist).
    #[inline]
    pub fn chunked(self, index: usize) -> Option<&'a Chunked> {
        match self.0 {
            Form::Large(large) if index < large.len() => large.get(index).err(),
            _ => None,
        }
    }

    /// Bytes of an argument, chunked or not.
    ///
    /// # Panics
    /// If `index >= len()`.
    pub fn arg_len(self, index: usize) -> usize {
        self.chunked(index).map_or_else(|| self.get(index).len(), Chunked::len)
    }

    /// All arguments in order; see [`Args::get`] about chunked ones.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone {
        (0..self.len()).map(move |index| self.get(index))
    }

    /// Bytes of all arguments together. O(1) if large, else O(arguments).
    pub fn total_bytes(self) -> usize {
        match self.0 {
            Form::Ranges { ranges, .. } => ranges.iter().map(|range| range.len as usize).sum(),
            Form::Packed(packed) => packed.total_bytes(),
            Form::Large(large) => large.total_bytes(),
            Form::Slices(slices) => slices.iter().map(|slice| slice.len()).sum(),
        }
    }
}

impl std::fmt::Debug for Args<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = formatter.debug_list();
        for index in 0..self.len() {
            match self.chunked(index) {
                Some(chunked) => list.entry(&format_args!("({} bytes)", chunked.len())),
                None => list.entry(&format_args!("\"{}\"", self.get(index).escape_ascii())),
            };
        }
        list.finish()
    }
}
