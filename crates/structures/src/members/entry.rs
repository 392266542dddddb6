//! Hot path. How one member lies in the heap of a segment. The only place that knows: a later
//! structure with values after the members (a hash) extends this file.
//!
//! ```text
//! 0..=247        length; then the member
//! 248..=253, b   length = 248 + (first - 248) * 256 + b; then the member
//! 255            8 bytes owner of a large member, 8 bytes hash of it
//! ```
//!
//! A large member lies outside, in a reference-counted block, because a copy-on-write of its
//! segment must copy at most 4 KiB. Its hash lies inside, so that splitting a segment and refusing
//! a wrong candidate never touch the block.

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use crate::packed::block::{Block, Head, size_class};
use crate::work;

/// Longest member that lies in the segment itself: at least 7 of them fit a segment.
pub const MEMBER_INLINE_MAX: usize = 512;
/// First byte of the two-byte form of a length; smaller first bytes are lengths themselves.
const LONG: u8 = 248;
/// First byte of an entry whose member lies outside.
const OUTSIDE: u8 = 255;
/// Bytes of such an entry.
const OUTSIDE_BYTES: usize = 1 + 8 + 8;

const _: () = assert!(MEMBER_INLINE_MAX < LONG as usize + (OUTSIDE - LONG - 1) as usize * 256);
const _: () = assert!(size_of::<LargeMember>() == 8);

/// The fixed part of a large member's block.
pub(super) struct LargeHead {
    /// Bytes of the allocation.
    size: usize,
    /// Bytes of the member.
    length: usize,
}

// SAFETY: `size` is written once, when the block is created.
unsafe impl Head for LargeHead {
    fn size(&self) -> usize {
        self.size
    }
}

/// A member longer than [`MEMBER_INLINE_MAX`], in a block of its own. Make it before a latch is
/// taken, and drop it after: both cost as much as its bytes.
#[derive(Clone)]
pub struct LargeMember(Block<LargeHead>);

impl LargeMember {
    /// Copies the bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let size = size_class(Block::<LargeHead>::OVERHEAD + bytes.len());
        let mut block = Block::new(LargeHead { size, length: bytes.len() });
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        work::bytes(bytes.len());
        Self(block)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes()[..self.0.head().length]
    }

    /// Allocated bytes.
    pub fn allocated(&self) -> usize {
        self.0.head().size
    }
}

/// A member on its way into a segment.
#[derive(Clone, Copy)]
pub(super) enum NewMember<'a> {
    Inline(&'a [u8]),
    Outside(&'a LargeMember),
}

impl NewMember<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Outside(large) => large.as_bytes(),
        }
    }

    /// Bytes that [`NewMember::write`] needs.
    pub(super) fn entry_bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len() + if bytes.len() < LONG.into() { 1 } else { 2 },
            Self::Outside(_) => OUTSIDE_BYTES,
        }
    }

    /// Writes the entry to exactly [`NewMember::entry_bytes`] bytes.
    pub(super) fn write(&self, hash: u64, entry: &mut [u8]) {
        debug_assert_eq!(entry.len(), self.entry_bytes());
        match self {
            Self::Inline(bytes) if bytes.len() < LONG.into() => {
                entry[0] = bytes.len() as u8;
                entry[1..].copy_from_slice(bytes);
            }
            Self::Inline(bytes) => {
                let over = bytes.len() - usize::from(LONG);
                entry[0] = LONG + (over >> 8) as u8;
                entry[1] = over as u8;
                entry[2..].copy_from_slice(bytes);
            }
            Self::Outside(large) => {
                entry[0] = OUTSIDE;
                entry[9..].copy_from_slice(&hash.to_le_bytes());
                let raw = Block::into_raw(large.0.clone());
                let place: &mut [u8] = &mut entry[1..9];
                // SAFETY: 8 bytes for one pointer; unaligned is allowed here.
                unsafe { ptr::write_unaligned(place.as_mut_ptr().cast::<NonNull<u8>>(), raw) };
            }
        }
    }
}

/// An entry in the heap of a segment. `bytes` begins with the entry and may go on after it.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// # Safety
    /// `bytes` begins with an entry that [`NewMember::write`] wrote, and that is still counted as
    /// an owner of its large member, or with a copy of one made by [`Entry::copy_to`].
    #[inline]
    pub(super) unsafe fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    fn is_outside(self) -> bool {
        self.bytes[0] == OUTSIDE
    }

    /// Bytes of the entry.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self.bytes[0] {
            OUTSIDE => OUTSIDE_BYTES,
            first if first < LONG => 1 + usize::from(first),
            _ => 2 + self.long_length(),
        }
    }

    #[inline]
    fn long_length(self) -> usize {
        usize::from(LONG) + (usize::from(self.bytes[0] - LONG) << 8) + usize::from(self.bytes[1])
    }

    /// The large member of an entry that is one. Not an owner of its own: the entry is.
    pub(super) fn outside(self) -> Option<ManuallyDrop<LargeMember>> {
        if !self.is_outside() {
            return None;
        }
        let place = &self.bytes[1..9];
        // SAFETY: `write` put a pointer into these 8 bytes; unaligned is allowed here.
        let raw = unsafe { ptr::read_unaligned(place.as_ptr().cast::<NonNull<u8>>()) };
        // SAFETY: the pointer is an owner that was given away, and lives as long as the entry (see
        // `new`). It is not dropped here, so it is not taken back twice.
        Some(ManuallyDrop::new(LargeMember(unsafe { Block::from_raw(raw) })))
    }

    /// The member.
    #[inline]
    pub(super) fn member(self) -> &'a [u8] {
        match self.bytes[0] {
            first if first < LONG => &self.bytes[1..1 + usize::from(first)],
            OUTSIDE => self.outside_member(),
            _ => &self.bytes[2..2 + self.long_length()],
        }
    }

    #[cold]
    fn outside_member(self) -> &'a [u8] {
        let large = self.outside().expect("asked only for outside entries");
        let bytes: *const [u8] = large.as_bytes();
        // SAFETY: the block lives as long as the entry owns it, which is at least 'a.
        unsafe { &*bytes }
    }

    /// True when this is `member`, whose hash is `hash`.
    #[inline]
    pub(super) fn is(self, hash: u64, member: &[u8]) -> bool {
        if self.is_outside() {
            return self.stored_hash() == hash && self.member() == member;
        }
        self.member() == member
    }

    /// The hash of the member: the stored one, or else by `hash`.
    #[inline]
    pub(super) fn hash(self, hash: impl FnOnce(&[u8]) -> u64) -> u64 {
        if self.is_outside() { self.stored_hash() } else { hash(self.member()) }
    }

    fn stored_hash(self) -> u64 {
        let bytes = self.bytes[9..17].try_into().expect("a range of 8");
        u64::from_le_bytes(bytes)
    }

    /// Copies the entry to exactly [`Entry::len`] bytes. The copy owns its large member as well.
    #[inline]
    pub(super) fn copy_to(self, target: &mut [u8]) {
        target.copy_from_slice(&self.bytes[..target.len()]);
        self.add_owner();
    }

    /// Makes a second copy of the bytes of this entry an owner of its large member.
    #[inline]
    pub(super) fn add_owner(self) {
        if let Some(large) = self.outside() {
            std::mem::forget(LargeMember::clone(&large));
        }
    }
}
