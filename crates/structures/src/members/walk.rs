//! Hot path. Going through a table: cursors, walks over snapshots, taking a table apart.
//!
//! **Cursor** (SCAN): bits 48..52 the scan group, the top 4 bits of the position, and bits 0..48
//! the directory prefix. A call returns the members of one group in one segment, about ten, and
//! then goes on to the prefix where the segment ends; after the last segment comes the next group.
//! The group is above the prefix in this order, because segments change between calls: a split must
//! not make a cursor in the middle of a segment ambiguous, and it does not, as both halves have the
//! same groups. After a merge the cursor may point into the middle of a segment; members with a
//! lower prefix were returned before and are left out. So a member that stays is returned exactly
//! once.
//!
//! **Walk**: holds a version of the table and the place reached; each batch goes down from the root
//! again, so no part is held or counted.

use std::ops::{ControlFlow, Range};

use super::part::Part;
use super::{HASH_BITS, Members, POSITION_BITS, Shape, Standard, branch, branches, segment};
use crate::packed::block::Block;
use crate::work;

/// Bits of the position that make the scan group.
const GROUP_BITS: u32 = 4;
const GROUPS: u64 = 1 << GROUP_BITS;
/// Tries of a random choice. One in two to eight succeeds, so that all fail is next to impossible.
const SAMPLE_TRIES: usize = 128;
/// Bits of a cursor below the group: the directory prefix.
const PREFIX_BITS: u32 = HASH_BITS - POSITION_BITS;

/// A segment and the hashes that lead to it.
pub(super) struct Located<'a> {
    segment: &'a Part,
    /// First hash.
    pub(super) start: u64,
    /// First hash of the next segment; absent for the last one.
    end: Option<u64>,
}

impl<S: Shape> Members<S> {
    /// The segment that a hash leads to.
    pub(super) fn locate(&self, hash: u64) -> Located<'_> {
        let mut located = Located { segment: &self.root.head().top, start: 0, end: None };
        let mut shift = HASH_BITS;
        while located.segment.is_node() {
            let node = located.segment;
            let above = if shift == HASH_BITS { 0 } else { hash >> shift << shift };
            shift -= S::LEVEL_BITS;
            let branch = branch::<S>(hash, shift);
            let run = node.run(branch, branches::<S>());
            located.start = above | u64::from(run.start) << shift;
            let last = located.start | (u64::from(run.length - 1) << shift) | ((1 << shift) - 1);
            located.end = last.checked_add(1);
            located.segment = &node.kids()[node.kid_index(branch)];
        }
        work::nodes(((HASH_BITS - shift) / S::LEVEL_BITS) as usize + 2);
        located
    }

    /// One step of a scan: calls `f` for about ten members (seldom none) and returns the cursor to
    /// go on with, never 0; `None` after the last step. Begin with cursor 0. Any number is
    /// accepted.
    ///
    /// Over all steps, a member that is present from the first to the last is seen exactly once,
    /// whatever is added and removed between steps; others at most once, unless removed and added.
    pub fn scan(&self, cursor: u64, mut f: impl FnMut(&[u8])) -> Option<u64> {
        let group = cursor >> PREFIX_BITS;
        if group >= GROUPS {
            return None;
        }
        let from = cursor << POSITION_BITS;
        let located = self.locate(from);
        for index in group_range(located.segment, group) {
            let entry = segment::entry(located.segment, index);
            // After a merge, the first part of a segment has been seen already.
            if located.start == from || entry.hash(S::hash) >= from {
                f(entry.member());
            }
        }
        match located.end {
            Some(end) => Some(group << PREFIX_BITS | end >> POSITION_BITS),
            None if group + 1 < GROUPS => Some((group + 1) << PREFIX_BITS),
            None => None,
        }
    }

    /// A member chosen at random, each with the same probability; `None` when there is none.
    /// `random` returns uniform numbers; two are used per try, of which there are 2 to 8 as a rule.
    pub fn sample(&self, mut random: impl FnMut() -> u64) -> Option<&[u8]> {
        if self.is_empty() {
            return None;
        }
        let factor = self.sample_factor();
        let mut located = self.locate(random());
        for _ in 0..SAMPLE_TRIES {
            // A segment is met in proportion to its hashes. With one index of as many as it would
            // have if members were spread evenly, times the factor, each member is hit equally
            // often.
            let hashes = match located.end {
                Some(end) => u128::from(end - located.start),
                None => (1 << HASH_BITS) - u128::from(located.start),
            };
            let even = u128::from(self.len()) * hashes * factor;
            // A fixed-point product: `even` has 64 bits of fraction, of which 16 are kept.
            let index =
                ((even >> PREFIX_BITS) * u128::from(random())) >> (HASH_BITS + POSITION_BITS);
            if index < located.segment.slots().len() as u128 {
                return Some(segment::entry(located.segment, index as usize).member());
            }
            located = self.locate(random());
        }
        // So unlucky that nobody will miss the even spread: the next member there is.
        while located.segment.slots().is_empty() {
            located = self.locate(located.end.unwrap_or(0));
        }
        Some(segment::entry(located.segment, 0).member())
    }

    /// By how much the fullest segment may exceed the even spread. The fewer members a segment
    /// has, the more uneven they are; the factor is also the mean number of tries of
    /// [`Members::sample`].
    fn sample_factor(&self) -> u128 {
        match self.len() / self.weight() {
            64.. => 2,
            8..64 => 4,
            _ => 8,
        }
    }

    /// A walk over all members of this version.
    pub fn walk(&self) -> Walk<S> {
        Walk { members: self.clone(), next: Some(0), index: 0 }
    }

    /// Gives the table up to be taken apart in steps.
    pub fn into_remains(self) -> Remains {
        let top = self.root.release().map(|root| root.head().top.clone());
        Remains { parts: top.into_iter().collect() }
    }
}

/// The slots of a scan group.
fn group_range(segment: &Part, group: u64) -> Range<usize> {
    let slots = segment.slots();
    let shift = POSITION_BITS - GROUP_BITS;
    let start = segment::lower_bound(slots, (group as u32) << shift);
    let end = match group + 1 {
        GROUPS => slots.len(),
        next => segment::lower_bound(slots, (next as u32) << shift),
    };
    work::nodes((end - start) / 2);
    start..end
}

/// A position in a version of a table. Does not change with the table it was made from.
#[derive(Clone)]
pub struct Walk<S: Shape = Standard> {
    members: Members<S>,
    /// First hash of the segment to go on with; absent at the end.
    next: Option<u64>,
    /// First slot in it that was not seen.
    index: usize,
}

impl<S: Shape> Walk<S> {
    /// Calls `f` for up to `limit` members. True while there may be more.
    pub fn next_batch(&mut self, limit: usize, mut f: impl FnMut(&[u8])) -> bool {
        self.next_until(limit, |member| {
            f(member);
            ControlFlow::Continue(())
        })
    }

    /// The same, but ends after a member for which `f` breaks: members may be long.
    pub fn next_until(
        &mut self,
        limit: usize,
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> bool {
        let mut left = limit;
        while let Some(hash) = self.next
            && left > 0
        {
            let located = self.members.locate(hash);
            let count = located.segment.slots().len();
            let mut end = self.index;
            while end < count && left > 0 {
                let flow = f(segment::entry(located.segment, end).member());
                end += 1;
                left = if flow.is_break() { 0 } else { left - 1 };
            }
            work::nodes((end - self.index) / 4);
            self.index = end;
            if end == count {
                self.next = located.end;
                self.index = 0;
            }
        }
        self.next.is_some()
    }

    /// The version that is walked over.
    pub fn members(&self) -> &Members<S> {
        &self.members
    }
}

/// What is left of a table that is taken apart.
pub struct Remains {
    /// Owners still to give up, those of lower parts last: at most one node's kids per level.
    parts: Vec<Part>,
}

impl Remains {
    /// Frees up to `budget` parts, or passes over them if another version has them. True when
    /// nothing is left.
    pub fn drop_step(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(part) = self.parts.pop() else { return true };
            if let Some(mut last) = Block::release(part)
                && last.is_node()
            {
                while let Some(kid) = last.pop_kid() {
                    self.parts.push(kid);
                }
            }
        }
        self.parts.is_empty()
    }
}
