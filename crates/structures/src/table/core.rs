//! Hot path. The table without the type of its objects: slots, segments, splits and merges.
//!
//! Invariants: `len` is the number of slots with an entry, `expires` of those with the flag
//! [`EXPIRES`], which says that the entry has an expiry; a segment's count is right at all times.
//!
//! A segment that has `limit` entries splits before it takes another one; two buddies that have
//! half of that together merge when an entry leaves one of them. The factor of two keeps a table of
//! constant size from splitting and merging in turn. A split reads the 64 lines of the segment and
//! its overflow buckets, and writes 128 lines: no entry is touched, unless tags move (see
//! `trie.rs`), which happens at a few depths only. Then a quarter of the entries are read, their
//! loads overlapping.

use std::ptr;

use super::bucket::{
    self, BUCKETS, Bucket, ChainReader, ChainWriter, EXPIRES, Links, Location, Segment,
};
use super::entry::{Changed, Payload, RawEntry};
use super::expiry::Examination;
use super::scan::Position;
use super::trie::{
    Child, DEPTH_MAX, Directory, Part, bucket_of, buddy_of, prefix_of, span, start_of, tag_of,
    window,
};
use crate::hash::hash;
use crate::work;

/// Entries of a segment before it splits: 10 per bucket. Fewer would shorten the chains that a miss
/// walks, at 1 to 4 bytes per key.
pub(super) const SPLIT_LIMIT: u16 = 10 * BUCKETS as u16;
/// A removal may merge its segment again with the next buddy: so that a table which empties comes
/// down to one segment.
const MERGES_PER_REMOVAL: usize = 2;
/// While the entries of one bucket are hashed, those of this many next ones are loaded.
const ENTRIES_AHEAD: usize = 3;
/// The overflow buckets are loaded earlier, for they lead to those entries.
const LINKS_AHEAD: usize = 8;

/// See the top of the file.
pub(super) struct Core {
    pub(super) directory: Directory,
    pub(super) links: Links,
    pub(super) totals: Totals,
    /// Entries at which a segment splits.
    pub(super) limit: u16,
    /// A segment whose expiry has been looked at in part.
    pub(super) examination: Option<Examination>,
    /// Where the next step of taking everything begins.
    pub(super) drained: Position,
}

/// What the entries add up to.
pub(super) struct Totals {
    /// Entries.
    pub(super) len: usize,
    /// Entries with an expiry.
    pub(super) expires: usize,
    /// Bytes of all entries, by their size classes.
    pub(super) entry_bytes: usize,
}

impl Totals {
    /// Gives the entry of a slot that is gone, after taking it out of the totals.
    pub(super) unsafe fn forget(&mut self, slot: u64) -> RawEntry {
        // SAFETY: the caller's slot is one with an entry.
        unsafe {
            let entry = bucket::entry(slot);
            self.len -= 1;
            self.expires -= usize::from(slot & EXPIRES != 0);
            self.entry_bytes -= entry.allocated();
            entry
        }
    }
}

/// A slot with an entry, and the chain that it is in.
#[derive(Clone, Copy)]
pub(super) struct Found {
    head: *mut Bucket,
    location: Location,
}

impl Found {
    pub(super) unsafe fn entry(self) -> RawEntry {
        // SAFETY: the caller has not changed the table since the slot was found.
        unsafe { self.location.entry() }
    }
}

impl Core {
    pub(super) const fn new(limit: u16) -> Self {
        Self {
            directory: Directory::new(),
            links: Links::new(),
            totals: Totals { len: 0, expires: 0, entry_bytes: 0 },
            limit,
            examination: None,
            drained: Position::START,
        }
    }

    /// The head of the chain for a hash, and the tag that the entry has there.
    #[inline]
    fn chain(&self, hash: u64) -> Option<(*mut Bucket, u16)> {
        let prefix = prefix_of(hash);
        let child = self.directory.segment(prefix);
        let segment = child.pointer();
        if segment.is_null() {
            return None;
        }
        let index = bucket_of(hash);
        // SAFETY: a segment has that many buckets.
        Some((unsafe { segment.add(index) }, tag_of(prefix, child.depth(), index)))
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<Found> {
        // One bucket and one entry.
        work::nodes(2);
        let (head, tag) = self.chain(hash)?;
        // SAFETY: the directory leads to a chain of this table.
        let location = unsafe { bucket::find(head, tag, key) }?;
        Some(Found { head, location })
    }

    pub(super) fn prefetch_bucket(&self, hash: u64) {
        if let Some((head, _)) = self.chain(hash) {
            crate::cache::prefetch(head);
        }
    }

    pub(super) fn prefetch_entry(&self, hash: u64, links: usize) -> bool {
        self.chain(hash).is_none_or(|(head, tag)| {
            // SAFETY: the directory leads to a chain of this table.
            unsafe { bucket::prefetch_matches(head, tag, links) }
        })
    }

    /// Adds an entry, which becomes the table's; its key must be absent.
    pub(super) fn insert(&mut self, hash: u64, entry: RawEntry) -> Found {
        let prefix = prefix_of(hash);
        let (mut step, mut child) = self.directory.locate(prefix);
        if child.count() >= usize::from(self.limit) && child.depth() < DEPTH_MAX {
            self.split(prefix);
            (step, child) = self.directory.locate(prefix);
        }
        let mut segment = child.pointer();
        if segment.is_null() {
            segment = self.directory.materialize(step);
        }
        work::nodes(2);
        // SAFETY: the entry is valid, as the caller promises; the segment is of this table.
        unsafe {
            let expire_at = entry.expire_at();
            let index = bucket_of(hash);
            let head = segment.add(index);
            let tag = tag_of(prefix, child.depth(), index);
            let slot = bucket::slot(tag, entry, expire_at.is_some());
            let location = bucket::push(head, slot, &mut self.links);
            self.directory.count_up(step);
            self.totals.len += 1;
            self.totals.entry_bytes += entry.allocated();
            if let Some(expire_at) = expire_at {
                self.totals.expires += 1;
                self.note_deadline(prefix, expire_at);
            }
            Found { head, location }
        }
    }

    /// Takes an entry out of the table.
    pub(super) unsafe fn remove(&mut self, hash: u64, found: Found) -> RawEntry {
        // SAFETY: the caller has not changed the table since the slot was found.
        let slot = unsafe { bucket::remove(found.head, found.location, &mut self.links) };
        let prefix = prefix_of(hash);
        let (step, _) = self.directory.locate(prefix);
        let child = self.directory.count_down(step, 1);
        // SAFETY: the slot was one with an entry.
        let entry = unsafe { self.totals.forget(slot) };
        if child.count() <= usize::from(self.limit) / 2 {
            self.shrink(prefix);
        }
        entry
    }

    /// Gives an entry another value and expiry; an old object must have been taken.
    pub(super) unsafe fn rewrite(
        &mut self,
        hash: u64,
        found: Found,
        payload: &Payload<'_>,
        expire_at: Option<i64>,
    ) {
        // SAFETY: as the caller promises for `found`; the change gives the entry that is valid.
        unsafe { self.change(hash, found, |entry| entry.rewrite(payload, expire_at)) }
    }

    /// Changes an entry by a function that may give another block for it.
    pub(super) unsafe fn change(
        &mut self,
        hash: u64,
        found: Found,
        change: impl FnOnce(RawEntry) -> Changed,
    ) {
        // SAFETY: the caller has not changed the table since the slot was found.
        unsafe {
            let old_slot = found.location.slot();
            let old = found.entry().expire_at();
            let Changed { entry, grown } = change(found.entry());
            let new = entry.expire_at();
            self.totals.entry_bytes = self.totals.entry_bytes.wrapping_add_signed(grown);
            let slot = bucket::slot(bucket::tag(old_slot), entry, new.is_some());
            if slot != old_slot {
                found.location.set(slot);
                self.totals.expires += usize::from(new.is_some());
                self.totals.expires -= usize::from(old.is_some());
            }
            if let Some(expire_at) = new
                && old != new
            {
                self.note_deadline(prefix_of(hash), expire_at);
            }
        }
    }

    /// Lets expiry know of an entry.
    fn note_deadline(&mut self, prefix: u32, expire_at: i64) {
        self.directory.lower_deadline(prefix, expire_at);
        if let Some(examination) = &mut self.examination {
            examination.note(prefix, expire_at);
        }
    }

    /// Ends a partial examination of the segment: its entries move.
    fn disturb(&mut self, prefix: u32) {
        if self.examination.as_ref().is_some_and(|examination| examination.covers(prefix)) {
            self.examination = None;
        }
    }

    /// Splits the segment that a prefix leads to.
    fn split(&mut self, prefix: u32) {
        self.disturb(prefix);
        let (path, child) = self.directory.path(prefix);
        let deadline = self.directory.deadline_of(path.last());
        let fresh = Segment::allocate().as_ptr();
        work::bytes(3 * size_of::<Segment>());
        work::nodes(self.links.used().min(BUCKETS));
        // SAFETY: the segment has entries, hence memory; the fresh one is written completely.
        let halves = unsafe { self.partition(child, fresh) };
        let mut freed = 0;
        let parts = halves.map(|half| {
            let mut segment = half.segment;
            if half.count == 0 {
                // SAFETY: no entry has gone to this side.
                unsafe { Segment::free(segment) };
                segment = ptr::null_mut();
                freed += 1;
            }
            Part { segment, count: half.count, deadline: half.deadline(deadline) }
        });
        self.directory.adopt(1, freed);
        self.directory.split(&path, parts[0], parts[1]);
    }

    /// Moves each entry of a segment to the side that its next prefix bit says.
    unsafe fn partition(&mut self, child: Child, fresh: *mut Bucket) -> [Half; 2] {
        let (segment, depth) = (child.pointer(), child.depth());
        let mut halves = [Half::new(segment), Half::new(fresh)];
        let side_bit = 31 - depth;
        let retag = |index| window(depth, index) != window(depth + 1, index);
        let mut retagged = 0;
        for index in 0..BUCKETS {
            // SAFETY: both are segments, the first of valid chains; a reader copies a bucket
            // before a writer overwrites it.
            unsafe {
                prefetch_ahead(segment, index, retag);
                let mut reader = ChainReader::new(segment.add(index));
                let mut writers =
                    [segment, fresh].map(|side| ChainWriter::overwrite(side.add(index)));
                let tag_bit = side_bit - window(depth, index);
                while let Some(mut slot) = reader.next(&mut self.links) {
                    let side = usize::from(bucket::tag(slot) >> tag_bit & 1);
                    if retag(index) {
                        slot = retagged_slot(slot, depth + 1, index);
                        retagged += 1;
                    }
                    writers[side].push(slot, &mut self.links);
                    halves[side].add(slot);
                }
                writers.into_iter().for_each(|writer| writer.finish());
            }
        }
        work::nodes(retagged);
        halves
    }

    /// Merges the segment that a prefix leads to with its buddy, if the two are small.
    pub(super) fn shrink(&mut self, prefix: u32) {
        for _ in 0..MERGES_PER_REMOVAL {
            let (step, child) = self.directory.locate(prefix);
            let Some((low, high)) = self.directory.buddies(step) else { return };
            if low.count + high.count > usize::from(self.limit) / 2 {
                return;
            }
            let (path, _) = self.directory.path(prefix);
            self.disturb(prefix);
            self.disturb(buddy_of(prefix, child.depth()));
            let mut merged = Part {
                segment: low.segment,
                count: low.count + high.count,
                deadline: low.deadline.min(high.deadline),
            };
            let mut freed = 0;
            // SAFETY: both are segments of this table, of the same depth, or null.
            unsafe {
                self.retag(low, child.depth());
                self.retag(high, child.depth());
                if low.segment.is_null() {
                    merged.segment = high.segment;
                } else if !high.segment.is_null() {
                    self.append(low.segment, high.segment);
                    Segment::free(high.segment);
                    freed = 1;
                }
            }
            self.directory.adopt(0, freed);
            self.directory.merge(&path, merged);
        }
    }

    /// Moves all slots of one segment to another.
    unsafe fn append(&mut self, to: *mut Bucket, from: *mut Bucket) {
        work::bytes(2 * size_of::<Segment>());
        for index in 0..BUCKETS {
            // SAFETY: the caller gives two segments of valid chains; the old one is abandoned.
            unsafe {
                prefetch_ahead(from, index, |_| false);
                let mut reader = ChainReader::new(from.add(index));
                let mut writer = ChainWriter::at_end(to.add(index));
                while let Some(slot) = reader.next(&mut self.links) {
                    writer.push(slot, &mut self.links);
                }
            }
        }
    }

    /// Takes the tags anew, where the segment's window moves as it merges.
    unsafe fn retag(&mut self, part: Part, depth: u32) {
        let retag = |index| window(depth, index) != window(depth - 1, index);
        if part.segment.is_null() || !(0..BUCKETS).any(retag) {
            return;
        }
        let mut retagged = 0;
        for index in 0..BUCKETS {
            // SAFETY: the caller gives a segment of valid chains.
            unsafe {
                prefetch_ahead(part.segment, index, retag);
                if retag(index) {
                    bucket::for_each(part.segment.add(index), |location| {
                        location.set(retagged_slot(location.slot(), depth - 1, index));
                        retagged += 1;
                    });
                }
            }
        }
        work::nodes(retagged);
    }

    /// Takes about `budget` entries out of the table, each given to `visit`. True when the table is
    /// empty and has no memory left.
    pub(super) fn drain(&mut self, budget: usize, mut visit: impl FnMut(RawEntry)) -> bool {
        let mut left = budget;
        while self.totals.len > 0 {
            let Position { bucket, prefix } = self.drained;
            let (step, child) = self.directory.locate(prefix);
            let segment = child.pointer();
            let mut index = usize::from(bucket);
            while child.count() > 0 && index < BUCKETS && left > 0 {
                let mut slots = 0;
                // SAFETY: the segment has entries, hence memory, and valid chains.
                unsafe {
                    prefetch_ahead(segment, index, |_| true);
                    bucket::take(segment.add(index), &mut self.links, |slot| {
                        slots += 1;
                        visit(self.totals.forget(slot));
                    });
                }
                work::nodes(1 + slots);
                self.directory.count_down(step, slots);
                left = left.saturating_sub(slots.max(1));
                index += 1;
            }
            if child.count() == 0 || index == BUCKETS {
                self.leave_drained(prefix);
                left = left.saturating_sub(1);
            } else {
                self.drained = Position { bucket: index as u8, prefix };
            }
            if left == 0 {
                break;
            }
        }
        let empty = self.totals.len == 0;
        if empty {
            *self = Self::new(self.limit);
        }
        empty
    }

    /// Frees what the segment that was drained leaves behind, and goes to the next one.
    fn leave_drained(&mut self, prefix: u32) {
        let (step, child) = self.directory.locate(prefix);
        self.disturb(prefix);
        if child.count() == 0 && !child.pointer().is_null() {
            // SAFETY: the segment has no entry.
            unsafe { self.directory.vacate(step) };
        }
        let next = u64::from(start_of(prefix, child.depth())) + span(child.depth());
        self.drained = Position { bucket: 0, prefix: next as u32 };
        self.directory.prune(prefix);
    }

    /// Bytes that the table has from the allocator, objects apart.
    pub(super) fn allocated(&self) -> usize {
        self.directory.allocated() + self.links.allocated() + self.totals.entry_bytes
    }
}

/// What a split has moved to one side.
struct Half {
    segment: *mut Bucket,
    count: usize,
    /// All slots, or-ed: their flags.
    flags: u64,
}

impl Half {
    fn new(segment: *mut Bucket) -> Self {
        Self { segment, count: 0, flags: 0 }
    }

    fn add(&mut self, slot: u64) {
        self.count += 1;
        self.flags |= slot;
    }

    /// The deadline of this side, if `deadline` was that of the whole: which side has the entry
    /// is not known without reading entries.
    fn deadline(&self, deadline: i64) -> i64 {
        if self.flags & EXPIRES != 0 { deadline } else { i64::MAX }
    }
}

/// The slot with the tag that it has in this bucket of segments of another depth.
unsafe fn retagged_slot(slot: u64, depth: u32, bucket: usize) -> u64 {
    // SAFETY: the caller has a slot with an entry.
    let entry = unsafe { bucket::entry(slot) };
    // SAFETY: likewise.
    let prefix = prefix_of(hash(unsafe { entry.key() }));
    bucket::slot(tag_of(prefix, depth, bucket), entry, slot & EXPIRES != 0)
}

/// Loads what a pass over a segment's chains will need soon after bucket `index`; `entries` says in
/// which buckets it will read the entries.
unsafe fn prefetch_ahead(segment: *mut Bucket, index: usize, entries: impl Fn(usize) -> bool) {
    let (new_links, new_entries) = if index == 0 {
        (0..=LINKS_AHEAD, 0..=ENTRIES_AHEAD)
    } else {
        let (links, entries) = (index + LINKS_AHEAD, index + ENTRIES_AHEAD);
        (links..=links, entries..=entries)
    };
    // SAFETY: the caller gives a segment whose chains from `index` on are valid.
    unsafe {
        for ahead in new_links.filter(|&ahead| ahead < BUCKETS) {
            bucket::prefetch_link(segment.add(ahead));
        }
        for ahead in new_entries.filter(|&ahead| ahead < BUCKETS && entries(ahead)) {
            bucket::prefetch_entries(segment.add(ahead), 0);
        }
    }
}
