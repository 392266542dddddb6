//! Hot path. Iteration over a packed blob from both ends: each step reads one length.

use std::iter::FusedIterator;
use std::ops::Range;

use super::Packed;

/// The entries of a [`Packed`] or of a range of it.
#[derive(Clone)]
pub struct Iter<'a> {
    packed: &'a Packed,
    /// Entries not yet returned.
    indexes: Range<usize>,
    /// Their bytes.
    data: Range<usize>,
}

impl<'a> Iter<'a> {
    pub(super) fn new(packed: &'a Packed, indexes: Range<usize>) -> Self {
        let start = usize::from(packed.head().head) + packed.lengths_sum(0..indexes.start);
        let data = start..start + packed.lengths_sum(indexes.clone());
        Self { packed, indexes, data }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let index = self.indexes.next()?;
        let start = self.data.start;
        self.data.start += self.packed.length_of(index);
        Some(&self.packed.all_bytes()[start..self.data.start])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indexes.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.indexes.next_back()?;
        let end = self.data.end;
        self.data.end -= self.packed.length_of(index);
        Some(&self.packed.all_bytes()[self.data.end..end])
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
