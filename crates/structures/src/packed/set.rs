//! Hot path. The set face of a packed blob: entries are found by a fingerprint byte of their hash.
//!
//! The order of the entries is the order of insertion. One entry in 256 that is not the one looked
//! for is compared in vain.

use super::Packed;
use crate::work;

/// Shift of the hash bits that become the fingerprint.
const FINGERPRINT_SHIFT: u32 = 56;

/// One byte of the hash; which one does not matter, as a packed set uses no other.
#[inline]
fn fingerprint(hash: u64) -> u8 {
    (hash >> FINGERPRINT_SHIFT) as u8
}

impl Packed {
    /// The index of `member`, whose hash is `hash`.
    #[inline]
    pub fn find(&self, hash: u64, member: &[u8]) -> Option<usize> {
        work::nodes(1);
        let column = self.fingerprints();
        memchr::memchr_iter(fingerprint(hash), column)
            .find(|&index| self.all_bytes()[self.entry_range(index)] == *member)
    }

    /// True when `member`, whose hash is `hash`, is present.
    #[inline]
    pub fn contains(&self, hash: u64, member: &[u8]) -> bool {
        self.find(hash, member).is_some()
    }

    /// Adds a member; false when it was present.
    ///
    /// # Panics
    /// When it is absent and [`Packed::is_full_for`] it.
    pub fn insert(&mut self, hash: u64, member: &[u8]) -> bool {
        if self.contains(hash, member) {
            return false;
        }
        self.insert_entry(self.len(), member, Some(fingerprint(hash)));
        true
    }

    /// Removes a member; false when it was absent.
    pub fn remove(&mut self, hash: u64, member: &[u8]) -> bool {
        let found = self.find(hash, member);
        if let Some(index) = found {
            self.remove_at(index);
        }
        found.is_some()
    }

    /// The fingerprint column; empty in a list.
    pub(super) fn fingerprints(&self) -> &[u8] {
        let head = self.head();
        if !head.is_fingerprinted() {
            return &[];
        }
        let start = head.count() * head.length_width();
        &self.all_bytes()[start..start + head.count()]
    }
}
