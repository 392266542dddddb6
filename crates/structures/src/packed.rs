//! Hot path. Packed blob: the one block that holds a small collection.
//!
//! ```text
//!  0  4  references      owners; the block changes only when there is one
//!  4  2  size            of the whole allocation, a size class of the allocator, at most 4096
//!  6  2  head            first byte of data     (both counted from byte 16)
//!  8  2  tail            one past the last byte of data
//! 10  1  count           entries, at most 128
//! 11  1  flags           wide: lengths are u16; fingerprinted: there is a fingerprint column
//! 12  1  encoding        the engine's sticky mark (OBJECT ENCODING), never read here
//! 13  3  unused
//! 16 ..  length[count]        u8, or u16 when an entry is longer than 255 bytes
//! .. ..  fingerprint[count]   u8, only in sets
//! .. ..  gap
//! .. ..  entries, one after the other, without headers:  head -> tail
//! .. ..  gap
//! ```
//!
//! Two faces look at the same block. As a *list* it is an order of entries with cheap ends; as a
//! *set* it is searched by one fingerprint byte per entry (58 ns at 128 entries, where comparing
//! every entry takes 228). The entry `i` begins at `head` plus the sum of the lengths before it:
//! the columns are contiguous, so that both the sum and the search run over whole vectors.
//!
//! Invariants: `count * column width <= head <= tail <= size - 16`; the lengths sum to
//! `tail - head`; a block has a fingerprint column if it is a set and not empty.
//!
//! Costs: one word, no allocation when empty, 16 bytes of header, 1 byte per list entry and 2 per
//! set entry (3 when wide); clone is O(1), and the first change after it copies the block (at most
//! 4 KiB). Every operation moves at most 4 KiB and allocates at most one block (a removal of a
//! range: two).
//!
//! A collection that outgrows the limits is the caller's to convert: ask [`Packed::is_full_for`]
//! before adding.

pub(crate) mod block;
mod edit;
mod iter;
mod set;
#[cfg(any(test, fuzzing))]
mod tests;

use std::ops::Range;

use self::block::{Block, Head};
pub use self::iter::Iter;
#[cfg(any(test, fuzzing))]
pub use self::tests::drive;

/// Most entries of one block: above it, searching the fingerprints costs more than a table.
pub const ENTRIES_MAX: usize = 128;
/// Largest block, header included: what one latch hold may copy without a thought.
pub const BLOCK_BYTES_MAX: usize = 4096;
/// Longest entry that a narrow length column can tell.
const NARROW_LENGTH_MAX: usize = 255;

/// Lengths are u16.
const WIDE: u8 = 1;
/// There is a fingerprint column: the block is a set.
const FINGERPRINTED: u8 = 2;

/// The fixed fields; see the drawing above.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PackedHead {
    size: u16,
    head: u16,
    tail: u16,
    count: u8,
    flags: u8,
    encoding: u8,
    unused: [u8; 3],
}

// SAFETY: `size` is written once, when the block is created.
unsafe impl Head for PackedHead {
    fn size(&self) -> usize {
        self.size.into()
    }
}

type PackedBlock = Block<PackedHead>;
const _: () = assert!(PackedBlock::OVERHEAD == 16);

impl PackedHead {
    fn is_wide(&self) -> bool {
        self.flags & WIDE != 0
    }

    fn is_fingerprinted(&self) -> bool {
        self.flags & FINGERPRINTED != 0
    }

    /// Bytes of one length.
    fn length_width(&self) -> usize {
        if self.is_wide() { 2 } else { 1 }
    }

    /// Bytes of the columns for one entry.
    fn column_width(&self) -> usize {
        self.length_width() + usize::from(self.is_fingerprinted())
    }

    fn count(&self) -> usize {
        self.count.into()
    }

    fn data(&self) -> Range<usize> {
        self.head.into()..self.tail.into()
    }
}

/// A small collection: up to [`ENTRIES_MAX`] byte strings in one block, see the file's drawing.
///
/// Indexes count from 0 and must be below [`Packed::len`] unless said otherwise: anything else
/// panics. A value is used either as a list or as a set.
#[derive(Clone, Default)]
pub struct Packed {
    /// Absent until the first entry (or encoding mark) arrives.
    block: Option<PackedBlock>,
}

impl Packed {
    /// An empty collection; allocates nothing.
    pub const fn new() -> Self {
        Self { block: None }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.head().count()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> usize {
        self.head().size.into()
    }

    /// Bytes of the entries alone.
    pub fn data_bytes(&self) -> usize {
        self.head().data().len()
    }

    /// True when both are the same block: then their contents are equal. Two empty ones without a
    /// block are not the same.
    pub fn same_block(&self, other: &Self) -> bool {
        matches!((&self.block, &other.block), (Some(a), Some(b)) if a.same(b))
    }

    /// The engine's sticky encoding mark; 0 until set.
    pub fn encoding(&self) -> u8 {
        self.head().encoding
    }

    /// Sets the sticky encoding mark. It survives every later change of this collection.
    pub fn set_encoding(&mut self, encoding: u8) {
        if self.encoding() != encoding {
            self.unique_block().head_mut().encoding = encoding;
        }
    }

    /// True when an entry of these bytes does not fit: the caller converts to the large form then.
    /// Adding one regardless panics.
    pub fn is_full_for(&self, entry: &[u8]) -> bool {
        self.len() == ENTRIES_MAX || self.bytes_with(entry.len()) > BLOCK_BYTES_MAX
    }

    /// The entry at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        (index < self.len()).then(|| &self.all_bytes()[self.entry_range(index)])
    }

    #[inline]
    pub fn first(&self) -> Option<&[u8]> {
        self.get(0)
    }

    #[inline]
    pub fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).and_then(|index| self.get(index))
    }

    /// Adds an entry before all others.
    ///
    /// # Panics
    /// When [`Packed::is_full_for`] the entry; so do the other additions.
    pub fn push_front(&mut self, entry: &[u8]) {
        self.insert_entry(0, entry, None);
    }

    /// Adds an entry after all others.
    pub fn push_back(&mut self, entry: &[u8]) {
        self.insert_entry(self.len(), entry, None);
    }

    /// Adds an entry so that it gets `index`, at most [`Packed::len`].
    pub fn insert_at(&mut self, index: usize, entry: &[u8]) {
        self.insert_entry(index, entry, None);
    }

    /// Removes the first entry; `taken` sees it before. False when there is none.
    pub fn pop_front(&mut self, taken: impl FnOnce(&[u8])) -> bool {
        let Some(entry) = self.first() else { return false };
        taken(entry);
        self.remove_range(0..1);
        true
    }

    /// Removes the last entry; `taken` sees it before. False when there is none.
    pub fn pop_back(&mut self, taken: impl FnOnce(&[u8])) -> bool {
        let Some(entry) = self.last() else { return false };
        taken(entry);
        self.remove_range(self.len() - 1..self.len());
        true
    }

    /// True when [`Packed::set`] can replace the entry at `index` by one of these bytes.
    pub fn can_set(&self, index: usize, entry: &[u8]) -> bool {
        let old = self.entry_range(index).len();
        let columns = self.len() * self.column_width_with(entry.len());
        PackedBlock::OVERHEAD + columns + self.data_bytes() - old + entry.len() <= BLOCK_BYTES_MAX
    }

    /// Replaces the entry at `index` of a list.
    ///
    /// # Panics
    /// Unless [`Packed::can_set`].
    pub fn set(&mut self, index: usize, entry: &[u8]) {
        let range = self.entry_range(index);
        if range.len() == entry.len() {
            self.unique_block().bytes_mut()[range].copy_from_slice(entry);
        } else {
            self.remove_range(index..index + 1);
            self.insert_entry(index, entry, None);
        }
    }

    /// Removes the entry at `index`.
    pub fn remove_at(&mut self, index: usize) {
        self.remove_range(index..index + 1);
    }

    /// Removes the entries of a range of indexes, for example a trim or a pop with a count.
    pub fn remove_range(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len());
        if range.is_empty() {
            return;
        }
        self.close_range(range);
        self.shrink_if_sparse();
    }

    /// Removes a range of entries and returns them as a collection of its own, in the same order
    /// and with the same encoding mark. Taking all of them takes the block: what is left is new.
    pub fn detach_range(&mut self, range: Range<usize>) -> Self {
        if range == (0..self.len()) {
            return std::mem::take(self);
        }
        let mut detached = self.clone();
        detached.remove_range(range.end..detached.len());
        detached.remove_range(0..range.start);
        self.remove_range(range);
        detached
    }

    /// The entries in order, from both ends.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_range(0..self.len())
    }

    /// The entries of a range of indexes, from both ends.
    pub fn iter_range(&self, range: Range<usize>) -> Iter<'_> {
        assert!(range.start <= range.end && range.end <= self.len());
        Iter::new(self, range)
    }

    #[inline]
    fn head(&self) -> PackedHead {
        self.block.as_ref().map_or_else(PackedHead::default, |block| *block.head())
    }

    /// Columns, gaps and data: all positions are counted in this slice.
    #[inline]
    fn all_bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], Block::bytes)
    }

    /// Bytes of the block that would hold one more entry, without any gap.
    fn bytes_with(&self, entry_length: usize) -> usize {
        let columns = (self.len() + 1) * self.column_width_with(entry_length);
        PackedBlock::OVERHEAD + columns + self.data_bytes() + entry_length
    }

    /// The column width when an entry of this length is present as well.
    fn column_width_with(&self, entry_length: usize) -> usize {
        let head = self.head();
        let widens = !head.is_wide() && entry_length > NARROW_LENGTH_MAX;
        // An empty block does not know yet whether it will be a set.
        let may_be_set = head.count == 0 && !head.is_fingerprinted();
        head.column_width() + usize::from(widens) + usize::from(may_be_set)
    }

    /// Where the entry lies in [`Packed::all_bytes`].
    #[inline]
    fn entry_range(&self, index: usize) -> Range<usize> {
        let head = self.head();
        assert!(index < head.count());
        let start = usize::from(head.head) + self.lengths_sum(0..index);
        start..start + self.length_of(index)
    }

    #[inline]
    fn length_of(&self, index: usize) -> usize {
        let bytes = self.all_bytes();
        if self.head().is_wide() {
            u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).into()
        } else {
            bytes[index].into()
        }
    }

    /// Sum of the lengths of a range of entries. Written so that it becomes vector code.
    #[inline]
    fn lengths_sum(&self, range: Range<usize>) -> usize {
        let bytes = self.all_bytes();
        if self.head().is_wide() {
            let column = &bytes[2 * range.start..2 * range.end];
            let pairs = column.chunks_exact(2);
            pairs.map(|pair| usize::from(u16::from_le_bytes([pair[0], pair[1]]))).sum()
        } else {
            // At most 128 lengths below 256: the sum fits 16 bits, which doubles the lanes.
            let sum: u16 = bytes[range].iter().map(|&length| u16::from(length)).sum();
            sum.into()
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        let head = self.head();
        if self.block.is_none() {
            return;
        }
        assert!(head.count() <= ENTRIES_MAX);
        assert!(head.count() * head.column_width() <= head.head.into());
        assert!(head.head <= head.tail);
        assert!(usize::from(head.tail) <= self.all_bytes().len());
        assert!(self.bytes() <= BLOCK_BYTES_MAX);
        assert_eq!(self.bytes(), block::size_class(self.bytes()));
        assert_eq!(self.lengths_sum(0..head.count()), self.data_bytes());
    }
}

impl<'a> IntoIterator for &'a Packed {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}
