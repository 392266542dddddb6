//! Walks over a table: SCAN by positions, and uniform random entries.
//!
//! A position is a bucket and a prefix, and the order is by bucket first: all segments' bucket 0 in
//! order of their prefix, then all buckets 1. Why that is right: keys never change their bucket,
//! and within one bucket the order by prefix is that of the hash, which no split or merge
//! changes. A step returns the keys of one bucket whose prefix is in a range that begins at the
//! position and ends where the next position begins. So the ranges of a whole walk cover each key
//! once, whatever splits and merges between the steps. (With the prefix first, a split would
//! bring the low buckets of its upper half again.) After a merge the position can lie within
//! a segment; then the keys before it are skipped.

use super::bucket::{self, BUCKETS};
use super::core::Core;
use super::entry::RawEntry;
use super::trie::{Child, prefix_of, span, start_of};
use crate::hash::hash;
use crate::work;

/// A step goes on over so many buckets as long as it finds them empty.
const EMPTY_BUCKETS_MAX: usize = 16;
/// Random segments that a sample looks at before it takes one without regard to uniformity.
const SAMPLE_TRIES_MAX: usize = 128;
/// Rounds of draws within a segment before its entries are counted.
const DRAW_ROUNDS_MAX: usize = 4;

/// Where a walk continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The bucket within all segments, below 64.
    pub bucket: u8,
    /// The hash prefix within that bucket.
    pub prefix: u32,
}

impl Position {
    /// Where a walk begins.
    pub const START: Self = Self { bucket: 0, prefix: 0 };
    /// Bits of [`Position::to_bits`].
    pub const BITS: u32 = 38;

    /// The position as a number of [`Position::BITS`] bits, in the order of a walk.
    pub fn to_bits(self) -> u64 {
        u64::from(self.bucket) << 32 | u64::from(self.prefix)
    }

    /// The position of a number; bits above [`Position::BITS`] are ignored.
    pub fn from_bits(bits: u64) -> Self {
        Self { bucket: (bits >> 32) as u8 % BUCKETS as u8, prefix: bits as u32 }
    }
}

impl Core {
    /// Visits the entries of one bucket, and gives the next position.
    pub(super) fn scan(&self, from: Position, mut visit: impl FnMut(RawEntry)) -> Option<Position> {
        if self.totals.len == 0 {
            return None;
        }
        let Position { mut bucket, mut prefix } = from;
        let mut visited = 0;
        for _ in 0..EMPTY_BUCKETS_MAX {
            let child = self.directory.segment(prefix);
            let start = start_of(prefix, child.depth());
            if !child.pointer().is_null() {
                // SAFETY: the segment has that many buckets, and its chains are valid.
                unsafe {
                    let head = child.pointer().add(usize::from(bucket) % BUCKETS);
                    bucket::prefetch_entries(head, 0);
                    bucket::for_each(head, |location| {
                        let entry = location.entry();
                        visited += 1;
                        if start == prefix || prefix_of(hash(entry.key())) >= prefix {
                            visit(entry);
                        }
                    });
                }
            }
            work::nodes(1);
            let next = u64::from(start) + span(child.depth());
            prefix = next as u32;
            if next == span(0) {
                bucket += 1;
                if usize::from(bucket) >= BUCKETS {
                    work::nodes(visited);
                    return None;
                }
            }
            if visited > 0 {
                break;
            }
        }
        work::nodes(visited);
        Some(Position { bucket, prefix })
    }

    /// A random entry, each with the same probability: `random` gives 64 random bits.
    ///
    /// A random prefix meets a segment with probability 2^-depth; it is accepted with 2^(depth -
    /// deepest), and again with the share of the split limit that it has entries. Both together
    /// make the probability proportional to its entries, one of which is then drawn.
    pub(super) fn sample(&self, mut random: impl FnMut() -> u64) -> Option<RawEntry> {
        if self.totals.len == 0 {
            return None;
        }
        let deepest = self.directory.deepest();
        for _ in 0..SAMPLE_TRIES_MAX {
            let bits = random();
            let (_, child) = self.directory.locate(bits as u32);
            work::nodes(1);
            let full = u64::from(self.limit) << (deepest - child.depth());
            let count = child.count() as u64;
            if count > 0 && (deepest == 0 || (bits >> 32) % full < count) {
                // SAFETY: the segment is this table's, and has entries.
                return unsafe { draw(child, random) };
            }
        }
        self.sample_anything(random() as u32)
    }

    /// The first entry of the first segment with entries from `prefix` on, or from the start: for
    /// the rare table of mostly empty segments.
    fn sample_anything(&self, prefix: u32) -> Option<RawEntry> {
        let mut prefix = prefix;
        loop {
            let (_, child) = self.directory.locate(prefix);
            if child.count() > 0 {
                // SAFETY: the segment is this table's, and has entries.
                return unsafe { nth(child, 0) };
            }
            work::nodes(1);
            prefix = (u64::from(start_of(prefix, child.depth())) + span(child.depth())) as u32;
        }
    }
}

/// A random entry of a segment that has some. Draws a bucket and a rank that few chains reach, until
/// there is an entry: that is uniform, and cheaper than counting unless the segment is sparse.
unsafe fn draw(child: Child, mut random: impl FnMut() -> u64) -> Option<RawEntry> {
    const RANKS: usize = 32;
    const DRAW_BITS: u32 = (BUCKETS * RANKS).ilog2();
    const DRAWS: u32 = u64::BITS / DRAW_BITS;
    for round in 1..=DRAW_ROUNDS_MAX {
        let bits = random();
        let draws = (0..DRAWS).map(|index| (bits >> (index * DRAW_BITS)) as usize);
        // SAFETY: the caller gives a segment, which has that many buckets and valid chains.
        unsafe {
            let head = |bits: usize| child.pointer().add(bits % BUCKETS);
            draws.clone().for_each(|bits| crate::cache::prefetch(head(bits)));
            let mut drawn =
                draws.filter_map(|bits| bucket::nth(head(bits), bits / BUCKETS % RANKS));
            if let Some(entry) = drawn.next() {
                work::nodes(round * DRAWS as usize);
                return Some(entry);
            }
        }
    }
    // SAFETY: as above.
    unsafe { nth(child, random() as usize % child.count()) }
}

/// The entry of this rank in a segment.
unsafe fn nth(child: Child, rank: usize) -> Option<RawEntry> {
    let (mut left, mut found) = (rank, None);
    work::nodes(BUCKETS);
    for index in 0..BUCKETS {
        // SAFETY: the caller gives a segment of valid chains.
        unsafe {
            bucket::for_each(child.pointer().add(index), |location| {
                if left == 0 && found.is_none() {
                    found = Some(location.entry());
                }
                left = left.saturating_sub(1);
            });
        }
        if found.is_some() {
            break;
        }
    }
    found
}
