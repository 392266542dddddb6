//! Hot path. Buckets of one cache line, and the chains that they form.
//!
//! ```text
//! segment, 4096 bytes, aligned: 64 buckets, no header
//! bucket, 64 bytes, aligned:    8 slots
//! slot:  [63..48] tag | [47..3] address of the entry | 2 unused | 1 the entry expires | 0 link
//! ```
//!
//! An empty slot is 0. Slot 7 is a link, to an overflow bucket of the same form, when its bit 0 is
//! set. Invariants of a chain: its entries fill the slots from the start without a gap, an
//! overflow bucket holds at least two entries. So a search ends at the first bucket without link,
//! and a chain of up to 8 entries is one line.
//!
//! A tag is 16 bits of the hash (which ones: `trie.rs`), so that a search reads an entry only when
//! it is nearly certain to be the right one, and a split reads none.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use super::entry::RawEntry;
use crate::cache::prefetch;
use crate::work;

/// Slots of a bucket.
pub(super) const SLOTS: usize = 8;
/// Buckets of a segment: the low 6 bits of the hash choose one.
pub(super) const BUCKETS: usize = 64;
/// The entry of this slot expires. Kept in the slot so that expiry reads only entries that do.
pub(super) const EXPIRES: u64 = 1 << 1;
/// Overflow buckets kept for reuse by a table: enough for the chain that a split works on.
const SPARE_MAX: u32 = 4;

const LINK: u64 = 1;
const LAST: usize = SLOTS - 1;
const TAG_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << TAG_SHIFT) - 8;

/// One cache line of slots.
#[repr(C, align(64))]
pub(super) struct Bucket([u64; SLOTS]);

/// What a directory word points to.
#[repr(C, align(4096))]
pub(super) struct Segment([Bucket; BUCKETS]);

const EMPTY: Bucket = Bucket([0; SLOTS]);

/// The slot for an entry.
pub(super) fn slot(tag: u16, entry: RawEntry, expires: bool) -> u64 {
    u64::from(tag) << TAG_SHIFT | entry.expose() | if expires { EXPIRES } else { 0 }
}

/// The entry of a slot that is neither empty nor a link.
pub(super) unsafe fn entry(slot: u64) -> RawEntry {
    // SAFETY: such a slot has the address of an entry.
    unsafe { RawEntry::from_exposed(slot & ADDRESS) }
}

pub(super) fn tag(slot: u64) -> u16 {
    (slot >> TAG_SHIFT) as u16
}

fn link(slot: u64) -> *mut Bucket {
    ptr::with_exposed_provenance_mut((slot & ADDRESS) as usize)
}

fn is_link(slot: u64) -> bool {
    slot & LINK != 0
}

impl Segment {
    /// A segment whose buckets the caller fills; they are not initialised.
    pub(super) fn allocate() -> NonNull<Bucket> {
        let layout = Layout::new::<Segment>();
        // SAFETY: the layout is not empty.
        let Some(segment) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        work::allocations(1);
        segment.cast()
    }

    /// A segment of empty buckets.
    pub(super) fn allocate_empty() -> NonNull<Bucket> {
        let segment = Self::allocate();
        work::bytes(size_of::<Segment>());
        // SAFETY: zero is the empty slot, and the block is a segment long.
        unsafe { segment.cast::<Segment>().write_bytes(0, 1) };
        segment
    }

    /// Frees a segment whose chains hold no entry.
    pub(super) unsafe fn free(segment: *mut Bucket) {
        work::allocations(1);
        // SAFETY: it came from `allocate`.
        unsafe { dealloc(segment.cast(), Layout::new::<Segment>()) }
    }
}

/// The overflow buckets of a table: how many it uses, and a few spare ones for reuse.
pub(super) struct Links {
    /// Chained through their first slot; 0 ends it.
    spare: u64,
    spare_count: u32,
    /// Buckets in chains.
    used: usize,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { spare: 0, spare_count: 0, used: 0 }
    }

    /// Overflow buckets in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of all overflow buckets.
    pub(super) fn allocated(&self) -> usize {
        (self.used + self.spare_count as usize) * size_of::<Bucket>()
    }

    fn acquire(&mut self) -> *mut Bucket {
        self.used += 1;
        if self.spare != 0 {
            let bucket = link(self.spare);
            // SAFETY: a spare bucket is ours, its first slot is the next one.
            unsafe {
                self.spare = (*bucket).0[0];
                *bucket = EMPTY;
            }
            self.spare_count -= 1;
            return bucket;
        }
        let layout = Layout::new::<Bucket>();
        // SAFETY: the layout is not empty.
        let Some(bucket) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        work::allocations(1);
        let bucket = bucket.as_ptr().cast::<Bucket>();
        // SAFETY: the block is a bucket long and aligned.
        unsafe { bucket.write(EMPTY) };
        bucket
    }

    /// Takes back a bucket that no chain refers to any more.
    unsafe fn release(&mut self, bucket: *mut Bucket) {
        self.used -= 1;
        // SAFETY: the bucket came from `acquire` and is the caller's alone.
        unsafe {
            if self.spare_count < SPARE_MAX {
                (*bucket).0[0] = self.spare;
                self.spare = bucket.expose_provenance() as u64;
                self.spare_count += 1;
                return;
            }
            work::allocations(1);
            dealloc(bucket.cast(), Layout::new::<Bucket>());
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        while self.spare != 0 {
            let bucket = link(self.spare);
            // SAFETY: a spare bucket is ours, its first slot is the next one.
            unsafe {
                self.spare = (*bucket).0[0];
                dealloc(bucket.cast(), Layout::new::<Bucket>());
            }
        }
    }
}

/// Where a slot is: in which bucket of a chain, at which index.
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) bucket: *mut Bucket,
    pub(super) index: usize,
}

impl Location {
    pub(super) unsafe fn slot(self) -> u64 {
        // SAFETY: the location is of a bucket that still exists.
        unsafe { (*self.bucket).0[self.index] }
    }

    pub(super) unsafe fn entry(self) -> RawEntry {
        // SAFETY: a location is of a slot with an entry.
        unsafe { entry(self.slot()) }
    }

    /// Overwrites the slot by another one of the same key.
    pub(super) unsafe fn set(self, slot: u64) {
        // SAFETY: as above.
        unsafe { (*self.bucket).0[self.index] = slot }
    }
}

/// Bits 4 * i + 3 are set for each slot i that has the tag.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn match_tags(bucket: *const Bucket, tag: u16) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_set1_epi16,
    };
    /// The fourth of each four lanes of 16 bits is a slot's tag.
    const TAG_LANES: u32 = 0x8888;
    // SAFETY: a bucket is four aligned vectors of 16 bytes; SSE2 is part of x86-64.
    unsafe {
        let vectors = bucket.cast::<__m128i>();
        let wanted = _mm_set1_epi16(tag as i16);
        let equal = |index| _mm_cmpeq_epi16(_mm_load_si128(vectors.add(index)), wanted);
        let low = _mm_movemask_epi8(_mm_packs_epi16(equal(0), equal(1))) as u32;
        let high = _mm_movemask_epi8(_mm_packs_epi16(equal(2), equal(3))) as u32;
        (low & TAG_LANES) | (high & TAG_LANES) << 16
    }
}

/// Bits 4 * i + 3 are set for each slot i that has the tag.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn match_tags(bucket: *const Bucket, wanted: u16) -> u32 {
    // SAFETY: the caller gives a bucket.
    let slots = unsafe { &(*bucket).0 };
    let bits = slots.iter().enumerate();
    bits.fold(0, |bits, (index, &slot)| bits | u32::from(tag(slot) == wanted) << (4 * index + 3))
}

/// The slot of a chain whose entry has the key.
#[inline]
pub(super) unsafe fn find(head: *mut Bucket, tag: u16, key: &[u8]) -> Option<Location> {
    let mut bucket = head;
    // SAFETY: the caller gives the head of a chain, whose links are buckets and whose other slots
    // that are not empty have entries.
    unsafe {
        loop {
            let mut matches = match_tags(bucket, tag);
            while matches != 0 {
                let index = (matches.trailing_zeros() / 4) as usize;
                let slot = (*bucket).0[index];
                // An empty slot and a link look like tag 0.
                if slot & (ADDRESS | LINK) != 0 && !is_link(slot) && entry(slot).key() == key {
                    return Some(Location { bucket, index });
                }
                matches &= matches - 1;
            }
            let last = (*bucket).0[LAST];
            if !is_link(last) {
                return None;
            }
            bucket = link(last);
        }
    }
}

/// Prefetches the entries with the tag in the bucket that is `links` links behind the head, or the
/// bucket behind that one if there are none. Returns whether there is nothing further to prefetch.
#[inline]
pub(super) unsafe fn prefetch_matches(head: *const Bucket, tag: u16, links: usize) -> bool {
    // SAFETY: the caller gives a bucket; a link leads to another one of its chain.
    unsafe {
        let mut bucket = head;
        for _ in 0..links {
            let last = (*bucket).0[LAST];
            if !is_link(last) {
                return true;
            }
            bucket = link(last).cast();
        }
        let mut matches = match_tags(bucket, tag);
        if matches == 0 {
            prefetch_link(bucket);
            return !is_link((*bucket).0[LAST]);
        }
        while matches != 0 {
            let index = (matches.trailing_zeros() / 4) as usize;
            prefetch(link((*bucket).0[index]));
            matches &= matches - 1;
        }
        true
    }
}

/// Prefetches the overflow bucket of a chain, if it has one.
pub(super) unsafe fn prefetch_link(head: *const Bucket) {
    // SAFETY: the caller gives a bucket.
    let last = unsafe { (*head).0[LAST] };
    if is_link(last) {
        prefetch(link(last));
    }
}

/// Prefetches the entries of a chain whose slots have all bits of `mask`.
pub(super) unsafe fn prefetch_entries(head: *mut Bucket, mask: u64) {
    // SAFETY: the caller gives the head of a chain.
    unsafe {
        for_each(head, |location| {
            let slot = location.slot();
            if slot & mask == mask {
                prefetch(link(slot));
            }
        });
    }
}

/// Calls `visit` with each slot that has an entry, in order.
pub(super) unsafe fn for_each(head: *mut Bucket, mut visit: impl FnMut(Location)) {
    let mut bucket = head;
    // SAFETY: the caller gives the head of a chain, and `visit` does not change it.
    unsafe {
        loop {
            for index in 0..SLOTS {
                let slot = (*bucket).0[index];
                if slot == 0 {
                    return;
                }
                if is_link(slot) {
                    bucket = link(slot);
                    break;
                }
                visit(Location { bucket, index });
                if index == LAST {
                    return;
                }
            }
        }
    }
}

/// The entry of this rank in a chain, if it is so long.
pub(super) unsafe fn nth(head: *mut Bucket, rank: usize) -> Option<RawEntry> {
    let (mut bucket, mut index) = (head, rank);
    // SAFETY: the caller gives the head of a chain.
    unsafe {
        while is_link((*bucket).0[LAST]) {
            if index < LAST {
                break;
            }
            index -= LAST;
            bucket = link((*bucket).0[LAST]);
        }
        let slot = *(*bucket).0.get(index)?;
        (slot != 0).then(|| entry(slot))
    }
}

/// Adds a slot at the end of a chain.
pub(super) unsafe fn push(head: *mut Bucket, slot: u64, links: &mut Links) -> Location {
    // SAFETY: the caller gives the head of a chain.
    unsafe {
        let mut writer = ChainWriter::at_end(head);
        writer.push(slot, links)
    }
}

/// Removes the slot at `location` of the chain and gives it. The last slot takes its place.
pub(super) unsafe fn remove(head: *mut Bucket, location: Location, links: &mut Links) -> u64 {
    // SAFETY: the caller gives the head of a chain and a location in it.
    unsafe {
        let removed = location.slot();
        let mut parent = ptr::null_mut::<Bucket>();
        let mut tail = head;
        while is_link((*tail).0[LAST]) {
            parent = tail;
            tail = link((*tail).0[LAST]);
        }
        let last = filled(tail) - 1;
        (*location.bucket).0[location.index] = (*tail).0[last];
        (*tail).0[last] = 0;
        if !parent.is_null() && last == 1 {
            (*parent).0[LAST] = (*tail).0[0];
            links.release(tail);
        }
        removed
    }
}

/// Takes all slots out of a chain, which is empty before `visit` is called for the first.
pub(super) unsafe fn take(head: *mut Bucket, links: &mut Links, mut visit: impl FnMut(u64)) {
    // SAFETY: the caller gives the head of a chain.
    unsafe {
        let mut reader = ChainReader::new(head);
        *head = EMPTY;
        while let Some(slot) = reader.next(links) {
            visit(slot);
        }
    }
}

/// Slots in use of a bucket without link.
unsafe fn filled(bucket: *const Bucket) -> usize {
    // SAFETY: the caller gives a bucket.
    let slots = unsafe { &(*bucket).0 };
    slots.iter().filter(|&&slot| slot != 0).count()
}

/// Reads a chain that is being taken apart: copies a bucket, gives it back, hands out the copy.
/// So the buckets of the old chain serve the new ones, and head and writer may be the same bucket.
pub(super) struct ChainReader {
    copy: [u64; SLOTS],
    index: usize,
}

impl ChainReader {
    pub(super) unsafe fn new(head: *const Bucket) -> Self {
        // SAFETY: the caller gives a bucket.
        Self { copy: unsafe { (*head).0 }, index: 0 }
    }

    pub(super) unsafe fn next(&mut self, links: &mut Links) -> Option<u64> {
        let slot = *self.copy.get(self.index)?;
        if !is_link(slot) {
            self.index += 1;
            return (slot != 0).then_some(slot);
        }
        let bucket = link(slot);
        // SAFETY: a link leads to a bucket, which nothing refers to once its slots are copied:
        // whoever takes a chain apart has overwritten or abandoned the bucket before it.
        unsafe {
            self.copy = (*bucket).0;
            links.release(bucket);
        }
        self.index = 1;
        Some(self.copy[0])
    }
}

/// Appends to a chain.
pub(super) struct ChainWriter {
    bucket: *mut Bucket,
    filled: usize,
}

impl ChainWriter {
    /// Overwrites the chain at `head` from its beginning; [`ChainWriter::finish`] must follow.
    pub(super) fn overwrite(head: *mut Bucket) -> Self {
        Self { bucket: head, filled: 0 }
    }

    /// Continues the chain at `head`.
    pub(super) unsafe fn at_end(head: *mut Bucket) -> Self {
        let mut bucket = head;
        // SAFETY: the caller gives the head of a chain.
        unsafe {
            while is_link((*bucket).0[LAST]) {
                bucket = link((*bucket).0[LAST]);
            }
            Self { bucket, filled: filled(bucket) }
        }
    }

    pub(super) unsafe fn push(&mut self, slot: u64, links: &mut Links) -> Location {
        // SAFETY: `bucket` is the last of the chain, its first `filled` slots are entries.
        unsafe {
            if self.filled == SLOTS {
                let overflow = links.acquire();
                (*overflow).0[0] = (*self.bucket).0[LAST];
                (*self.bucket).0[LAST] = overflow.expose_provenance() as u64 | LINK;
                self.bucket = overflow;
                self.filled = 1;
            }
            (*self.bucket).0[self.filled] = slot;
            self.filled += 1;
            Location { bucket: self.bucket, index: self.filled - 1 }
        }
    }

    /// Empties the slots behind the last one written.
    pub(super) unsafe fn finish(self) {
        // SAFETY: `bucket` is the last of the chain.
        unsafe { (&mut (*self.bucket).0)[self.filled..].fill(0) }
    }
}

/// Checks the invariants of a chain and gives its number of entries and of overflow buckets.
#[cfg(any(test, fuzzing))]
pub(super) unsafe fn check(head: *mut Bucket) -> (usize, usize) {
    let (mut entries, mut overflow, mut bucket) = (0, 0, head);
    // SAFETY: the caller gives the head of a chain.
    unsafe {
        loop {
            let slots = &(*bucket).0;
            assert!(slots[..LAST].iter().all(|&slot| !is_link(slot)), "only slot 7 may be a link");
            if is_link(slots[LAST]) {
                assert!(slots.iter().all(|&slot| slot != 0), "a linked bucket is full");
                entries += LAST;
                overflow += 1;
                bucket = link(slots[LAST]);
                continue;
            }
            let filled = filled(bucket);
            assert!(slots[filled..].iter().all(|&slot| slot == 0), "a gap in the chain");
            assert!(overflow == 0 || filled >= 2, "an overflow bucket of less than two");
            return (entries + filled, overflow);
        }
    }
}
