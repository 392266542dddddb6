//! Requests that own their arguments: those that outlive the connection's read buffer (queued in
//! a transaction, parked) and those that never fit in it.
//!
//! ```text
//! Packed   one allocation:  [ end u32 ] x count  | bytes of all arguments
//!
//! Large    words    8 bytes per argument: { index u32, start u16, len u16 }
//!                     len <= 16 KiB: blocks[index][start..][..len]
//!                     len = 65535:   chunked[index]
//!          blocks   [ up to 32 KiB of arguments, one behind the other ] ...
//!          chunked  arguments over 16 KiB, see `chunked.rs`
//! ```
//!
//! A large request grows while it is received: no step allocates or moves more than 64 KiB
//! (requests above 80 MiB: their tables of pointers, 0.1 % of them).

use crate::args::Args;
use crate::chunked::Chunked;
use crate::segmented::Segmented;

/// An argument longer than this arrives as [`Chunked`].
pub const CONTIGUOUS_BYTES_MAX: usize = 16 * 1024;
/// Arguments and bytes up to which a copied request is packed into one allocation.
const PACKED_ARGS_MAX: usize = 1024;
const PACKED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a block of a large request.
const BLOCK_BYTES: usize = 32 * 1024;
/// Bytes of the first block when it is allocated; most large requests are one long value.
const FIRST_BLOCK_BYTES: usize = 256;
/// The length in a [`Word`] that stands for "in `chunked`".
const CHUNKED: u16 = u16::MAX;

const _: () = assert!(CONTIGUOUS_BYTES_MAX < CHUNKED as usize, "a length is not the mark");
const _: () = assert!(BLOCK_BYTES <= CHUNKED as usize, "a place in a block fits a word");

/// A request that owns its arguments. `Send`, so it may wait and run anywhere.
pub struct Request(Form);

enum Form {
    Packed(Packed),
    Large(Box<Large>),
}

impl Request {
    /// Copies arguments: O(their bytes), so under a bounded number of bytes only. Those that are
    /// longer than [`CONTIGUOUS_BYTES_MAX`] become [`Chunked`].
    pub fn from_args(args: Args<'_>) -> Request {
        let small = args.len() <= PACKED_ARGS_MAX
            && args.total_bytes() <= PACKED_BYTES_MAX
            && (0..args.len()).all(|index| args.arg_len(index) <= CONTIGUOUS_BYTES_MAX);
        if small {
            return Request(Form::Packed(Packed::new(args)));
        }
        let mut large = Large::new();
        for index in 0..args.len() {
            match args.chunked(index) {
                Some(chunked) => {
                    let mut copy = Chunked::new();
                    chunked.chunks().for_each(|chunk| copy.fill(chunk));
                    large.push_chunked(copy);
                }
                None => large.push(args.get(index)),
            }
        }
        Request::from_large(Box::new(large))
    }

    pub(crate) fn from_large(large: Box<Large>) -> Request {
        Request(Form::Large(large))
    }

    /// The arguments, the command's name first.
    #[inline]
    pub fn args(&self) -> Args<'_> {
        match &self.0 {
            Form::Packed(packed) => Args::packed(packed),
            Form::Large(large) => Args::large(large),
        }
    }

    /// Whether an argument is not contiguous yet: [`Request::flatten_step`] has work to do.
    pub fn has_chunked(&self) -> bool {
        match &self.0 {
            Form::Packed(_) => false,
            Form::Large(large) => large.flattened < large.chunked.len(),
        }
    }

    /// Position and length of every argument that was longer than [`CONTIGUOUS_BYTES_MAX`] when it
    /// arrived, contiguous by now or not. O(1) for each, however many others there are.
    pub fn long_args(&self) -> impl Iterator<Item = (usize, usize)> {
        let large = match &self.0 {
            Form::Packed(_) => None,
            Form::Large(large) => Some(large),
        };
        large.into_iter().flat_map(|large| {
            let lengths = (0..large.chunked.len()).filter_map(|at| large.chunked.get(at));
            let positions = (0..large.chunked_at.len()).filter_map(|at| large.chunked_at.get(at));
            positions.zip(lengths).map(|(&position, chunked)| (position as usize, chunked.len()))
        })
    }

    /// Makes about `bytes_budget` bytes of the chunked arguments contiguous and returns whether all
    /// are. Each argument's vector is allocated once, at its exact size, and filled step by step.
    pub fn flatten_step(&mut self, bytes_budget: usize) -> bool {
        let Form::Large(large) = &mut self.0 else { return true };
        let mut budget = bytes_budget.max(1);
        while let Some(chunked) = large.chunked.get_mut(large.flattened) {
            if !chunked.flatten_step(&mut budget) {
                return false;
            }
            large.flattened += 1;
        }
        true
    }

    /// The chunked argument with this index, to move chunks out of it; `None` if it is contiguous.
    pub fn chunked_mut(&mut self, index: usize) -> Option<&mut Chunked> {
        let Form::Large(large) = &mut self.0 else { return None };
        let word = *large.words.get(index)?;
        let chunked =
            (word.len == CHUNKED).then(|| large.chunked.get_mut(word.index as usize))??;
        if chunked.flat().is_some() { None } else { Some(chunked) }
    }

    /// Frees about `budget` allocations and returns whether the rest is dropped in O(1). Between
    /// the first call and the drop only this method may be called.
    pub fn drop_step(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Form::Packed(_) => true,
            Form::Large(large) => large.drop_step(budget.max(1)),
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.args().fmt(formatter)
    }
}

/// A small request in one allocation.
pub(crate) struct Packed {
    /// The drawing above; all numbers are little-endian.
    bytes: Box<[u8]>,
    count: u32,
}

const END_BYTES: usize = size_of::<u32>();

impl Packed {
    fn new(args: Args<'_>) -> Packed {
        let count = args.len();
        let mut bytes = Vec::with_capacity(count * END_BYTES + args.total_bytes());
        let mut end = 0;
        for arg in args.iter() {
            end += arg.len() as u32;
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        args.iter().for_each(|arg| bytes.extend_from_slice(arg));
        Packed { bytes: bytes.into_boxed_slice(), count: count as u32 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        assert!(index < self.len(), "argument {index} of {}", self.count);
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let data = &self.bytes[self.len() * END_BYTES..];
        &data[start..self.end(index)]
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes.len() - self.len() * END_BYTES
    }

    fn end(&self, index: usize) -> usize {
        let mut end = [0; END_BYTES];
        end.copy_from_slice(&self.bytes[index * END_BYTES..][..END_BYTES]);
        u32::from_le_bytes(end) as usize
    }
}

/// Where an argument of a large request lies.
#[derive(Clone, Copy)]
struct Word {
    /// Index of a block, or of a chunked argument.
    index: u32,
    /// First byte in the block.
    start: u16,
    /// Bytes, or [`CHUNKED`].
    len: u16,
}

/// A large request, or the part of one that has arrived.
pub(crate) struct Large {
    words: Segmented<Word>,
    blocks: Segmented<Vec<u8>>,
    chunked: Segmented<Chunked>,
    /// The position of each of `chunked` among the arguments.
    chunked_at: Segmented<u32>,
    /// Bytes of all arguments.
    total_bytes: usize,
    /// The first so many of `chunked` are contiguous.
    flattened: usize,
}

impl Large {
    pub(crate) const fn new() -> Large {
        Large {
            words: Segmented::new(),
            blocks: Segmented::new(),
            chunked: Segmented::new(),
            chunked_at: Segmented::new(),
            total_bytes: 0,
            flattened: 0,
        }
    }

    /// Adds a copy of an argument. O(bytes).
    pub(crate) fn push(&mut self, argument: &[u8]) {
        if argument.len() > CONTIGUOUS_BYTES_MAX {
            let mut chunked = Chunked::new();
            chunked.fill(argument);
            return self.push_chunked(chunked);
        }
        let fits = |block: &&mut Vec<u8>| block.len() + argument.len() <= BLOCK_BYTES;
        let blocks = self.blocks.len();
        let (index, block) = match self.blocks.last_mut().filter(fits) {
            Some(_) => (blocks - 1, self.blocks.last_mut()),
            None => {
                let capacity = if blocks == 0 { FIRST_BLOCK_BYTES } else { BLOCK_BYTES };
                self.blocks.push(Vec::with_capacity(capacity));
                (blocks, self.blocks.last_mut())
            }
        };
        let block = block.expect("a block was found or pushed above");
        let (start, len) = (block.len() as u16, argument.len() as u16);
        block.extend_from_slice(argument);
        self.total_bytes += argument.len();
        self.words.push(Word { index: index as u32, start, len });
    }

    /// Adds an argument that is longer than [`CONTIGUOUS_BYTES_MAX`]. O(1).
    pub(crate) fn push_chunked(&mut self, chunked: Chunked) {
        self.total_bytes += chunked.len();
        let index = self.chunked.len() as u32;
        self.chunked.push(chunked);
        self.chunked_at.push(self.words.len() as u32);
        self.words.push(Word { index, start: 0, len: CHUNKED });
    }

    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Bytes held, without allocation overhead.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.total_bytes + self.words.len() * size_of::<Word>()
    }

    /// The argument's contiguous bytes, or its chunks.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Result<&[u8], &Chunked> {
        let Some(word) = self.words.get(index) else {
            panic!("argument {index} of {}", self.len());
        };
        if word.len == CHUNKED {
            let chunked = self.chunked.get(word.index as usize);
            let chunked = chunked.expect("words with the mark index `chunked`");
            return chunked.flat().ok_or(chunked);
        }
        let block = self.blocks.get(word.index as usize);
        let block = block.expect("words without the mark index `blocks`");
        Ok(&block[word.start as usize..][..word.len as usize])
    }

    fn drop_step(&mut self, mut budget: usize) -> bool {
        while let Some(chunked) = self.chunked.last_mut() {
            if !chunked.drop_step(&mut budget) {
                return false;
            }
            self.chunked.pop();
        }
        while budget > 0 {
            if self.blocks.pop().is_none() && !self.words.pop_segment() {
                return true;
            }
            budget -= 1;
        }
        false
    }
}
