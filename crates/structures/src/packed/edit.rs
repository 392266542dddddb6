//! Hot path. Opening and closing room for entries in a packed blob.
//!
//! Both ends of the data have a gap, so a push at either end moves only the columns. When the gap
//! in question is used up but the block still has room, the data slides; else a block one or two
//! size classes larger is taken. A block of which more than half is unused is replaced by a smaller
//! one.

use std::ops::Range;

use super::block::size_class;
use super::{
    BLOCK_BYTES_MAX, ENTRIES_MAX, FINGERPRINTED, NARROW_LENGTH_MAX, Packed, PackedBlock,
    PackedHead, WIDE,
};
use crate::work;

/// The smallest block.
const BLOCK_BYTES_MIN: usize = 32;
/// A block that grows gets this fraction of spare room (then rounded up to a class). Small, because
/// small collections are counted in millions, and enough, because growing costs one copy of at most
/// 4 KiB.
const SPARE_DIVISOR: usize = 8;

impl Packed {
    /// The block, made if absent and copied if other owners look at it.
    pub(super) fn unique_block(&mut self) -> &mut PackedBlock {
        match &mut self.block {
            Some(block) if block.is_unique() => {}
            Some(block) => {
                let mut copy = PackedBlock::new(*block.head());
                copy.bytes_mut().copy_from_slice(block.bytes());
                *block = copy;
            }
            None => self.block = Some(empty_block(BLOCK_BYTES_MIN, PackedHead::default())),
        }
        self.block.as_mut().expect("set in every branch above")
    }

    /// Adds an entry at `index`; with a fingerprint if this is a set.
    pub(super) fn insert_entry(&mut self, index: usize, entry: &[u8], fingerprint: Option<u8>) {
        let old = self.head();
        assert!(index <= old.count() && old.count() < ENTRIES_MAX);
        let mut flags = if old.count == 0 { 0 } else { old.flags };
        if fingerprint.is_some() {
            assert!(old.count == 0 || old.is_fingerprinted(), "a list is not a set");
            flags |= FINGERPRINTED;
        } else {
            assert!(flags & FINGERPRINTED == 0, "a set is not a list");
        }
        if entry.len() > NARROW_LENGTH_MAX {
            flags |= WIDE;
        }
        self.prepare(flags, entry.len());

        let at = self.lengths_sum(0..index);
        let (head, bytes) = self.unique_block().parts_mut();
        open_data(head, bytes, at, entry.len(), edge(index, head.count()));
        let start = usize::from(head.head) + at;
        bytes[start..start + entry.len()].copy_from_slice(entry);
        open_columns(head, bytes, index, entry.len(), fingerprint);
        work::bytes(entry.len());
    }

    /// Makes the block unique, with these flags, and with room for one more entry of this length.
    fn prepare(&mut self, flags: u8, entry_length: usize) {
        let with = PackedHead { flags, ..self.head() };
        let columns = (with.count() + 1) * with.column_width();
        let needed = PackedBlock::OVERHEAD + columns + with.data().len() + entry_length;
        assert!(needed <= BLOCK_BYTES_MAX, "ask is_full_for before adding an entry");
        let current = self.bytes();
        if needed > current {
            let generous = needed + needed / SPARE_DIVISOR;
            let size = size_class(generous.max(BLOCK_BYTES_MIN)).min(BLOCK_BYTES_MAX);
            self.repack(size, flags);
        } else if flags != self.head().flags {
            if with.count == 0 {
                self.unique_block().head_mut().flags = flags;
            } else {
                self.repack(current, flags);
            }
        } else {
            self.unique_block();
        }
    }

    /// Moves everything to a new block of `size` bytes with these flags. The room left is shared by
    /// columns and data as if more entries of the same kind came at the back.
    fn repack(&mut self, size: usize, flags: u8) {
        let old = self.head();
        let mut block = empty_block(size, PackedHead { flags, ..old });
        let (head, bytes) = block.parts_mut();
        let data = &self.all_bytes()[old.data()];
        let columns = head.count() * head.column_width();
        let spare = bytes.len() - columns - data.len();
        let gap = spare * columns / (columns + data.len()).max(1);
        head.head = position(columns + gap);
        head.tail = position(columns + gap + data.len());
        bytes[head.data()].copy_from_slice(data);
        for index in 0..head.count() {
            write_length(head, bytes, index, self.length_of(index));
        }
        if head.is_fingerprinted() {
            let start = head.count() * head.length_width();
            bytes[start..columns].copy_from_slice(self.fingerprints());
        }
        work::bytes(columns + data.len());
        self.block = Some(block);
    }

    /// Takes a range of entries out.
    pub(super) fn close_range(&mut self, range: Range<usize>) {
        let start = self.lengths_sum(0..range.start);
        let length = self.lengths_sum(range.clone());
        let (head, bytes) = self.unique_block().parts_mut();
        close_columns(head, bytes, range);
        let data = head.data();
        let after = data.start + start + length..data.end;
        // The shorter side moves.
        if start < after.len() {
            bytes.copy_within(data.start..data.start + start, data.start + length);
            head.head += position(length);
            work::bytes(start);
        } else {
            work::bytes(after.len());
            bytes.copy_within(after, data.start + start);
            head.tail -= position(length);
        }
    }

    /// Moves to a smaller block when more than half of this one is unused.
    pub(super) fn shrink_if_sparse(&mut self) {
        let head = self.head();
        let used = PackedBlock::OVERHEAD + head.count() * head.column_width() + head.data().len();
        if used > self.bytes() / 2 || self.bytes() <= BLOCK_BYTES_MIN {
            return;
        }
        let size = size_class((used + used / SPARE_DIVISOR).max(BLOCK_BYTES_MIN));
        let longest = (0..head.count()).map(|index| self.length_of(index)).max().unwrap_or(0);
        let narrow = longest <= NARROW_LENGTH_MAX;
        let flags = if narrow { head.flags & !WIDE } else { head.flags };
        self.repack(size, flags);
    }
}

/// Where more entries are expected, after one at this place.
#[derive(Clone, Copy)]
enum Edge {
    Front,
    Back,
    Neither,
}

fn edge(index: usize, count: usize) -> Edge {
    if index == count {
        Edge::Back
    } else if index == 0 {
        Edge::Front
    } else {
        Edge::Neither
    }
}

/// Positions in a block fit 16 bits: the block has at most 4096 bytes.
fn position(value: usize) -> u16 {
    u16::try_from(value).expect("a position in a block of at most 4096 bytes")
}

/// A block without gaps in its head yet: the caller places the data.
fn empty_block(size: usize, head: PackedHead) -> PackedBlock {
    PackedBlock::new(PackedHead { size: position(size), ..head })
}

fn write_length(head: &PackedHead, bytes: &mut [u8], index: usize, length: usize) {
    if head.is_wide() {
        bytes[2 * index..2 * index + 2].copy_from_slice(&position(length).to_le_bytes());
    } else {
        bytes[index] = u8::try_from(length).expect("a longer entry makes the column wide");
    }
}

/// Opens `length` bytes of data at offset `at`, and leaves room for one more column entry. The
/// block is known to have the room.
fn open_data(head: &mut PackedHead, bytes: &mut [u8], at: usize, length: usize, edge: Edge) {
    let columns = (head.count() + 1) * head.column_width();
    let data = head.data();
    let after = data.len() - at;
    let front_fits = data.start >= columns + length;
    let back_fits = data.start >= columns && bytes.len() - data.end >= length;
    if front_fits && (at < after || !back_fits) {
        bytes.copy_within(data.start..data.start + at, data.start - length);
        head.head -= position(length);
        work::bytes(at);
        return;
    }
    if back_fits {
        bytes.copy_within(data.start + at..data.end, data.start + at + length);
        head.tail += position(length);
        work::bytes(after);
        return;
    }
    // Neither gap suffices, or the columns need room: slide all data.
    let spare = bytes.len() - columns - data.len() - length;
    let gap = match edge {
        Edge::Front => spare,
        Edge::Neither => spare / 2,
        Edge::Back => spare * head.column_width() / (head.column_width() + length),
    };
    let start = columns + gap;
    // Whichever part moves away from the other goes first, so neither overwrites the other.
    if start <= data.start {
        bytes.copy_within(data.start..data.start + at, start);
        bytes.copy_within(data.start + at..data.end, start + at + length);
    } else {
        bytes.copy_within(data.start + at..data.end, start + at + length);
        bytes.copy_within(data.start..data.start + at, start);
    }
    work::bytes(data.len());
    head.head = position(start);
    head.tail = position(start + data.len() + length);
}

/// Inserts one entry into the columns and counts it.
fn open_columns(
    head: &mut PackedHead,
    bytes: &mut [u8],
    index: usize,
    length: usize,
    fingerprint: Option<u8>,
) {
    let width = head.length_width();
    let count = head.count();
    let lengths_end = count * width;
    if let Some(fingerprint) = fingerprint {
        bytes
            .copy_within(lengths_end + index..lengths_end + count, lengths_end + width + index + 1);
        bytes.copy_within(lengths_end..lengths_end + index, lengths_end + width);
        bytes[lengths_end + width + index] = fingerprint;
    }
    bytes.copy_within(index * width..lengths_end, (index + 1) * width);
    write_length(head, bytes, index, length);
    head.count += 1;
}

/// Takes a range of entries out of the columns and the count.
fn close_columns(head: &mut PackedHead, bytes: &mut [u8], range: Range<usize>) {
    let width = head.length_width();
    let count = head.count();
    let lengths_end = count * width;
    bytes.copy_within(range.end * width..lengths_end, range.start * width);
    if head.is_fingerprinted() {
        let new_end = (count - range.len()) * width;
        bytes.copy_within(lengths_end..lengths_end + range.start, new_end);
        bytes.copy_within(lengths_end + range.end..lengths_end + count, new_end + range.start);
    }
    head.count -= u8::try_from(range.len()).expect("a block has at most 128 entries");
}
