//! Hot path. Strings over 8 KiB: a copy-on-write radix tree of 4 KiB chunks.
//!
//! A string never inserts in its middle, so a chunk's place is its index (`offset / 4088`) and the
//! tree needs no counts: each level consumes five bits of the index, the top level the highest.
//! A child that is absent reads as zeros, so a range that nobody wrote costs nothing: `SETRANGE` at
//! the end of 512 MB allocates one path. The tree grows at the top (the old top becomes child 0 of
//! a new one); no old node is touched, nothing is ever rehashed, moved or reallocated.
//!
//! ```text
//! BigString   8 bytes: null (the empty string) or -> Root
//!
//! Root    0  8  reference count
//!         8  8  len      bytes of the string
//!        16  8  leaves   chunks present in the tree
//!        24  8  inners   inner nodes present in the tree
//!        32  8  top      null or -> Inner
//!        40  1  height   levels of inner nodes; chunk indexes below 32^height have a place
//!
//! Inner   0  8  reference count
//!         8  8  kind     Leaves (level 1) or Branch (levels 2 and up)
//!        16  8 x 32      null or -> Leaf (level 1), Inner (levels 2 and up)
//!
//! Leaf    0  8  reference count
//!         8  4088        bytes: the whole allocation is one page of 4096 bytes
//!
//!          bits 10..15   bits 5..10    bits 0..5 of the chunk index
//!   top ->  Branch  -->   Branch  -->   Leaves  -->  Leaf
//! ```
//!
//! Invariants: no leaf lies at or beyond `len`; bytes of the last leaf beyond `len` are zero;
//! `leaves` and `inners` are exact, counting shared nodes as if they were owned alone.
//!
//! Sharing: `clone` is one reference more on the root. A write first makes the path from the root
//! down to its leaf unique, copying what is shared; a count of 1 proves nothing below a shared
//! node, so uniqueness is always tested from the root down.
//!
//! Costs: a read visits `height` nodes (3 up to 134 MB, 4 up to 4 GB). The first write to a chunk
//! after a snapshot copies at most `height` nodes of 272 bytes, with 32 reference counts each, and
//! one chunk. Dropping the last handle frees every node: give big strings to a background reaper
//! that calls [`BigString::drop_step`].

use triomphe::{Arc, UniqueArc};

use crate::work;

#[cfg(any(test, fuzzing))]
mod drive;
#[cfg(test)]
mod tests;

#[cfg(any(test, fuzzing))]
pub use drive::drive;

/// Payload bytes of one chunk; with its reference count it fills 4096 bytes.
pub const CHUNK_BYTES: usize = 4096 - size_of::<usize>();
/// Children of an inner node. Copying a shared node touches this many cold reference counts, so a
/// larger fanout would make the first write after a snapshot slower than the flatter tree is worth.
const FANOUT: usize = 1 << FANOUT_BITS;
const FANOUT_BITS: u32 = 5;
/// What one leaf and one inner node occupy, reference counts included.
const LEAF_ALLOCATION_BYTES: usize = size_of::<usize>() + size_of::<Leaf>();
const INNER_ALLOCATION_BYTES: usize = size_of::<usize>() + size_of::<Inner>();
const ROOT_ALLOCATION_BYTES: usize = size_of::<usize>() + size_of::<Root>();

const _: () = assert!(LEAF_ALLOCATION_BYTES == 4096, "a chunk fills one page, no size class above");
const _: () = assert!(INNER_ALLOCATION_BYTES <= 320, "an inner node fits the 320-byte size class");
const _: () = assert!(size_of::<BigString>() == size_of::<usize>(), "a big string is one word");

/// What an absent chunk reads as.
static ZERO_CHUNK: Leaf = Leaf([0; CHUNK_BYTES]);

/// A long string of bytes; `clone` is an O(1) snapshot. See the module for layout and costs.
///
/// Methods that take a slice cost O(slice): callers bound it (64 KiB under a latch).
#[derive(Clone, Default)]
pub struct BigString {
    /// `None` is the empty string, which allocates nothing.
    root: Option<Arc<Root>>,
}

#[derive(Clone, Default)]
struct Root {
    /// Bytes of the string; the tree may be too small to have a place for all (they are zeros).
    len: u64,
    /// Leaves in the tree.
    leaves: u64,
    /// Inner nodes in the tree.
    inners: u64,
    /// The topmost inner node; `None` while nothing but zeros was written.
    top: Option<Arc<Inner>>,
    /// Levels of inner nodes; 0 while `top` is `None`.
    height: u32,
}

#[derive(Clone)]
enum Inner {
    /// Levels 2 and up.
    Branch([Option<Arc<Inner>>; FANOUT]),
    /// Level 1.
    Leaves([Option<Arc<Leaf>>; FANOUT]),
}

#[derive(Clone)]
struct Leaf([u8; CHUNK_BYTES]);

/// A chunk that is being filled, owned by nobody else; it becomes a leaf of a [`BigString`] without
/// a copy (see [`BigString::push_chunk`]).
pub struct ChunkBuffer {
    leaf: UniqueArc<Leaf>,
    /// Bytes filled so far; those behind are zeros.
    filled: usize,
}

impl ChunkBuffer {
    /// Allocates an empty chunk (one allocation of 4096 bytes).
    #[expect(clippy::new_without_default, reason = "an allocation should be visible in the code")]
    pub fn new() -> ChunkBuffer {
        work::allocations(1);
        work::bytes(CHUNK_BYTES);
        ChunkBuffer { leaf: UniqueArc::new(Leaf([0; CHUNK_BYTES])), filled: 0 }
    }

    /// Bytes filled so far.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether no byte was filled yet.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether [`CHUNK_BYTES`] bytes are filled.
    pub fn is_full(&self) -> bool {
        self.filled == CHUNK_BYTES
    }

    /// Copies as much of `bytes` as there is room for; returns how many bytes that were.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(CHUNK_BYTES - self.filled);
        work::bytes(count);
        self.leaf.0[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    /// What was filled so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.leaf.0[..self.filled]
    }
}

impl BigString {
    /// The empty string; allocates nothing.
    pub const fn new() -> BigString {
        BigString { root: None }
    }

    /// Bytes of the string. O(1).
    pub fn len(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.len)
    }

    /// Whether the string has no bytes. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes allocated for the string, counting shared nodes in full. O(1).
    pub fn bytes(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| {
            root.leaves * LEAF_ALLOCATION_BYTES as u64
                + root.inners * INNER_ALLOCATION_BYTES as u64
                + ROOT_ALLOCATION_BYTES as u64
        })
    }

    /// Allocations of the string: what a reaper must free, at most. O(1).
    pub fn weight(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| 1 + root.leaves + root.inners)
    }

    /// Whether both are the same version: no write happened to either since one was cloned from
    /// the other. O(1).
    pub fn same_version(&self, other: &BigString) -> bool {
        match (&self.root, &other.root) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (None, None) => true,
            _ => false,
        }
    }

    /// The longest contiguous piece that begins at `offset`: at most [`CHUNK_BYTES`], empty only
    /// at or beyond the end. O(height).
    pub fn chunk_at(&self, offset: u64) -> &[u8] {
        let Some(root) = &self.root else { return &[] };
        if offset >= root.len {
            return &[];
        }
        let (index, start) = locate(offset);
        let leaf = root.leaf(index).unwrap_or(&ZERO_CHUNK);
        let count = (root.len - offset).min((CHUNK_BYTES - start) as u64) as usize;
        &leaf.0[start..start + count]
    }

    /// Copies the bytes from `offset` on into `target`; returns how many there were (fewer than
    /// `target.len()` only at the end of the string). O(target).
    pub fn copy_range(&self, offset: u64, target: &mut [u8]) -> usize {
        let mut done = 0;
        while done < target.len() {
            let chunk = self.chunk_at(offset + done as u64);
            if chunk.is_empty() {
                break;
            }
            let count = chunk.len().min(target.len() - done);
            target[done..done + count].copy_from_slice(&chunk[..count]);
            done += count;
        }
        work::bytes(done);
        done
    }

    /// Whether the string consists of exactly `other`. O(other), O(1) if the lengths differ.
    pub fn equals(&self, other: &[u8]) -> bool {
        self.len() == other.len() as u64 && self.equals_at(0, other)
    }

    /// Whether `other` lies in the string at `offset`. O(other).
    pub fn equals_at(&self, offset: u64, other: &[u8]) -> bool {
        let mut done = 0;
        while done < other.len() {
            let chunk = self.chunk_at(offset + done as u64);
            let count = chunk.len().min(other.len() - done);
            work::bytes(count);
            if count == 0 || chunk[..count] != other[done..done + count] {
                return false;
            }
            done += count;
        }
        true
    }

    /// Adds `bytes` to the end. O(bytes).
    pub fn append(&mut self, bytes: &[u8]) {
        self.write_at(self.len(), bytes);
    }

    /// Overwrites the bytes from `offset` on, extending the string where it is too short; a gap
    /// between the old end and `offset` reads as zeros. Empty `bytes` change nothing. O(bytes).
    ///
    /// # Panics
    /// If `offset + bytes.len()` exceeds 64 bits.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        assert!(offset.checked_add(bytes.len() as u64).is_some(), "an end that exceeds 64 bits");
        let root = self.unique_root();
        root.len = root.len.max(offset + bytes.len() as u64);
        let mut rest = bytes;
        let (mut index, mut start) = locate(offset);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(CHUNK_BYTES - start));
            root.write_in_leaf(index, start, now);
            rest = later;
            index += 1;
            start = 0;
        }
    }

    /// Makes the string at least `len` bytes long, with zeros; allocates at most the root. O(1).
    pub fn extend_with_zeros(&mut self, len: u64) {
        if len > self.len() {
            self.unique_root().len = len;
        }
    }

    /// Adds the filled part of `chunk` to the end. If the string ends at a chunk's end (it does
    /// when all chunks but the last were pushed full) the chunk becomes a leaf, O(height);
    /// otherwise its bytes are copied.
    pub fn push_chunk(&mut self, chunk: ChunkBuffer) {
        let (index, start) = locate(self.len());
        if chunk.is_empty() {
            return;
        }
        if start != 0 {
            return self.append(chunk.as_slice());
        }
        let root = self.unique_root();
        root.len += chunk.filled as u64;
        let (slot, leaves) = root.slot(index);
        debug_assert!(slot.is_none(), "a leaf beyond the end of the string");
        *slot = Some(chunk.leaf.shareable());
        *leaves += 1;
    }

    /// Frees at most about `budget_nodes` nodes (at least one) and returns whether nothing is left.
    /// Nodes that a snapshot still holds are released, not freed. Between the first call and the
    /// drop of the string only this method may be called.
    pub fn drop_step(&mut self, budget_nodes: usize) -> bool {
        let Some(root) = &mut self.root else { return true };
        let mut budget = budget_nodes.max(1);
        if let Some(root) = Arc::get_mut(root)
            && let Some(top) = &mut root.top
            && !drop_children(top, &mut budget)
        {
            return false;
        }
        work::allocations(2);
        self.root = None;
        true
    }

    /// Checks the module's invariants in O(len).
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self) {
        let Some(root) = &self.root else { return };
        let mut leaves = 0;
        let mut inners = 0;
        assert_eq!(root.height == 0, root.top.is_none(), "height 0 without a top only");
        if let Some(top) = &root.top {
            check_node(top, root.height, 0, root.len, &mut leaves, &mut inners);
        }
        assert_eq!(leaves, root.leaves, "counted leaves");
        assert_eq!(inners, root.inners, "counted inner nodes");
    }

    fn unique_root(&mut self) -> &mut Root {
        make_unique(self.root.get_or_insert_with(|| {
            work::allocations(1);
            Arc::new(Root::default())
        }))
    }
}

impl std::fmt::Debug for BigString {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "BigString({} bytes)", self.len())
    }
}

impl Root {
    /// The leaf with this chunk index; `None` reads as zeros.
    fn leaf(&self, index: u64) -> Option<&Leaf> {
        if !has_place(self.height, index) {
            return None;
        }
        work::nodes(self.height as usize + 1);
        let mut node = self.top.as_ref()?;
        let mut level = self.height;
        loop {
            match &**node {
                Inner::Branch(children) => node = children[child_slot(index, level)].as_ref()?,
                Inner::Leaves(leaves) => return leaves[child_slot(index, 1)].as_deref(),
            }
            level -= 1;
        }
    }

    /// The place of the leaf with this chunk index, for writing, and the count of leaves to adjust
    /// when an empty place is filled. Grows the tree until it has that place and makes the nodes
    /// above it unique.
    fn slot(&mut self, index: u64) -> (&mut Option<Arc<Leaf>>, &mut u64) {
        self.grow(index);
        let Root { top, leaves, inners, height, .. } = self;
        work::nodes(*height as usize + 1);
        let mut level = *height;
        let mut place = top;
        loop {
            let node = place.get_or_insert_with(|| {
                *inners += 1;
                Inner::empty(level)
            });
            match make_unique(node) {
                Inner::Branch(children) => place = &mut children[child_slot(index, level)],
                Inner::Leaves(children) => return (&mut children[child_slot(index, 1)], leaves),
            }
            level -= 1;
        }
    }

    /// Adds levels at the top until chunk `index` has a place.
    fn grow(&mut self, index: u64) {
        while !has_place(self.height, index) {
            self.height += 1;
            if let Some(old) = self.top.take() {
                let mut children = [const { None }; FANOUT];
                children[0] = Some(old);
                work::allocations(1);
                self.top = Some(Arc::new(Inner::Branch(children)));
                self.inners += 1;
            }
        }
    }

    fn write_in_leaf(&mut self, index: u64, start: usize, bytes: &[u8]) {
        let (slot, leaves) = self.slot(index);
        work::bytes(bytes.len());
        let leaf = slot.get_or_insert_with(|| {
            *leaves += 1;
            work::allocations(1);
            work::bytes(CHUNK_BYTES);
            Arc::new(Leaf([0; CHUNK_BYTES]))
        });
        make_unique(leaf).0[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Inner {
    fn empty(level: u32) -> Arc<Inner> {
        work::allocations(1);
        Arc::new(match level {
            1 => Inner::Leaves([const { None }; FANOUT]),
            _ => Inner::Branch([const { None }; FANOUT]),
        })
    }
}

/// The chunk index of an offset, and the place in that chunk.
fn locate(offset: u64) -> (u64, usize) {
    (offset / CHUNK_BYTES as u64, (offset % CHUNK_BYTES as u64) as usize)
}

/// Whether a tree of this height has a place for chunk `index`.
fn has_place(height: u32, index: u64) -> bool {
    index.checked_shr(height * FANOUT_BITS).unwrap_or(0) == 0 && height > 0
}

/// Which child of a node at `level` (1 is the lowest) leads to chunk `index`.
fn child_slot(index: u64, level: u32) -> usize {
    (index >> ((level - 1) * FANOUT_BITS)) as usize % FANOUT
}

/// `Arc::make_mut` that reports the copy of a shared node. The counts of its children (all of
/// them, for an inner node) are cold cache lines.
fn make_unique<T: Clone>(node: &mut Arc<T>) -> &mut T {
    if !node.is_unique() {
        work::allocations(1);
        match size_of::<T>() {
            CHUNK_BYTES => work::bytes(CHUNK_BYTES),
            _ => work::nodes(FANOUT / 2),
        }
    }
    Arc::make_mut(node)
}

/// Frees what lies below `node` until the budget is used up; returns whether `node` itself may be
/// dropped in O(1): it is shared, or has no children left.
fn drop_children(node: &mut Arc<Inner>, budget: &mut usize) -> bool {
    let Some(inner) = Arc::get_mut(node) else { return true };
    match inner {
        Inner::Leaves(leaves) => drop_places(leaves, budget, |_, _| true),
        Inner::Branch(children) => drop_places(children, budget, drop_children),
    }
}

/// Empties the places from the back as long as the budget lasts; `ready` frees what lies below a
/// child and tells whether the child itself may go.
fn drop_places<T>(
    places: &mut [Option<Arc<T>>; FANOUT],
    budget: &mut usize,
    ready: impl Fn(&mut Arc<T>, &mut usize) -> bool,
) -> bool {
    for place in places.iter_mut().rev() {
        let Some(child) = place else { continue };
        if *budget == 0 || !ready(child, budget) {
            return false;
        }
        work::allocations(1);
        *place = None;
        *budget = budget.saturating_sub(1);
    }
    true
}

fn check_node(
    node: &Inner,
    level: u32,
    first_index: u64,
    len: u64,
    leaves: &mut u64,
    inners: &mut u64,
) {
    *inners += 1;
    match node {
        Inner::Branch(children) => {
            assert!(level > 1, "a branch at the level of leaves");
            for (slot, child) in (0..).zip(children) {
                let index = first_index + (slot << ((level - 1) * FANOUT_BITS));
                if let Some(child) = child {
                    check_node(child, level - 1, index, len, leaves, inners);
                }
            }
        }
        Inner::Leaves(children) => {
            assert_eq!(level, 1, "leaves above level 1");
            for (index, leaf) in (first_index..).zip(children) {
                let Some(leaf) = leaf else { continue };
                *leaves += 1;
                let start = index * CHUNK_BYTES as u64;
                assert!(start < len, "a leaf beyond the end of the string");
                let used = (len - start).min(CHUNK_BYTES as u64) as usize;
                assert!(leaf.0[used..].iter().all(|&byte| byte == 0), "bytes beyond the end");
            }
        }
    }
}
