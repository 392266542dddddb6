//! Hot path. Members: the set of a large collection, a copy-on-write table of segments.
//!
//! ```text
//! Members --> root { length, bytes, parts, top }
//!                                          |
//!                  node: branch = next 6 bits of the hash, from the top
//!                 /          |            \
//!             segment     segment        node
//!                                       /  |  \
//!                              segments of at most 4096 bytes
//!
//! hash 64:   63 ............................ 16 | 15 ................... 0
//!            directory prefix, 6 bits a level   | position in the segment, the top 4 = scan group
//! ```
//!
//! This is extendible hashing with a trie for directory, so that nothing is ever doubled: a segment
//! that is full is parted by the next bit of the prefix, a segment and its buddy that have become
//! small are merged, and a node that is left with one segment is replaced by it. Every part is
//! reference-counted and held by one pointer of each version that contains it: cloning a table is
//! one counter, and a change copies what it meets on its path that has other owners. (Fagin et al.,
//! *Extendible hashing*, 1979; the bytes are drawn in `members/part.rs`, `members/segment.rs` and
//! `members/entry.rs`.)
//!
//! Invariants: a member is in the segment that its prefix leads to; `length`, `bytes` and `parts`
//! of the root are sums over what it reaches; the rest is beside the drawings.
//!
//! Costs: 19-22 bytes per member of 12 (5 for slot and length, the slack of size classes, under 1
//! for the directory). Lookup: two or three nodes, which are few and cached, then two or three
//! lines of one segment. Insertion: at most one split, of one segment, 4096 bytes read and 4 KiB
//! and a bit written. First change after a clone: the root, each node of the path (at most 64
//! counters each), one segment. No allocation is above 4096 bytes, but for one member longer than
//! 512 bytes.
//!
//! The hash is [`crate::hash::hash`] of the member, computed by the caller, who often has it.
//! Splits and merges compute it again for the members of one segment (1 us), instead of storing 4
//! more bytes with each.

mod edit;
mod entry;
mod part;
mod segment;
#[cfg(any(test, fuzzing))]
mod tests;
mod walk;

use std::marker::PhantomData;
use std::mem::size_of;

use self::entry::NewMember;
pub use self::entry::{LargeMember, MEMBER_INLINE_MAX};
use self::part::Part;
use self::segment::Place;
#[cfg(any(test, fuzzing))]
pub use self::tests::drive;
pub use self::walk::{Remains, Walk};
use crate::packed::Packed;
use crate::packed::block::{Block, Head, size_class};
use crate::work;

/// Low bits of the hash that order the members of a segment; the others lead to it.
const POSITION_BITS: u32 = 16;
/// Bits of the hash.
const HASH_BITS: u32 = 64;

/// The sizes of a table. There is one for production, [`Standard`], and smaller ones for tests, in
/// which a few members make many levels.
pub trait Shape: Send + Sync + 'static {
    /// Bits per level of the directory; a divisor of 48, at most 6.
    const LEVEL_BITS: u32;
    /// A segment that would need more is split; a size class of at most 4096 bytes.
    const SEGMENT_BYTES_MAX: usize;
    /// The hash that callers pass with a member.
    fn hash(member: &[u8]) -> u64;
}

/// The shape of all tables outside tests.
pub struct Standard;

impl Shape for Standard {
    const LEVEL_BITS: u32 = 6;
    const SEGMENT_BYTES_MAX: usize = 4096;

    #[inline]
    fn hash(member: &[u8]) -> u64 {
        crate::hash::hash(member)
    }
}

/// What a version of a table has in one place.
#[derive(Clone)]
struct Root {
    /// Members.
    length: u64,
    sizes: Sizes,
    /// A segment, or the first node.
    top: Part,
}

/// Sums over the parts of a version.
#[derive(Clone, Copy)]
struct Sizes {
    /// Allocated bytes, those of large members included.
    bytes: u64,
    /// Nodes, segments and large members.
    parts: u64,
}

impl Sizes {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.parts += 1;
    }

    fn subtract(&mut self, bytes: usize) {
        self.bytes -= bytes as u64;
        self.parts -= 1;
    }

    /// A part was replaced by one of another size.
    fn replace(&mut self, before: u16, after: u16) {
        self.bytes = self.bytes + u64::from(after) - u64::from(before);
    }
}

/// Size of the block that the root lies in.
const ROOT_BYTES: usize = size_class(size_of::<Root>() + 8);

// SAFETY: the size is a constant.
unsafe impl Head for Root {
    fn size(&self) -> usize {
        ROOT_BYTES
    }
}

/// What [`Members::take`] found.
#[derive(Debug)]
pub enum Taken {
    Absent,
    /// Removed; nothing is left of it.
    Inline,
    /// Removed; its memory is the caller's to drop, outside a latch if it is large.
    Outside(LargeMember),
}

impl std::fmt::Debug for LargeMember {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "LargeMember({} bytes)", self.as_bytes().len())
    }
}

/// A set of byte strings of any number, see the file's drawing. One word.
///
/// A clone is a snapshot: O(1), and not changed by what happens to the original.
pub struct Members<S: Shape = Standard> {
    root: Block<Root>,
    shape: PhantomData<fn() -> S>,
}

impl Members {
    /// An empty set.
    pub fn new() -> Self {
        Self::with_shape()
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Shape> Clone for Members<S> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), shape: PhantomData }
    }
}

impl<S: Shape> Members<S> {
    /// An empty set of a chosen shape.
    pub fn with_shape() -> Self {
        const {
            assert!((HASH_BITS - POSITION_BITS).is_multiple_of(S::LEVEL_BITS));
            assert!(S::LEVEL_BITS <= 6);
            assert!(S::SEGMENT_BYTES_MAX <= segment::SEGMENT_BYTES_LIMIT);
            assert!(S::SEGMENT_BYTES_MAX == size_class(S::SEGMENT_BYTES_MAX));
        }
        Self::with_top(segment::new_segment())
    }

    /// A set of the members of a packed one, for when that is full.
    pub fn from_packed(packed: &Packed) -> Self {
        // One segment holds all as a rule, if its size is right at once.
        let mut members =
            Self::with_top(segment::new_segment_for(packed.len(), packed.data_bytes()));
        for member in packed {
            members.insert(S::hash(member), member);
        }
        members
    }

    fn with_top(top: Part) -> Self {
        let mut sizes = Sizes { bytes: ROOT_BYTES as u64, parts: 1 };
        sizes.add(top.head().size.into());
        Self { root: Block::new(Root { length: 0, sizes, top }), shape: PhantomData }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> u64 {
        self.root.head().length
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocated bytes that this version reaches, shared ones included.
    pub fn bytes(&self) -> u64 {
        self.root.head().sizes.bytes
    }

    /// Number of allocations that this version reaches: the work of dropping it.
    pub fn weight(&self) -> u64 {
        self.root.head().sizes.parts
    }

    /// True when both are the same version, unchanged since one was cloned from the other.
    pub fn same_version(&self, other: &Self) -> bool {
        self.root.same(&other.root)
    }

    /// True when `member`, whose hash is `hash`, is present.
    #[inline]
    pub fn contains(&self, hash: u64, member: &[u8]) -> bool {
        matches!(self.find(hash, member), Place::Found(_))
    }

    /// Adds a member; false when it was present.
    ///
    /// A member longer than [`MEMBER_INLINE_MAX`] is copied to an allocation of its own first; when
    /// it may be long, make that before, and call [`Members::insert_large`].
    pub fn insert(&mut self, hash: u64, member: &[u8]) -> bool {
        let Place::Absent(index) = self.find(hash, member) else { return false };
        if member.len() > MEMBER_INLINE_MAX {
            self.insert_absent(hash, index, NewMember::Outside(&LargeMember::new(member)));
        } else {
            self.insert_absent(hash, index, NewMember::Inline(member));
        }
        true
    }

    /// Adds a member that already has a block of its own; false when it was present.
    pub fn insert_large(&mut self, hash: u64, member: &LargeMember) -> bool {
        let Place::Absent(index) = self.find(hash, member.as_bytes()) else { return false };
        self.insert_absent(hash, index, NewMember::Outside(member));
        true
    }

    /// Removes a member; false when it was absent.
    pub fn remove(&mut self, hash: u64, member: &[u8]) -> bool {
        !matches!(self.take(hash, member), Taken::Absent)
    }

    /// Removes a member, and returns its memory if that is not part of the table.
    pub fn take(&mut self, hash: u64, member: &[u8]) -> Taken {
        let Place::Found(index) = self.find(hash, member) else { return Taken::Absent };
        let root = self.unique_root();
        root.length -= 1;
        match edit::remove::<S>(root, hash, index) {
            Some(large) => {
                root.sizes.subtract(large.allocated());
                Taken::Outside(large)
            }
            None => Taken::Inline,
        }
    }

    /// True when a change of the member with this hash would copy a part that another version has,
    /// too. Looks at every part on the path: a copied root does not mean that what is below is ours.
    pub fn is_shared_at(&self, hash: u64) -> bool {
        if !self.root.is_unique() {
            return true;
        }
        let mut part = &self.root.head().top;
        let mut shift = HASH_BITS;
        work::nodes(1);
        while part.is_unique() {
            if !part.is_node() {
                return false;
            }
            shift -= S::LEVEL_BITS;
            part = &part.kids()[part.kid_index(branch::<S>(hash, shift))];
        }
        true
    }

    fn insert_absent(&mut self, hash: u64, index: usize, member: NewMember<'_>) {
        debug_assert_eq!(hash, S::hash(member.bytes()));
        let root = self.unique_root();
        if let NewMember::Outside(large) = member {
            root.sizes.add(large.allocated());
        }
        root.length += 1;
        edit::insert::<S>(root, hash, index, member);
    }

    /// The root, copied if other versions have it too.
    fn unique_root(&mut self) -> &mut Root {
        if !self.root.is_unique() {
            self.root = Block::new(self.root.head().clone());
        }
        self.root.head_mut()
    }

    #[inline]
    fn find(&self, hash: u64, member: &[u8]) -> Place {
        let mut part = &self.root.head().top;
        let mut shift = HASH_BITS;
        while part.is_node() {
            shift -= S::LEVEL_BITS;
            part = &part.kids()[part.kid_index(branch::<S>(hash, shift))];
        }
        work::nodes(((HASH_BITS - shift) / S::LEVEL_BITS) as usize + 2);
        segment::find(part, hash, member)
    }
}

/// The branch that a hash takes at the level whose lowest bit is `shift`.
#[inline]
fn branch<S: Shape>(hash: u64, shift: u32) -> u32 {
    (hash >> shift) as u32 & (branches::<S>() - 1)
}

/// Branches of a node.
#[inline]
const fn branches<S: Shape>() -> u32 {
    1 << S::LEVEL_BITS
}
