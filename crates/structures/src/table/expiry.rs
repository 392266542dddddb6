//! Active expiry: finds entries whose time has come, without an index of deadlines per key.
//!
//! The directory knows for each segment a time before which none of its entries expires. A step
//! goes to the segment with the earliest such time and looks at its slots that have the expiry
//! flag, some per call; when it has seen all of them, the segment's time becomes the earliest of
//! those that stay. A time that is too early (its entry was removed, or lives longer now) costs one
//! look at the segment.
//!
//! Between the steps on one segment, the table remembers where it was and the earliest expiry
//! seen. An entry that is added to the segment or gets another expiry lowers the latter, wherever
//! in the segment it is. If the segment splits or merges, the examination begins anew.

use super::bucket::{self, BUCKETS, EXPIRES};
use super::core::Core;
use super::entry::RawEntry;
use super::trie::start_of;
use crate::work;

/// A segment whose expiry has been looked at in part.
pub(super) struct Examination {
    /// The first prefix of the segment.
    prefix: u32,
    depth: u32,
    /// The next bucket to look at.
    bucket: usize,
    /// The earliest expiry of the entries that stay, or that came since.
    earliest: i64,
}

impl Examination {
    pub(super) fn covers(&self, prefix: u32) -> bool {
        start_of(prefix, self.depth) == self.prefix
    }

    /// Takes account of an entry's new expiry.
    pub(super) fn note(&mut self, prefix: u32, expire_at: i64) {
        if self.covers(prefix) {
            self.earliest = self.earliest.min(expire_at);
        }
    }
}

/// What a step of expiry has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryStep {
    /// Entries with an expiry that were looked at.
    pub examined: usize,
    /// Another step has something to do now.
    pub more: bool,
}

impl Core {
    /// See [`super::Table::take_expired`].
    pub(super) fn take_expired(
        &mut self,
        now_ms: i64,
        limit: usize,
        mut keep: impl FnMut(&[u8]) -> bool,
        mut removed: impl FnMut(RawEntry),
    ) -> ExpiryStep {
        let mut examined = 0;
        if self.directory.earliest() >= now_ms {
            return ExpiryStep { examined, more: false };
        }
        let mut examination = self.examination.take().unwrap_or_else(|| self.examine_due());
        let (step, child) = self.directory.locate(examination.prefix);
        debug_assert!(child.depth() == examination.depth);
        let segment = child.pointer();
        let buckets = if segment.is_null() { 0 } else { BUCKETS };
        while examination.bucket < buckets {
            if examined >= limit {
                self.examination = Some(examination);
                return ExpiryStep { examined, more: true };
            }
            // SAFETY: the segment has that many buckets, and its chains are valid.
            let (seen, gone) = unsafe {
                let head = segment.add(examination.bucket);
                if examination.bucket + 1 < BUCKETS {
                    bucket::prefetch_entries(head.add(1), EXPIRES);
                }
                self.expire_chain(head, now_ms, &mut examination.earliest, &mut keep, &mut removed)
            };
            self.directory.count_down(step, gone);
            examined += seen;
            examination.bucket += 1;
        }
        self.directory.set_deadline(examination.prefix, examination.earliest);
        self.shrink(examination.prefix);
        ExpiryStep { examined, more: self.directory.earliest() < now_ms }
    }

    fn examine_due(&self) -> Examination {
        let due = self.directory.due();
        let (_, child) = self.directory.locate(due);
        let prefix = start_of(due, child.depth());
        Examination { prefix, depth: child.depth(), bucket: 0, earliest: i64::MAX }
    }

    /// Removes the entries of a chain whose time has come. Gives the number of entries with an
    /// expiry, and how many of them are gone.
    unsafe fn expire_chain(
        &mut self,
        head: *mut bucket::Bucket,
        now_ms: i64,
        earliest: &mut i64,
        keep: &mut impl FnMut(&[u8]) -> bool,
        removed: &mut impl FnMut(RawEntry),
    ) -> (usize, usize) {
        let (mut seen, mut gone, mut kept) = (0, 0, 0);
        // SAFETY: the caller gives the head of a chain of this table.
        unsafe {
            loop {
                // The first `kept` slots are done; a removal moves another one to its place.
                let (mut index, mut due) = (0, None);
                bucket::for_each(head, |location| {
                    if index >= kept && due.is_none() {
                        kept = index + 1;
                        if location.slot() & EXPIRES != 0 {
                            seen += 1;
                            let entry = location.entry();
                            let expire_at = entry.expire_at().unwrap_or(i64::MAX);
                            if expire_at >= now_ms {
                                *earliest = expire_at.min(*earliest);
                            } else if keep(entry.key()) {
                                // Not to be looked at again within this millisecond.
                                *earliest = now_ms.min(*earliest);
                            } else {
                                due = Some(location);
                            }
                        }
                    }
                    index += 1;
                });
                let Some(location) = due else { break };
                kept -= 1;
                gone += 1;
                let slot = bucket::remove(head, location, &mut self.links);
                removed(self.totals.forget(slot));
            }
        }
        work::nodes(1 + seen);
        (seen, gone)
    }
}
