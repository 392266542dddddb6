//! Hot path. The directory of a table: a trie of up to 64 ways from hash prefixes to segments.
//!
//! ```text
//! hash: [63..54] not used here | [53..22] prefix, top bit first | [21..6] spare | [5..0] bucket
//! node of b bits (2 <= b <= 6), aligned to 64:   2^b words | 2^b deadlines (i64)
//! word of a segment:  [63..48] entries | [47..12] address, or 0 | [6..1] depth | bit 0 = 0
//! word of a node:     [63..48] 0       | [47..6]  address       | [3..1] b     | bit 0 = 1
//! ```
//!
//! Extendible hashing inside each node: a segment of depth d holds the keys that share d bits of
//! prefix. It fills a run of 2^(base + b - d) equal words of the node that looks at the bits base
//! to base + b. Of a run only the first word has the count, and only its deadline counts; the
//! other words have count 0, their deadlines are `i64::MAX`. The root is a node of one word inside
//! the directory, so a table of one segment has no node.
//!
//! A directory never doubles: the run of a segment that splits is at most 64 words. A node begins
//! with 4 words and doubles in a new block up to 64; from then on it grows downward, with a new
//! node in place of one word.
//!
//! A deadline is at most the earliest expiry below its word: exact or too early, never too late.
//! The minimum of a node's deadlines is not below the deadline of the word that leads to it.
//!
//! Tags: a slot has 16 bits of the prefix, from a window that moves down as the segments get
//! deeper, so that at least 4 bits remain that the directory has not used up. A split or merge
//! across a window's edge takes the tags anew from the keys. The edge is not at the same depth for
//! all buckets, so that this reads the keys of only a quarter of the segment each time.
//!
//! Paper: R. Fagin et al., Extendible Hashing, ACM TODS 4(3), 1979.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use super::bucket::{BUCKETS, Bucket, Segment};
use crate::work;

/// Segments are not split further: 2^30 of them would hold 10^11 keys.
pub(super) const DEPTH_MAX: u32 = 30;
/// Bits that one node looks at, at most.
const NODE_BITS_MAX: u32 = 6;
/// Bits of a new node.
const NODE_BITS_MIN: u32 = 2;
/// The root and the nodes above a segment of the greatest depth.
const STEPS_MAX: usize = 1 + (DEPTH_MAX / NODE_BITS_MAX) as usize;
/// Depth up to which all buckets have the first tag window, and how many depths later all have left
/// it.
const WINDOW_EDGE: u32 = 9;
const WINDOW_STEPS: u32 = 4;
const PREFIX_SHIFT: u32 = 22;
const PREFIX_BITS: u32 = 32;

const NODE: u64 = 1;
const COUNT_SHIFT: u32 = 48;
const COUNT_MAX: u64 = u16::MAX as u64;
const SEGMENT_ADDRESS: u64 = (1 << COUNT_SHIFT) - (1 << 12);
const NODE_ADDRESS: u64 = (1 << COUNT_SHIFT) - (1 << 6);
const DEPTH_MASK: u64 = 63;
const NODE_BITS_MASK: u64 = 7;
const NODE_ALIGN: usize = 64;

/// The bits of a hash that the directory and the tags use.
pub(super) fn prefix_of(hash: u64) -> u32 {
    (hash >> PREFIX_SHIFT) as u32
}

/// The bucket of a hash, in any segment.
pub(super) fn bucket_of(hash: u64) -> usize {
    hash as usize % BUCKETS
}

/// How far the tag window of a bucket, in segments of this depth, is from the prefix's low end.
/// The window of a depth has the bit by which a segment of that depth splits: 31 - depth.
#[inline]
pub(super) fn window(depth: u32, bucket: usize) -> u32 {
    let edge = WINDOW_EDGE + bucket as u32 % WINDOW_STEPS;
    if depth <= edge {
        16
    } else if depth <= edge + 10 {
        6
    } else {
        0
    }
}

/// The tag of a prefix in this bucket of segments of this depth.
#[inline]
pub(super) fn tag_of(prefix: u32, depth: u32, bucket: usize) -> u16 {
    (prefix >> window(depth, bucket)) as u16
}

/// Prefixes that share `depth` bits: how many.
pub(super) fn span(depth: u32) -> u64 {
    1 << (PREFIX_BITS - depth)
}

/// The first prefix that shares `depth` bits with `prefix`.
pub(super) fn start_of(prefix: u32, depth: u32) -> u32 {
    (u64::from(prefix) & !(span(depth) - 1)) as u32
}

/// A prefix of the other half, if `prefix` is of a segment of this depth, which is not 0.
pub(super) fn buddy_of(prefix: u32, depth: u32) -> u32 {
    prefix ^ span(depth) as u32
}

/// A word of the directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Child(u64);

impl Child {
    /// The word of a segment; without address there are no entries and no memory for them.
    pub(super) fn segment(segment: *mut Bucket, depth: u32, count: usize) -> Self {
        let address = segment.expose_provenance() as u64;
        assert!(address & !SEGMENT_ADDRESS == 0, "an address that no word can hold");
        Self((count as u64) << COUNT_SHIFT | address | u64::from(depth) << 1)
    }

    const fn empty(depth: u32) -> Self {
        Self((depth as u64) << 1)
    }

    fn node(node: *mut u64, bits: u32) -> Self {
        let address = node.expose_provenance() as u64;
        assert!(address & !NODE_ADDRESS == 0, "an address that no word can hold");
        Self(address | u64::from(bits) << 1 | NODE)
    }

    fn is_node(self) -> bool {
        self.0 & NODE != 0
    }

    fn as_node(self) -> (*mut u64, u32) {
        let address = (self.0 & NODE_ADDRESS) as usize;
        (ptr::with_exposed_provenance_mut(address), (self.0 >> 1 & NODE_BITS_MASK) as u32)
    }

    /// The segment's buckets, null if it has no memory.
    pub(super) fn pointer(self) -> *mut Bucket {
        ptr::with_exposed_provenance_mut((self.0 & SEGMENT_ADDRESS) as usize)
    }

    pub(super) fn depth(self) -> u32 {
        (self.0 >> 1 & DEPTH_MASK) as u32
    }

    /// Entries of the segment, if this is the first word of its run.
    pub(super) fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT) as usize
    }

    fn without_count(self) -> Self {
        Self(self.0 & ((1 << COUNT_SHIFT) - 1))
    }
}

/// A word's place: a node, and the index in it.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// Null for the root.
    node: *mut u64,
    /// Prefix bits looked at above this node.
    base: u32,
    /// Prefix bits that this node looks at.
    bits: u32,
    index: usize,
}

impl Step {
    const ROOT: Self = Self { node: ptr::null_mut(), base: 0, bits: 0, index: 0 };

    /// Words in the run of a segment.
    fn run(self, depth: u32) -> usize {
        1 << (self.base + self.bits - depth)
    }

    fn words(self) -> usize {
        1 << self.bits
    }
}

/// The places from the root down to a segment's first word.
pub(super) struct Path {
    steps: [Step; STEPS_MAX],
    length: usize,
}

impl Path {
    pub(super) fn last(&self) -> Step {
        self.steps[self.length - 1]
    }
}

/// One half of a segment that was split, or what a merge has made of two.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Null if it has no entries.
    pub(super) segment: *mut Bucket,
    pub(super) count: usize,
    pub(super) deadline: i64,
}

/// See the top of the file.
pub(super) struct Directory {
    /// A node of no bits: word and deadline.
    root: [u64; 2],
    /// Segments of each depth, without memory or with.
    depths: [u32; DEPTH_MAX as usize + 1],
    /// Segments that have memory.
    segments: usize,
    /// Bytes of all nodes.
    pub(super) node_bytes: usize,
}

impl Directory {
    pub(super) const fn new() -> Self {
        let mut depths = [0; DEPTH_MAX as usize + 1];
        depths[0] = 1;
        let root = [Child::empty(0).0, i64::MAX as u64];
        Self { root, depths, segments: 0, node_bytes: 0 }
    }

    /// The word that a prefix leads to; its count means nothing.
    #[inline]
    pub(super) fn segment(&self, prefix: u32) -> Child {
        let mut child = Child(self.root[0]);
        let mut left = u64::from(prefix);
        while child.is_node() {
            let (node, bits) = child.as_node();
            let index = (left << bits >> PREFIX_BITS) as usize;
            left = left << bits & (span(0) - 1);
            // SAFETY: a node has 2^bits words, and the index has that many bits.
            child = Child(unsafe { *node.add(index) });
        }
        child
    }

    /// The first word of the segment that a prefix leads to, and its place.
    pub(super) fn locate(&self, prefix: u32) -> (Step, Child) {
        let mut step = Step::ROOT;
        let mut child = Child(self.root[0]);
        while child.is_node() {
            (step, child) = self.descend(step, child, prefix);
        }
        self.first(step, child)
    }

    /// As [`Directory::locate`], with all places on the way.
    pub(super) fn path(&self, prefix: u32) -> (Path, Child) {
        let mut path = Path { steps: [Step::ROOT; STEPS_MAX], length: 1 };
        let mut child = Child(self.root[0]);
        while child.is_node() {
            (path.steps[path.length], child) = self.descend(path.last(), child, prefix);
            path.length += 1;
        }
        (path.steps[path.length - 1], child) = self.first(path.last(), child);
        (path, child)
    }

    fn descend(&self, above: Step, child: Child, prefix: u32) -> (Step, Child) {
        let (node, bits) = child.as_node();
        let base = above.base + above.bits;
        let below = u64::from(prefix) & (span(base) - 1);
        let index = (below << (base + bits) >> PREFIX_BITS) as usize;
        let step = Step { node, base, bits, index };
        (step, self.child(step, index))
    }

    fn first(&self, step: Step, child: Child) -> (Step, Child) {
        let index = step.index & !(step.run(child.depth()) - 1);
        (Step { index, ..step }, self.child(step, index))
    }

    fn child(&self, step: Step, index: usize) -> Child {
        debug_assert!(index < step.words());
        let words = if step.node.is_null() { self.root.as_ptr() } else { step.node };
        // SAFETY: a step is of a node that exists, of so many words.
        Child(unsafe { *words.add(index) })
    }

    fn set_child(&mut self, step: Step, index: usize, child: Child) {
        debug_assert!(index < step.words());
        let words = if step.node.is_null() { self.root.as_mut_ptr() } else { step.node };
        // SAFETY: a step is of a node that exists, of so many words.
        unsafe { *words.add(index) = child.0 }
    }

    fn deadline(&self, step: Step, index: usize) -> i64 {
        debug_assert!(index < step.words());
        let words = if step.node.is_null() { self.root.as_ptr() } else { step.node };
        // SAFETY: the deadlines follow the words of a node.
        unsafe { *words.add(step.words() + index) as i64 }
    }

    fn set_deadline_at(&mut self, step: Step, index: usize, deadline: i64) {
        debug_assert!(index < step.words());
        let words = if step.node.is_null() { self.root.as_mut_ptr() } else { step.node };
        // SAFETY: the deadlines follow the words of a node.
        unsafe { *words.add(step.words() + index) = deadline as u64 }
    }

    /// The deadline of the segment at a place of [`Directory::locate`].
    pub(super) fn deadline_of(&self, step: Step) -> i64 {
        self.deadline(step, step.index)
    }

    /// Adds to the count of the segment at a place of [`Directory::locate`].
    pub(super) fn count_up(&mut self, step: Step) {
        let child = self.child(step, step.index);
        assert!((child.count() as u64) < COUNT_MAX, "too many keys share the bits of their hash");
        self.set_child(step, step.index, Child(child.0 + (1 << COUNT_SHIFT)));
    }

    /// Takes `count` entries from the segment at a place of [`Directory::locate`], and gives the
    /// segment as it is then.
    pub(super) fn count_down(&mut self, step: Step, count: usize) -> Child {
        let child = self.child(step, step.index);
        debug_assert!(child.count() >= count);
        let child = Child(child.0 - ((count as u64) << COUNT_SHIFT));
        self.set_child(step, step.index, child);
        child
    }

    /// Gives memory to the segment at a place of [`Directory::locate`], which had none.
    pub(super) fn materialize(&mut self, step: Step) -> *mut Bucket {
        let depth = self.child(step, step.index).depth();
        let segment = Segment::allocate_empty().as_ptr();
        self.segments += 1;
        self.fill(step, Child::segment(segment, depth, 0));
        segment
    }

    /// Frees the memory of the segment at a place of [`Directory::locate`], which has no entry.
    pub(super) unsafe fn vacate(&mut self, step: Step) {
        let child = self.child(step, step.index);
        debug_assert!(child.count() == 0 && !child.pointer().is_null());
        // SAFETY: the segment is not needed any more, its words are overwritten here.
        unsafe { Segment::free(child.pointer()) };
        self.segments -= 1;
        self.fill(step, Child::empty(child.depth()));
        self.set_deadline_at(step, step.index, i64::MAX);
    }

    /// Writes a segment's word to its whole run, the count only to the first.
    fn fill(&mut self, step: Step, child: Child) {
        let run = step.run(child.depth());
        self.set_child(step, step.index, child);
        for index in step.index + 1..step.index + run {
            self.set_child(step, index, child.without_count());
        }
    }

    fn fill_part(&mut self, step: Step, part: Part, depth: u32) {
        self.fill(step, Child::segment(part.segment, depth, part.count));
        self.set_deadline_at(step, step.index, part.deadline);
    }

    /// Replaces the segment at the end of `path` by the two that its entries were moved to. The
    /// caller has allocated and freed the segments, their number included ([`Self::adopt`]).
    pub(super) fn split(&mut self, path: &Path, low: Part, high: Part) {
        let mut step = path.last();
        let depth = self.child(step, step.index).depth();
        debug_assert!(depth < DEPTH_MAX);
        if step.run(depth) == 1 {
            step = if (1..NODE_BITS_MAX).contains(&step.bits) {
                self.widen(path)
            } else {
                self.deepen(step)
            };
        }
        self.depths[depth as usize] -= 1;
        self.depths[depth as usize + 1] += 2;
        let half = step.run(depth) / 2;
        self.fill_part(step, low, depth + 1);
        self.fill_part(Step { index: step.index + half, ..step }, high, depth + 1);
    }

    /// Doubles the words of the last node of `path`; gives the new place of the same segment.
    fn widen(&mut self, path: &Path) -> Step {
        let (old, above) = (path.last(), path.steps[path.length - 2]);
        let bits = old.bits + 1;
        let new = Step { node: self.allocate_node(bits), bits, index: 2 * old.index, ..old };
        for index in 0..old.words() {
            let child = self.child(old, index);
            self.set_child(new, 2 * index, child);
            self.set_child(new, 2 * index + 1, child.without_count());
            self.set_deadline_at(new, 2 * index, self.deadline(old, index));
            self.set_deadline_at(new, 2 * index + 1, i64::MAX);
        }
        self.set_child(above, above.index, Child::node(new.node, bits));
        self.free_node(old);
        new
    }

    /// Puts a node of its own below a word, which is the whole run of a segment.
    fn deepen(&mut self, above: Step) -> Step {
        let child = self.child(above, above.index);
        let bits = NODE_BITS_MIN;
        let node = self.allocate_node(bits);
        let step = Step { node, base: above.base + above.bits, bits, index: 0 };
        for index in 0..step.words() {
            self.set_deadline_at(step, index, i64::MAX);
        }
        self.fill(step, child);
        self.set_deadline_at(step, 0, self.deadline(above, above.index));
        self.set_child(above, above.index, Child::node(node, bits));
        step
    }

    /// The low and the high one of the segment at a place of [`Directory::locate`] and its buddy,
    /// each with its deadline. None if the other half of the prefix is more than a segment.
    pub(super) fn buddies(&self, step: Step) -> Option<(Part, Part)> {
        let child = self.child(step, step.index);
        let (depth, run) = (child.depth(), step.run(child.depth()));
        if depth <= step.base {
            return None;
        }
        let other = self.child(step, step.index ^ run);
        if other.is_node() || other.depth() != depth {
            return None;
        }
        let part = |index| Part {
            segment: self.child(step, index).pointer(),
            count: self.child(step, index).count(),
            deadline: self.deadline(step, index),
        };
        let low = step.index & !run;
        Some((part(low), part(low | run)))
    }

    /// Replaces two buddies, one of them at the end of `path`, by what their entries were moved
    /// to. The caller has freed what is not needed any more ([`Self::adopt`]).
    pub(super) fn merge(&mut self, path: &Path, merged: Part) {
        let last = path.last();
        let depth = self.child(last, last.index).depth();
        let run = last.run(depth);
        let step = Step { index: last.index & !run, ..last };
        self.depths[depth as usize] -= 2;
        self.depths[depth as usize - 1] += 1;
        self.fill_part(step, merged, depth - 1);
        self.set_deadline_at(step, step.index | run, i64::MAX);
        if depth - 1 == last.base && path.length > 1 {
            // The run is the whole node: the word above can say as much.
            let above = path.steps[path.length - 2];
            self.free_node(last);
            self.fill_part(above, merged, depth - 1);
        }
    }

    /// Counts segments that the caller has allocated or freed for a split or merge.
    pub(super) fn adopt(&mut self, allocated: usize, freed: usize) {
        self.segments = self.segments + allocated - freed;
    }

    /// Removes nodes at the end of the path to `prefix` that lead to nothing with memory.
    pub(super) fn prune(&mut self, prefix: u32) {
        loop {
            let (path, _) = self.path(prefix);
            let last = path.last();
            if path.length == 1 {
                return;
            }
            let vacant = |child: Child| !child.is_node() && child.pointer().is_null();
            if !(0..last.words()).all(|index| vacant(self.child(last, index))) {
                return;
            }
            let mut index = 0;
            while index < last.words() {
                let depth = self.child(last, index).depth();
                self.depths[depth as usize] -= 1;
                index += last.run(depth);
            }
            let above = path.steps[path.length - 2];
            self.depths[last.base as usize] += 1;
            self.free_node(last);
            self.set_child(above, above.index, Child::empty(last.base));
            self.set_deadline_at(above, above.index, i64::MAX);
        }
    }

    /// The deadline that no expiry precedes.
    pub(super) fn earliest(&self) -> i64 {
        self.root[1] as i64
    }

    /// A prefix of the segment with the earliest deadline.
    pub(super) fn due(&self) -> u32 {
        let (mut step, mut child, mut prefix) = (Step::ROOT, Child(self.root[0]), 0);
        while child.is_node() {
            let (node, bits) = child.as_node();
            step = Step { node, base: step.base + step.bits, bits, index: 0 };
            work::nodes(1);
            let deadlines = (0..step.words()).map(|index| (self.deadline(step, index), index));
            let (_, index) = deadlines.min().expect("a node has at least four words");
            prefix |= (index as u32) << (PREFIX_BITS - step.base - step.bits);
            child = self.child(step, index);
        }
        prefix
    }

    /// Makes the deadlines on the way to `prefix` no later than `deadline`.
    pub(super) fn lower_deadline(&mut self, prefix: u32, deadline: i64) {
        let (mut step, mut child) = (Step::ROOT, Child(self.root[0]));
        while child.is_node() {
            self.lower_deadline_at(step, deadline);
            (step, child) = self.descend(step, child, prefix);
        }
        let (step, _) = self.first(step, child);
        self.lower_deadline_at(step, deadline);
    }

    fn lower_deadline_at(&mut self, step: Step, deadline: i64) {
        if deadline < self.deadline(step, step.index) {
            self.set_deadline_at(step, step.index, deadline);
        }
    }

    /// Sets the deadline of the segment at `prefix`, and above it to the minima that follow.
    pub(super) fn set_deadline(&mut self, prefix: u32, deadline: i64) {
        let (path, _) = self.path(prefix);
        let mut minimum = deadline;
        for step in path.steps[..path.length].iter().rev() {
            self.set_deadline_at(*step, step.index, minimum);
            let deadlines = (0..step.words()).map(|index| self.deadline(*step, index));
            minimum = deadlines.min().unwrap_or(i64::MAX);
        }
        work::nodes(path.length);
    }

    /// Depth of the deepest segment.
    pub(super) fn deepest(&self) -> u32 {
        let deepest = self.depths.iter().rposition(|&segments| segments > 0);
        deepest.unwrap_or(0) as u32
    }

    /// Bytes of all segments and nodes.
    pub(super) fn allocated(&self) -> usize {
        self.segments * size_of::<Segment>() + self.node_bytes
    }

    fn allocate_node(&mut self, bits: u32) -> *mut u64 {
        let layout = node_layout(bits);
        // SAFETY: the layout is not empty.
        let Some(node) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        work::allocations(1);
        work::bytes(layout.size());
        self.node_bytes += layout.size();
        node.as_ptr().cast()
    }

    fn free_node(&mut self, step: Step) {
        let layout = node_layout(step.bits);
        work::allocations(1);
        self.node_bytes -= layout.size();
        // SAFETY: the node came from `allocate_node`; its word is overwritten by the caller.
        unsafe { dealloc(step.node.cast(), layout) }
    }
}

impl Drop for Directory {
    /// Frees nodes and segments. The entries must be gone: the table sees to that.
    fn drop(&mut self) {
        let mut prefix = 0;
        while self.segments > 0 {
            let (step, child) = self.locate(prefix);
            if !child.pointer().is_null() {
                debug_assert!(child.count() == 0);
                // SAFETY: the table has taken all entries.
                unsafe { self.vacate(step) };
            }
            prefix = (u64::from(start_of(prefix, child.depth())) + span(child.depth())) as u32;
        }
        // Each leaf of the trie is now empty, so that every node goes with its last leaf.
        let mut prefix = 0;
        while self.node_bytes > 0 {
            self.prune(prefix);
            let (_, child) = self.locate(prefix);
            prefix = (u64::from(start_of(prefix, child.depth())) + span(child.depth())) as u32;
        }
    }
}

fn node_layout(bits: u32) -> Layout {
    let size = size_of::<[u64; 2]>() << bits;
    Layout::from_size_align(size, NODE_ALIGN).expect("at most a KiB")
}

/// A segment as the checks of tests see it.
#[cfg(any(test, fuzzing))]
pub(super) struct Seen {
    pub(super) prefix: u32,
    pub(super) child: Child,
    pub(super) deadline: i64,
}

#[cfg(any(test, fuzzing))]
impl Directory {
    /// Checks the runs, deadlines and totals, and gives all segments in order of their prefix.
    pub(super) fn check(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut node_bytes = 0;
        self.check_below(Step::ROOT, 0, &mut node_bytes, &mut seen);
        let segments = seen.iter().filter(|seen| !seen.child.pointer().is_null()).count();
        assert_eq!((node_bytes, segments), (self.node_bytes, self.segments));
        let mut depths = [0; DEPTH_MAX as usize + 1];
        for seen in &seen {
            depths[seen.child.depth() as usize] += 1;
        }
        assert_eq!(depths, self.depths);
        seen
    }

    fn check_below(&self, step: Step, prefix: u32, bytes: &mut usize, seen: &mut Vec<Seen>) {
        let mut index = 0;
        while index < step.words() {
            let child = self.child(step, index);
            let deadline = self.deadline(step, index);
            let shift = PREFIX_BITS - step.base - step.bits;
            let prefix = (u64::from(prefix) + ((index as u64) << shift)) as u32;
            if child.is_node() {
                let (node, bits) = child.as_node();
                let below = Step { node, base: step.base + step.bits, bits, index: 0 };
                assert!(step.bits == 0 || step.bits == NODE_BITS_MAX, "only wide nodes have nodes");
                let least = (0..below.words()).map(|index| self.deadline(below, index)).min();
                assert!(deadline <= least.unwrap_or(deadline), "a deadline that is too late");
                *bytes += node_layout(bits).size();
                self.check_below(below, prefix, bytes, seen);
                index += 1;
                continue;
            }
            let collapsed = step.bits == 0 || child.depth() > step.base;
            assert!(collapsed, "a node that is one run");
            let run = step.run(child.depth());
            assert!(run.is_power_of_two() && index.is_multiple_of(run), "a run not aligned");
            for index in index + 1..index + run {
                assert!(self.child(step, index) == child.without_count(), "words that differ");
                assert_eq!(self.deadline(step, index), i64::MAX);
            }
            seen.push(Seen { prefix, child, deadline });
            index += run;
        }
    }
}
