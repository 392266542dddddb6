//! Hot path. Parts: the blocks of the directory trie, of two kinds with one head.
//!
//! ```text
//! node:   0  4  references
//!         4  2  size        of the allocation
//!         6  2  count       kids
//!         8  8  starts      bit i is set when a kid begins at branch i; bit 0 always is
//!        16  6  0
//!        22  2  kind        node
//!        24  8 * count      kids: owners of segments or nodes
//! ```
//!
//! The kid of branch `i` is the last one that begins at or before `i`: its index is the number of
//! set bits up to `i`, less one. So a segment whose members agree in fewer bits than a branch tells
//! covers a run of branches, and is still held by exactly *one* pointer. (With one pointer per
//! branch, as in textbook extendible hashing, its counter would never be 1 and it could never
//! change in place.)
//!
//! Invariants: runs are aligned powers of two; a node covers one branch of its parent; a node
//! has at least two kids.

use super::segment;
use crate::packed::block::{Block, Head, size_class};
use crate::work;

/// A segment or a node.
pub(super) type Part = Block<PartHead>;

/// Bytes of a part before its slots or kids.
pub(super) const PART_OVERHEAD: usize = Part::OVERHEAD;
/// Bytes of one kid.
const KID_BYTES: usize = size_of::<Part>();
const _: () = assert!(PART_OVERHEAD == 24 && KID_BYTES == 8);

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum Kind {
    Segment,
    Node,
}

/// Fixed fields of both kinds; see the drawings here and in `segment.rs`. Packed to 4, so that the
/// counter before it leaves no hole.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct PartHead {
    pub(super) size: u16,
    pub(super) count: u16,
    starts: u64,
    pub(super) heap: u16,
    pub(super) garbage: u16,
    pub(super) outside: u16,
    pub(super) kind: Kind,
}

impl PartHead {
    pub(super) fn segment(size: u16) -> Self {
        let kind = Kind::Segment;
        Self { size, count: 0, starts: 0, heap: 0, garbage: 0, outside: 0, kind }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.into()
    }
}

// SAFETY: `size` is written once, when the block is created: nobody assigns it later.
unsafe impl Head for PartHead {
    fn size(&self) -> usize {
        self.size.into()
    }

    fn dispose(part: &mut Part) {
        match part.head().kind {
            Kind::Segment => segment::dispose(part),
            Kind::Node => while part.pop_kid().is_some() {},
        }
    }
}

/// The branches that a kid covers: `start .. start + length`.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl Part {
    #[inline]
    pub(super) fn is_node(&self) -> bool {
        self.head().kind == Kind::Node
    }

    /// A node with these two kids, the second beginning at branch `middle`.
    pub(super) fn node_of(first: Self, second: Self, middle: u32) -> Self {
        let size = size_class(PART_OVERHEAD + 2 * KID_BYTES) as u16;
        let kind = Kind::Node;
        let mut node = Self::new(PartHead { kind, ..PartHead::segment(size) });
        node.head_mut().starts = 1;
        node.push_first(first);
        node.insert_kid(1, middle, second);
        node
    }

    fn push_first(&mut self, kid: Self) {
        assert!(self.is_node() && self.head().count == 0);
        self.head_mut().count = 1;
        // SAFETY: a node has room for at least two kids; the place holds none yet.
        unsafe { self.bytes_mut().as_mut_ptr().cast::<Self>().write(kid) };
    }

    /// The slots of a segment.
    #[inline]
    pub(super) fn slots(&self) -> &[u32] {
        let head = self.head();
        assert!(head.kind == Kind::Segment);
        debug_assert!(head.count() * 4 <= self.bytes().len());
        // SAFETY: `count` slots were written at the start of the bytes, which are aligned for them
        // (the block is aligned to 8, its overhead is 24).
        unsafe { std::slice::from_raw_parts(self.bytes().as_ptr().cast::<u32>(), head.count()) }
    }

    /// Inserts a slot at `index`. The segment has one owner, and a gap of 4 bytes at least.
    pub(super) fn open_slot(&mut self, index: usize, slot: u32) {
        assert!(!self.is_node());
        let (head, bytes) = self.parts_mut();
        let (start, end) = (4 * index, 4 * head.count());
        bytes.copy_within(start..end, start + 4);
        head.count += 1;
        // The inverse of reading the same four bytes as a u32 of this machine.
        let place = &mut bytes[start..start + 4];
        // SAFETY: four bytes, aligned for a u32: a multiple of 4 from the start of the bytes.
        unsafe { place.as_mut_ptr().cast::<u32>().write(slot) };
    }

    /// Removes the slot at `index`. The segment has one owner.
    pub(super) fn close_slot(&mut self, index: usize) {
        assert!(!self.is_node());
        let (head, bytes) = self.parts_mut();
        assert!(index < head.count());
        bytes.copy_within(4 * (index + 1)..4 * head.count(), 4 * index);
        head.count -= 1;
    }

    /// The kids of a node.
    #[inline]
    pub(super) fn kids(&self) -> &[Self] {
        let head = self.head();
        assert!(head.kind == Kind::Node);
        debug_assert!(head.count() * KID_BYTES <= self.bytes().len());
        // SAFETY: the first `count` words of a node's bytes are owners, and aligned.
        unsafe { std::slice::from_raw_parts(self.bytes().as_ptr().cast::<Self>(), head.count()) }
    }

    /// The kids of a node that has one owner.
    #[inline]
    pub(super) fn kids_mut(&mut self) -> &mut [Self] {
        let (head, bytes) = self.parts_mut();
        assert!(head.kind == Kind::Node);
        let count = head.count();
        // SAFETY: as in `kids`, and nobody else looks at them.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<Self>(), count) }
    }

    /// Index of the kid that covers a branch.
    #[inline]
    pub(super) fn kid_index(&self, branch: u32) -> usize {
        let up_to = self.head().starts << (63 - branch);
        up_to.count_ones() as usize - 1
    }

    /// The branches of the kid that covers `branch`, in a node of `branches` ones.
    #[inline]
    pub(super) fn run(&self, branch: u32, branches: u32) -> Run {
        let starts = self.head().starts;
        let start = 63 - (starts & (u64::MAX >> (63 - branch))).leading_zeros();
        let later = if start == 63 { 0 } else { starts >> (start + 1) };
        let end = if later == 0 { branches } else { start + 1 + later.trailing_zeros() };
        Run { start, length: end - start }
    }

    /// Inserts a kid that begins at branch `start`, as the one of this index.
    pub(super) fn insert_kid(&mut self, index: usize, start: u32, kid: Self) {
        let count = self.head().count();
        let needed = PART_OVERHEAD + (count + 1) * KID_BYTES;
        if needed > self.head().size.into() {
            self.move_to_size(size_class(needed));
        }
        assert!(self.is_node() && index <= count);
        let (head, bytes) = self.parts_mut();
        head.starts |= 1 << start;
        head.count += 1;
        // SAFETY: the block has room for one more kid (made above); the later ones move up by one,
        // and the new one is written over the copy that is left at its place.
        unsafe {
            let place = bytes.as_mut_ptr().cast::<Self>().add(index);
            place.copy_to(place.add(1), count - index);
            place.write(kid);
        }
        work::bytes((count - index) * KID_BYTES);
    }

    /// Takes the kid of this index out; it began at branch `start`. Its branches fall to the kid
    /// before it.
    pub(super) fn remove_kid(&mut self, index: usize, start: u32) -> Self {
        let (head, bytes) = self.parts_mut();
        assert!(head.kind == Kind::Node && index < head.count());
        head.starts &= !(1 << start);
        let later = head.count() - index - 1;
        head.count -= 1;
        work::bytes(later * KID_BYTES);
        // SAFETY: the kid is moved out, and the later ones close the gap: each is owned once.
        unsafe {
            let place = bytes.as_mut_ptr().cast::<Self>().add(index);
            let kid = place.read();
            place.add(1).copy_to(place, later);
            kid
        }
    }

    /// Takes the last kid of a node that has one owner.
    pub(super) fn pop_kid(&mut self) -> Option<Self> {
        let last = self.head().count().checked_sub(1)?;
        let start = 63 - self.head().starts.leading_zeros().min(63);
        Some(self.remove_kid(last, start))
    }

    /// Moves a node that has one owner to a block of another size.
    fn move_to_size(&mut self, size: usize) {
        let kids = self.head().count() * KID_BYTES;
        let head = PartHead { size: size as u16, ..*self.head() };
        let mut moved = Self::new(head);
        moved.bytes_mut()[..kids].copy_from_slice(&self.bytes()[..kids]);
        // The kids belong to the new node: the old one must not give them up.
        self.head_mut().count = 0;
        work::bytes(kids);
        *self = moved;
    }

    /// Makes sure that a node has one owner, by copying it if need be.
    pub(super) fn unshare_node(&mut self) {
        if self.is_unique() {
            return;
        }
        let kids = self.kids();
        // Counting one more owner of each kid is one cache miss per kid: let them overlap.
        kids.iter().for_each(Block::prefetch);
        let mut copy = Self::new(*self.head());
        let target = copy.bytes_mut().as_mut_ptr().cast::<Self>();
        for (index, kid) in kids.iter().enumerate() {
            // SAFETY: the copy has the same size, so room for all kids of this node.
            unsafe { target.add(index).write(kid.clone()) };
        }
        work::nodes(kids.len() / 2);
        *self = copy;
    }
}
