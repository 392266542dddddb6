//! Hot path. Segments: the leaves of the table, one block of at most 4096 bytes each.
//!
//! ```text
//!  0  4  references
//!  4  2  size        of the allocation, a size class
//!  6  2  count       entries
//!  8  8  starts      0 (a directory node has its bitmap here)
//! 16  2  heap        bytes used at the end of the block, garbage included
//! 18  2  garbage     bytes of removed entries among them
//! 20  2  outside     entries whose member lies outside
//! 22  2  kind        segment
//! 24  4 * count      slots, ascending: low 16 bits of the hash << 16 | distance of the first byte
//!                    of the entry from the end of the block
//! ..  ..             gap
//! ..  heap           entries (see entry.rs), the newest first
//! ```
//!
//! The slots are sorted by 16 bits of the hash, so there is no load factor, no overflow and no
//! tombstone: a lookup guesses the place from the bits and looks around. Insertion moves 4 bytes
//! per later slot, at most 1.5 KiB. Distances are counted from the end, so that a copy to a larger
//! block changes no slot.
//!
//! Space: 4 bytes of slot and 1 of length per member, 24 per segment, and what the size class
//! leaves.

use super::Shape;
use super::entry::{Entry, LargeMember, NewMember};
use super::part::{Kind, PART_OVERHEAD, Part, PartHead};
use crate::packed::block::size_class;
use crate::work;

/// Slots around the guessed place that are compared at once: the guess is 8 off as a rule in a full
/// segment of short members, so one lookup in twenty must search on.
const WINDOW: usize = 32;
/// Bytes of one slot.
const SLOT_BYTES: usize = 4;
/// The smallest segment.
pub(super) const SEGMENT_BYTES_MIN: usize = 256;
/// No shape has larger segments: what one latch hold may allocate and copy without a thought.
pub(super) const SEGMENT_BYTES_LIMIT: usize = 4096;
/// What a large member counts beside its entry, so that a segment has at most about 30 of them: a
/// copy of the segment has to count one more owner of each, with a cache miss.
const OUTSIDE_CHARGE: usize = 112;
/// Largest segment of members that agree in all bits that could part them. A hash with a secret
/// seed never fills one.
const UNSPLITTABLE_BYTES_MAX: usize = 57_344;

/// The 16 hash bits that order a segment.
#[inline]
pub(super) fn position(hash: u64) -> u32 {
    u32::from(hash as u16)
}

/// Where a member is in a segment, or where its slot would go.
pub(super) enum Place {
    Found(usize),
    Absent(usize),
}

/// What became of an attempt to insert.
pub(super) enum Fit {
    Done,
    /// The segment has to be split first.
    Full,
}

/// An empty segment of the smallest size.
pub(super) fn new_segment() -> Part {
    with_size(SEGMENT_BYTES_MIN)
}

/// An empty segment with room for `count` members of `bytes` in all, as far as one may have it.
pub(super) fn new_segment_for(count: usize, bytes: usize) -> Part {
    let needed = PART_OVERHEAD + count * (SLOT_BYTES + 1) + bytes;
    with_size(size_class(needed.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_LIMIT)))
}

fn with_size(size: usize) -> Part {
    let size = u16::try_from(size).expect("a segment is smaller than 64 KiB");
    Part::new(PartHead::segment(size))
}

/// Bytes that the entries of a segment need, without garbage or gap.
#[inline]
pub(super) fn live_bytes(segment: &Part) -> usize {
    let head = segment.head();
    PART_OVERHEAD + head.count() * SLOT_BYTES + usize::from(head.heap - head.garbage)
}

/// Like [`live_bytes`], with what large members count in addition: this is compared with limits.
#[inline]
pub(super) fn charged_bytes(segment: &Part) -> usize {
    live_bytes(segment) + usize::from(segment.head().outside) * OUTSIDE_CHARGE
}

#[inline]
fn entry_at(segment: &Part, slot: u32) -> Entry<'_> {
    let bytes = segment.bytes();
    let start = bytes.len() - (slot & 0xFFFF) as usize;
    // SAFETY: every slot of a segment tells the place of an entry that is counted as an owner.
    unsafe { Entry::new(&bytes[start..]) }
}

/// The entry of the slot with this index.
#[inline]
pub(super) fn entry(segment: &Part, index: usize) -> Entry<'_> {
    entry_at(segment, segment.slots()[index])
}

/// Index of the first slot whose position is `position` or more.
///
/// Positions are evenly spread, so the place is guessed from the position, and all slots of a
/// window around the guess are compared, without branches: a wrong prediction costs more than 32
/// comparisons.
#[inline]
pub(super) fn lower_bound(slots: &[u32], position: u32) -> usize {
    let key = position << 16;
    let guess = (slots.len() * position as usize) >> 16;
    let start = guess.saturating_sub(WINDOW / 2).min(slots.len().saturating_sub(WINDOW));
    let Some(window) = slots[start..].first_chunk::<WINDOW>() else {
        return slots.iter().map(|&slot| usize::from(slot < key)).sum();
    };
    let below: u32 = window.iter().map(|&slot| u32::from(slot < key)).sum();
    let index = start + below as usize;
    let is_inside =
        (below > 0 || start == 0) && ((below as usize) < WINDOW || index == slots.len());
    if is_inside { index } else { slots.partition_point(|&slot| slot < key) }
}

/// Looks for a member.
#[inline]
pub(super) fn find(segment: &Part, hash: u64, member: &[u8]) -> Place {
    let slots = segment.slots();
    let position = position(hash);
    let mut index = lower_bound(slots, position);
    while let Some(&slot) = slots.get(index)
        && slot >> 16 == position
    {
        if entry_at(segment, slot).is(hash, member) {
            return Place::Found(index);
        }
        index += 1;
    }
    Place::Absent(index)
}

/// Inserts an absent member at the slot `index` that [`find`] told. When `can_split`, a segment
/// that is full says so and stays as it is.
pub(super) fn insert<S: Shape>(
    segment: &mut Part,
    index: usize,
    hash: u64,
    member: NewMember<'_>,
    can_split: bool,
) -> Fit {
    let head = segment.head();
    let entry_bytes = member.entry_bytes();
    let needed = SLOT_BYTES + entry_bytes;
    let used = PART_OVERHEAD + head.count() * SLOT_BYTES + usize::from(head.heap);
    let outside = matches!(member, NewMember::Outside(_));
    if used + needed > head.size.into() || outside {
        // Room beyond the need if there is garbage: each time it is collected costs a copy.
        let spare = if head.garbage > 0 { live_bytes(segment) / 16 } else { 0 };
        let charge = if outside { OUTSIDE_CHARGE } else { 0 };
        if can_split && charged_bytes(segment) + needed + spare + charge > S::SEGMENT_BYTES_MAX {
            return Fit::Full;
        }
        if used + needed > head.size.into() {
            let size = size_class(live_bytes(segment) + needed + spare);
            assert!(size <= UNSPLITTABLE_BYTES_MAX, "thousands of equal hashes");
            *segment = copy_to_size(segment, size);
        }
    }
    unshare(segment);
    let (head, bytes) = segment.parts_mut();
    let heap = usize::from(head.heap) + entry_bytes;
    let start = bytes.len() - heap;
    member.write(hash, &mut bytes[start..start + entry_bytes]);
    head.heap = heap as u16;
    head.outside += u16::from(outside);
    let slot = position(hash) << 16 | heap as u32;
    segment.open_slot(index, slot);
    work::bytes(entry_bytes + (segment.head().count() - index) * SLOT_BYTES);
    Fit::Done
}

/// Removes the entry of a slot; returns the member if it lies outside.
pub(super) fn remove(segment: &mut Part, index: usize) -> Option<LargeMember> {
    unshare(segment);
    let slot = segment.slots()[index];
    let entry = entry(segment, index);
    let entry_bytes = entry.len();
    let outside = entry.outside();
    segment.close_slot(index);
    let head = segment.head_mut();
    if slot & 0xFFFF == u32::from(head.heap) {
        head.heap -= entry_bytes as u16;
    } else {
        head.garbage += entry_bytes as u16;
    }
    if head.count == 0 {
        (head.heap, head.garbage) = (0, 0);
    }
    work::bytes((head.count() - index) * SLOT_BYTES);
    // The slot is gone, so nobody else regards the entry's bytes as an owner any more.
    outside.map(|large| {
        head.outside -= 1;
        std::mem::ManuallyDrop::into_inner(large)
    })
}

/// Moves a segment that is mostly empty to a smaller block. True when it did: then it may also be
/// worth merging.
pub(super) fn shrink(segment: &mut Part) -> bool {
    let size = usize::from(segment.head().size);
    let live = live_bytes(segment);
    if live > size / 2 || size <= SEGMENT_BYTES_MIN {
        return false;
    }
    *segment = copy_to_size(segment, size_class((live + live / 8).max(SEGMENT_BYTES_MIN)));
    true
}

/// Copies a segment that has other owners.
fn unshare(segment: &mut Part) {
    if !segment.is_unique() {
        let copy = copy_to_size(segment, segment.head().size.into());
        *segment = copy;
    }
}

/// A copy with another size and without garbage.
fn copy_to_size(segment: &Part, size: usize) -> Part {
    let mut copy = with_size(size);
    let head = *segment.head();
    if head.garbage > 0 {
        for index in 0..head.count() {
            append(&mut copy, position_of(segment, index), entry(segment, index));
        }
        return copy;
    }
    let heap = usize::from(head.heap);
    let (new_head, bytes) = copy.parts_mut();
    (new_head.count, new_head.heap, new_head.outside) = (head.count, head.heap, head.outside);
    let heap_start = bytes.len() - heap;
    let slots_end = head.count() * SLOT_BYTES;
    let old = segment.bytes();
    bytes[..slots_end].copy_from_slice(&old[..slots_end]);
    bytes[heap_start..].copy_from_slice(&old[old.len() - heap..]);
    work::bytes(heap + slots_end);
    if head.outside > 0 {
        (0..head.count()).for_each(|index| entry(segment, index).add_owner());
        work::nodes(head.outside.into());
    }
    copy
}

#[inline]
fn position_of(segment: &Part, index: usize) -> u32 {
    segment.slots()[index] >> 16
}

/// Adds a copy of an entry of another segment after all slots. The caller keeps the order and the
/// room.
fn append(segment: &mut Part, position: u32, entry: Entry<'_>) {
    let (head, bytes) = segment.parts_mut();
    let entry_bytes = entry.len();
    let heap = usize::from(head.heap) + entry_bytes;
    let start = bytes.len() - heap;
    entry.copy_to(&mut bytes[start..start + entry_bytes]);
    head.heap = heap as u16;
    head.outside += u16::from(entry.outside().is_some());
    let index = head.count();
    segment.open_slot(index, position << 16 | heap as u32);
}

/// Parts a segment by one bit of the hash: members without it, members with it.
pub(super) fn split<S: Shape>(segment: &Part, bit: u32) -> (Part, Part) {
    let count = segment.head().count();
    work::nodes(count / 8);
    // First the sides and sizes (this is where the members are read and hashed), then the copies.
    let mut sides = [0u64; SEGMENT_BYTES_LIMIT / (SLOT_BYTES + 1) / 64 + 1];
    let mut live = [PART_OVERHEAD; 2];
    for index in 0..count {
        let entry = entry(segment, index);
        let side = entry.hash(S::hash) >> bit & 1;
        sides[index / 64] |= side << (index % 64);
        live[side as usize] += SLOT_BYTES + entry.len();
    }
    let mut halves = live.map(|bytes| with_size(size_class(bytes.max(SEGMENT_BYTES_MIN))));
    for index in 0..count {
        let side = sides[index / 64] >> (index % 64) & 1;
        append(&mut halves[side as usize], position_of(segment, index), entry(segment, index));
    }
    work::bytes(2 * live_bytes(segment));
    let [without, with] = halves;
    (without, with)
}

/// One segment with the members of both.
pub(super) fn merge(left: &Part, right: &Part) -> Part {
    let live = live_bytes(left) + live_bytes(right) - PART_OVERHEAD;
    let mut merged = with_size(size_class((live + live / 8).max(SEGMENT_BYTES_MIN)));
    let (mut l, mut r) = (0, 0);
    while l < left.head().count() || r < right.head().count() {
        let take_left = r == right.head().count()
            || (l < left.head().count() && position_of(left, l) <= position_of(right, r));
        let (source, index) = if take_left { (left, &mut l) } else { (right, &mut r) };
        append(&mut merged, position_of(source, *index), entry(source, *index));
        *index += 1;
    }
    work::bytes(2 * live);
    merged
}

/// Gives up the owners in the entries of a segment that is about to be freed.
pub(super) fn dispose(segment: &mut Part) {
    debug_assert!(segment.head().kind == Kind::Segment);
    if segment.head().outside == 0 {
        return;
    }
    for index in 0..segment.head().count() {
        if let Some(large) = entry(segment, index).outside() {
            drop(std::mem::ManuallyDrop::into_inner(large));
        }
    }
    // The entries are bytes without meaning now.
    segment.head_mut().count = 0;
}

#[cfg(any(test, fuzzing))]
pub(super) fn check_invariants<S: Shape>(segment: &Part) {
    let head = segment.head();
    assert_eq!(usize::from(head.size), size_class(head.size.into()));
    let used = PART_OVERHEAD + head.count() * SLOT_BYTES + usize::from(head.heap);
    assert!(used <= head.size.into());
    assert!(segment.slots().is_sorted_by_key(|slot| slot >> 16));
    let mut entry_bytes = 0;
    let mut outside = 0;
    for index in 0..head.count() {
        let entry = entry(segment, index);
        entry_bytes += entry.len();
        outside += u16::from(entry.outside().is_some());
        assert_eq!(position(S::hash(entry.member())), position_of(segment, index));
    }
    assert_eq!(entry_bytes, usize::from(head.heap - head.garbage));
    assert_eq!(outside, head.outside);
}
