//! Hot path. What goes into a list and what comes out of it.

use std::ops::Deref;

use triomphe::ThinArc;

use crate::big_string::BigString;
use crate::work;

/// The longest element that callers may keep in one [`Block`]; longer ones become [`BigString`]s,
/// so that no operation copies or frees more than this at once.
pub const BLOCK_BYTES_MAX: usize = 8 * 1024;

/// What a block's allocation holds before its bytes: reference count and length.
const BLOCK_HEADER_BYTES: usize = 2 * size_of::<usize>();

/// The longest block that a list allocates itself: its allocation is one page.
pub(super) const SMALL_BLOCK_BYTES_MAX: usize = 4096 - BLOCK_HEADER_BYTES;

/// An immutable run of bytes in one shared allocation: an element that is too long for a leaf.
#[derive(Clone)]
pub struct Block(ThinArc<(), u8>);

/// An element on its way into a list, or out of it together with its ownership.
///
/// As input, `Bytes` may have any length up to [`BLOCK_BYTES_MAX`], but more than 4080 bytes
/// go into a [`BigString`], whose last page is on average half empty. Who holds a latch and
/// has such an element makes a `Block` of it before taking the latch: that takes exactly the memory
/// it needs, in an allocation too large to be made under a latch.
pub enum Element<'a> {
    /// Bytes that are copied.
    Bytes(&'a [u8]),
    /// An element of up to [`BLOCK_BYTES_MAX`] bytes that lies in an allocation of its own.
    Block(Block),
    /// A longer element.
    Big(BigString),
}

/// An element in its place in a list.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// An element of up to [`BLOCK_BYTES_MAX`] bytes.
    Bytes(&'a [u8]),
    /// A longer one.
    Big(&'a BigString),
}

/// Elements that lie side by side.
pub enum Run<'a> {
    /// The bytes of several elements without anything between them, and the length of each.
    Inline(&'a [u8], Lengths<'a>),
    /// One element that lies alone.
    Alone(Item<'a>),
}

/// The lengths of the elements of a run, in bytes; can be read from either end.
pub struct Lengths<'a> {
    /// Little-endian, the last element's first.
    pub(super) pairs: std::slice::Iter<'a, [u8; 2]>,
}

impl Iterator for Lengths<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.pairs.next_back().map(|&pair| usize::from(u16::from_le_bytes(pair)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pairs.size_hint()
    }
}

impl DoubleEndedIterator for Lengths<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<usize> {
        self.pairs.next().map(|&pair| usize::from(u16::from_le_bytes(pair)))
    }
}

impl ExactSizeIterator for Lengths<'_> {}

/// An element that does not lie in its leaf.
#[derive(Clone)]
pub(super) enum OutOfLine {
    Block(Block),
    Big(BigString),
}

impl Block {
    /// Copies `bytes` into an allocation that is 16 bytes longer.
    pub fn new(bytes: &[u8]) -> Block {
        work::allocations(1);
        work::bytes(bytes.len());
        Block(ThinArc::from_header_and_slice((), bytes))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0.slice
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Element<'_> {
    /// The element as it can be read.
    pub fn as_item(&self) -> Item<'_> {
        match self {
            Element::Bytes(bytes) => Item::Bytes(bytes),
            Element::Block(block) => Item::Bytes(block),
            Element::Big(big) => Item::Big(big),
        }
    }
}

impl Item<'_> {
    /// Bytes of the element.
    pub fn len(&self) -> u64 {
        match self {
            Item::Bytes(bytes) => bytes.len() as u64,
            Item::Big(big) => big.len(),
        }
    }

    /// Whether the element has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the bytes. O(len): not for big elements on the request path.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Item::Bytes(bytes) => bytes.to_vec(),
            Item::Big(big) => {
                let mut bytes = vec![0; big.len() as usize];
                big.copy_range(0, &mut bytes);
                bytes
            }
        }
    }
}

impl OutOfLine {
    /// Keeps bytes that are too long for a leaf, without allocating more than a page at once.
    pub(super) fn new(bytes: &[u8]) -> OutOfLine {
        if bytes.len() <= SMALL_BLOCK_BYTES_MAX {
            return OutOfLine::Block(Block::new(bytes));
        }
        let mut big = BigString::new();
        big.append(bytes);
        OutOfLine::Big(big)
    }

    pub(super) fn as_item(&self) -> Item<'_> {
        match self {
            OutOfLine::Block(block) => Item::Bytes(block),
            OutOfLine::Big(big) => Item::Big(big),
        }
    }

    /// Hands the element over.
    pub(super) fn into_element(self) -> Element<'static> {
        match self {
            OutOfLine::Block(block) => Element::Block(block),
            OutOfLine::Big(big) => Element::Big(big),
        }
    }

    /// Bytes allocated for the element.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            OutOfLine::Block(block) => (BLOCK_HEADER_BYTES + block.len()) as u64,
            OutOfLine::Big(big) => big.bytes(),
        }
    }

    /// Frees part of the element within the budget; returns whether the rest is O(1) to drop.
    pub(super) fn drop_step(&mut self, budget: &mut usize) -> bool {
        let OutOfLine::Big(big) = self else { return true };
        let weight = big.weight() as usize;
        let done = big.drop_step(*budget);
        *budget = if done { budget.saturating_sub(weight) } else { 0 };
        done
    }
}
