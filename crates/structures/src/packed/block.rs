//! Hot path. A reference-counted allocation: counter, head of a chosen type, raw bytes.
//!
//! ```text
//! 0  4  references   how many owners
//! 4  .. head: H      knows the size of the whole allocation
//! .. .. bytes        up to that size, zeroed at first
//! ```
//!
//! What `triomphe::Arc` is for one type, this is for blocks whose length is not in the type and not
//! in the pointer: an owner is one word, and the size of the *whole* allocation is chosen, so that
//! it is a size class of the allocator and nothing is lost to rounding.
//!
//! Invariants: the bytes and the head change only through an owner that is alone
//! ([`Block::is_unique`]); the size in the head never changes after creation.
//!
//! Costs: clone and drop are one atomic operation each; a new block is zeroed (60 ns for 4 KiB),
//! which keeps every access to it safe.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::process::abort;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::work;

/// Alignment of every block, and so of the first byte after a head of a multiple of 8 bytes.
pub(crate) const BLOCK_ALIGNMENT: usize = 8;
/// More owners than this can only be a leak of owners: abort before the counter wraps.
const REFERENCES_MAX: u32 = 1 << 31;
/// Up to this size the allocator's classes are 16 bytes apart, above it four per doubling.
const FINE_CLASS_MAX: usize = 128;

/// The smallest size class of the allocator that holds `bytes`.
#[inline]
pub(crate) const fn size_class(bytes: usize) -> usize {
    if bytes <= FINE_CLASS_MAX {
        return if bytes == 0 { 16 } else { bytes.next_multiple_of(16) };
    }
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}

/// The fixed part of a block.
///
/// # Safety
/// `size` must return the same value for the whole life of the block: the size given to
/// [`Block::new`].
pub(crate) unsafe trait Head: Sized {
    /// Size of the whole allocation in bytes.
    fn size(&self) -> usize;

    /// Called once, by the last owner, before the memory is freed.
    fn dispose(_block: &mut Block<Self>) {}
}

#[repr(C)]
struct Inner<H> {
    references: AtomicU32,
    head: H,
}

/// One owner of a block. One word, never null, so `Option<Block<H>>` is one word too.
#[repr(transparent)]
pub(crate) struct Block<H: Head> {
    inner: NonNull<Inner<H>>,
    marker: PhantomData<Inner<H>>,
}

// SAFETY: a block gives `&H` to all owners and `&mut H` only to one that is alone, as `Arc` does.
unsafe impl<H: Head + Send + Sync> Send for Block<H> {}
// SAFETY: as above.
unsafe impl<H: Head + Send + Sync> Sync for Block<H> {}

impl<H: Head> Block<H> {
    /// Bytes of counter and head: what a block is larger than its bytes.
    pub(crate) const OVERHEAD: usize = size_of::<Inner<H>>();

    /// A new block of `head.size()` bytes in all, with zeroed bytes after the head.
    pub(crate) fn new(head: H) -> Self {
        let layout = Self::layout(head.size());
        assert!(layout.size() >= Self::OVERHEAD);
        work::allocations(1);
        work::bytes(layout.size());
        // SAFETY: the layout is not of size zero: it holds at least the head.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(inner) = NonNull::new(memory.cast::<Inner<H>>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the memory is ours, large enough for `Inner` (asserted) and aligned for it.
        unsafe { inner.write(Inner { references: AtomicU32::new(1), head }) };
        Self { inner, marker: PhantomData }
    }

    fn layout(size: usize) -> Layout {
        const { assert!(align_of::<Inner<H>>() <= BLOCK_ALIGNMENT) };
        Layout::from_size_align(size, BLOCK_ALIGNMENT).expect("a block is smaller than isize::MAX")
    }

    #[inline]
    pub(crate) fn head(&self) -> &H {
        // SAFETY: `inner` is valid while an owner exists; nobody changes it while this one lives,
        // but through this one.
        unsafe { &self.inner.as_ref().head }
    }

    /// The bytes after the head.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let length = self.head().size() - Self::OVERHEAD;
        // SAFETY: the allocation has `size` bytes, all initialised (zeroed at first); no `&mut`
        // exists while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.inner.as_ptr().add(1).cast::<u8>(), length) }
    }

    /// True when no other owner exists. Then none can appear but by cloning this one.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        // Acquire: what former owners read from the block happened before we change it.
        // SAFETY: `inner` is valid while an owner exists.
        unsafe { self.inner.as_ref() }.references.load(Ordering::Acquire) == 1
    }

    /// Head and bytes, to change. The size in the head must stay.
    ///
    /// # Panics
    /// When the block has another owner.
    #[inline]
    pub(crate) fn parts_mut(&mut self) -> (&mut H, &mut [u8]) {
        assert!(self.is_unique(), "only a block with one owner may change");
        let length = self.head().size() - Self::OVERHEAD;
        let inner = self.inner.as_ptr();
        // SAFETY: we are the only owner and hold it mutably; head and bytes do not overlap, and the
        // allocation has `size` initialised bytes.
        unsafe {
            (&mut (*inner).head, std::slice::from_raw_parts_mut(inner.add(1).cast::<u8>(), length))
        }
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut H {
        self.parts_mut().0
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.parts_mut().1
    }

    /// True when both are owners of one block.
    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.inner == other.inner
    }

    /// Asks the processor for the line with counter and head.
    #[inline]
    pub(crate) fn prefetch(&self) {
        crate::cache::prefetch(self.inner.as_ptr());
    }

    /// Gives the owner away as a pointer; [`Block::from_raw`] takes it back.
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).inner.cast()
    }

    /// Takes back an owner that was given away.
    ///
    /// # Safety
    /// `raw` came from [`Block::into_raw`] of the same `H`, and is taken back once.
    pub(crate) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self { inner: raw.cast(), marker: PhantomData }
    }

    /// Gives this owner up like a drop, but returns it when it was the last: then the caller takes
    /// the block apart. Exactly one of the owners of a block gets it back.
    pub(crate) fn release(self) -> Option<Self> {
        let mut owner = std::mem::ManuallyDrop::new(self);
        owner.subtract().then(|| std::mem::ManuallyDrop::into_inner(owner))
    }

    /// Counts one owner less. True when it was the last; it is then counted again.
    #[inline]
    fn subtract(&mut self) -> bool {
        // SAFETY: `inner` is valid while an owner exists.
        let references = unsafe { &self.inner.as_ref().references };
        if references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // What the other owners read happened before we take the block apart.
        fence(Ordering::Acquire);
        references.store(1, Ordering::Relaxed);
        true
    }

    #[cold]
    fn free(&mut self) {
        H::dispose(self);
        work::allocations(1);
        let layout = Self::layout(self.head().size());
        // SAFETY: the block was allocated with this layout, and nobody owns it any more.
        unsafe {
            self.inner.drop_in_place();
            dealloc(self.inner.as_ptr().cast(), layout);
        }
    }
}

impl<H: Head> Clone for Block<H> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: `inner` is valid while an owner exists.
        let before = unsafe { self.inner.as_ref() }.references.fetch_add(1, Ordering::Relaxed);
        if before > REFERENCES_MAX {
            abort();
        }
        Self { inner: self.inner, marker: PhantomData }
    }
}

impl<H: Head> Drop for Block<H> {
    #[inline]
    fn drop(&mut self) {
        if self.subtract() {
            self.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_are_the_allocator_s() {
        let expected = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512];
        for pair in expected.windows(2) {
            assert_eq!(size_class(pair[0]), pair[0]);
            assert_eq!(size_class(pair[0] + 1), pair[1]);
        }
        assert_eq!(size_class(0), 16);
        assert_eq!(size_class(2049), 2560);
        assert_eq!(size_class(4096), 4096);
    }
}
