//! A vector that never moves more than 32 KiB when it grows.
//!
//! ```text
//! segments  [ -> [T; per segment] full | -> full | ... | -> the last one, growing ]
//! ```
//!
//! Invariants: every segment but the last holds exactly `PER_SEGMENT` values, none is empty. Only
//! the first segment grows by doubling (so a short vector stays small); later ones are allocated
//! at their full size. The outer vector holds 24 bytes per 32 KiB, so its own growth moves more
//! than 64 KiB only for vectors above 80 MiB.

/// Bytes of one full segment, at most.
const SEGMENT_BYTES: usize = 32 * 1024;

pub(crate) struct Segmented<T> {
    segments: Vec<Vec<T>>,
}

impl<T> Segmented<T> {
    /// Values in a full segment; a power of two, so finding one is a shift and a mask.
    const PER_SEGMENT: usize = {
        let fitting = SEGMENT_BYTES / size_of::<T>();
        assert!(fitting > 0, "a value larger than a segment");
        1 << fitting.ilog2()
    };

    pub(crate) const fn new() -> Segmented<T> {
        Segmented { segments: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        match self.segments.last() {
            Some(last) => (self.segments.len() - 1) * Self::PER_SEGMENT + last.len(),
            None => 0,
        }
    }

    pub(crate) fn push(&mut self, value: T) {
        match self.segments.last_mut() {
            Some(last) if last.len() < Self::PER_SEGMENT => last.push(value),
            last => {
                let capacity = if last.is_some() { Self::PER_SEGMENT } else { 1 };
                let mut segment = Vec::with_capacity(capacity);
                segment.push(value);
                self.segments.push(segment);
            }
        }
    }

    /// Removes the last value; frees its segment with the last value in it.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.segments.last_mut()?;
        let value = last.pop();
        if last.is_empty() {
            self.segments.pop();
        }
        value
    }

    /// Forgets the last segment whole; returns whether there was one. O(1) if `T` owns nothing.
    pub(crate) fn pop_segment(&mut self) -> bool {
        self.segments.pop().is_some()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.segments.get(index / Self::PER_SEGMENT)?.get(index % Self::PER_SEGMENT)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.segments.get_mut(index / Self::PER_SEGMENT)?.get_mut(index % Self::PER_SEGMENT)
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        self.segments.last_mut()?.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_popped_across_segments() {
        let mut values = Segmented::new();
        let count = 2 * Segmented::<u64>::PER_SEGMENT + 1;
        (0..count as u64).for_each(|value| values.push(value));
        assert_eq!(values.len(), count);
        assert!((0..count).all(|index| values.get(index) == Some(&(index as u64))));
        assert!(values.get(count).is_none());
        assert_eq!(values.pop(), Some(count as u64 - 1));
        assert_eq!(values.last_mut(), Some(&mut (count as u64 - 2)), "no empty segment is left");
        assert_eq!(values.len(), count - 1);
        assert!(values.pop_segment() && values.pop_segment() && !values.pop_segment());
        assert_eq!((values.len(), values.pop()), (0, None));
    }
}
