//! A long bulk string as it arrived: in chunks, so that receiving it never moves or reserves more
//! than one chunk, whatever length the client announced.
//!
//! ```text
//! chunks      [ 4088 bytes | 4088 bytes | ... | the rest ]     every one but the last is full
//! flattening  the first bytes made contiguous so far; the chunks they came from are freed
//! flat        all bytes, once that is finished
//! ```
//!
//! A chunk's payload is that of a leaf of the engine's big strings: 4096 bytes less a reference
//! count.

use std::sync::OnceLock;

use crate::segmented::Segmented;

/// Payload bytes of every chunk but the last.
pub const CHUNK_BYTES: usize = 4088;

/// A bulk string longer than [`crate::CONTIGUOUS_BYTES_MAX`], in chunks of [`CHUNK_BYTES`].
pub struct Chunked {
    /// Bytes received so far.
    len: usize,
    chunks: Segmented<Vec<u8>>,
    /// The contiguous form while it is being made.
    flattening: Vec<u8>,
    /// The contiguous form. If it was made in steps, `chunks` and `flattening` are empty and nobody
    /// gets to see this as chunked any more.
    flat: OnceLock<Vec<u8>>,
}

impl Chunked {
    pub(crate) const fn new() -> Chunked {
        Chunked { len: 0, chunks: Segmented::new(), flattening: Vec::new(), flat: OnceLock::new() }
    }

    /// Bytes of the string.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Chunks of the string.
    pub fn chunk_count(&self) -> usize {
        self.len.div_ceil(CHUNK_BYTES)
    }

    /// The chunk with this index: [`CHUNK_BYTES`] long, but for the last. Empty if it was taken or
    /// lies beyond the end. O(1).
    pub fn chunk(&self, index: usize) -> &[u8] {
        let start = index * CHUNK_BYTES;
        match self.flattening.get(start..) {
            Some(rest) if !rest.is_empty() => &rest[..rest.len().min(CHUNK_BYTES)],
            _ => self.chunks.get(index).map_or(&[], Vec::as_slice),
        }
    }

    /// All chunks in order.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.chunk_count()).map(|index| self.chunk(index))
    }

    /// Moves a chunk out, so that whoever copies the string elsewhere frees it on the way. Empty if
    /// there is none at this index or the string was made contiguous.
    pub fn take_chunk(&mut self, index: usize) -> Vec<u8> {
        self.chunks.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// Adds bytes to the end. O(bytes).
    pub(crate) fn fill(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = match self.chunks.last_mut() {
                Some(chunk) if chunk.len() < CHUNK_BYTES => chunk,
                _ => {
                    self.chunks.push(Vec::with_capacity(CHUNK_BYTES));
                    continue;
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - room.len()));
            room.extend_from_slice(now);
            self.len += now.len();
            bytes = later;
        }
    }

    /// The contiguous form, if it was made.
    pub(crate) fn flat(&self) -> Option<&[u8]> {
        self.flat.get().map(Vec::as_slice)
    }

    /// The contiguous form, made in one go if it was not made in steps: O(len).
    pub(crate) fn flat_now(&self) -> &[u8] {
        self.flat.get_or_init(|| {
            let mut flat = Vec::with_capacity(self.len);
            self.chunks().for_each(|chunk| flat.extend_from_slice(chunk));
            flat
        })
    }

    /// Makes about `budget` more bytes contiguous, reduces the budget by them, and returns whether
    /// all are. The whole vector is allocated at the first step, and filled and touched step by
    /// step.
    pub(crate) fn flatten_step(&mut self, budget: &mut usize) -> bool {
        if self.flat.get().is_some() {
            return true;
        }
        if self.flattening.capacity() == 0 {
            self.flattening = Vec::with_capacity(self.len);
        }
        while self.flattening.len() < self.len {
            if *budget == 0 {
                return false;
            }
            let chunk = self.take_chunk(self.flattening.len() / CHUNK_BYTES);
            assert!(!chunk.is_empty(), "a chunk was taken before the string was flattened");
            self.flattening.extend_from_slice(&chunk);
            *budget = budget.saturating_sub(chunk.len());
        }
        while self.chunks.pop_segment() {}
        self.flat.set(std::mem::take(&mut self.flattening)).is_ok()
    }

    /// Frees about `budget` allocations, reduces the budget by them, and returns whether nothing is
    /// left to free.
    pub(crate) fn drop_step(&mut self, budget: &mut usize) -> bool {
        self.flat = OnceLock::new();
        self.flattening = Vec::new();
        while *budget > 0 {
            if self.chunks.pop().is_none() {
                return true;
            }
            *budget -= 1;
        }
        self.chunks.len() == 0
    }
}
