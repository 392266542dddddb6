//! Hot path. Searching a list for an element, in bounded steps, for LREM, LPOS and LINSERT.
//!
//! A step compares a limited number of elements and remembers where it stopped. Between two steps
//! on a list that others may change, the caller holds the key's lock or searches a snapshot and
//! validates what it found. A single element may be longer than a step: then the step stops inside
//! it, so an equal element of 512 MB takes many steps, as it should.

use std::ops::ControlFlow;

use super::ListOf;
use super::element::Item;
use crate::big_string::BigString;
use crate::work;

/// Elements of the limit that comparing one chunk of a big element is worth.
const CHUNK_COST: usize = 8;

/// Bytes of a shorter element that are worth one element of the limit.
const BYTES_PER_COST: usize = 512;

/// Where a search goes on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The next element to compare.
    pub index: u64,
    /// Bytes of that element that are already known to be equal; not zero only for big ones.
    pub matched: u64,
}

/// What a step of a search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The element with this index is equal.
    At(u64),
    /// The limit is used up; go on from here.
    Pending(Cursor),
    /// There is no equal element in this direction.
    Nothing,
}

impl Cursor {
    /// The begin of a search: `index` is the first element to compare.
    pub fn at(index: u64) -> Cursor {
        Cursor { index, matched: 0 }
    }
}

impl<const B: usize, const F: usize> ListOf<B, F> {
    /// Searches forwards for an element equal to `needle`, comparing at most about `limit` elements
    /// (at least one).
    pub fn find_from(&self, from: Cursor, needle: &[u8], limit: usize) -> Found {
        let mut search = Search::new(from, needle, limit);
        if let Some(root) = &self.root {
            let _ = root.tree.visit_from(from.index, |leaf, position| {
                leaf.for_each_from(position, &mut |item| search.step(item, |index| Some(index + 1)))
            });
        }
        search.found
    }

    /// Searches backwards for an element equal to `needle`, comparing at most about `limit`
    /// elements (at least one).
    pub fn find_back_from(&self, from: Cursor, needle: &[u8], limit: usize) -> Found {
        let mut search = Search::new(from, needle, limit);
        if let Some(root) = &self.root {
            let _ = root.tree.visit_back_from(from.index, |leaf, position| {
                leaf.for_each_back_from(position, &mut |item| {
                    search.step(item, |index| index.checked_sub(1))
                })
            });
        }
        search.found
    }
}

/// The state of one step.
struct Search<'a> {
    needle: &'a [u8],
    cursor: Cursor,
    /// What may still be compared, in elements.
    budget: usize,
    found: Found,
}

impl<'a> Search<'a> {
    fn new(from: Cursor, needle: &'a [u8], limit: usize) -> Search<'a> {
        Search { needle, cursor: from, budget: limit.max(1), found: Found::Nothing }
    }

    /// Compares one element; breaks when the step is over.
    fn step(&mut self, item: Item<'_>, next: impl Fn(u64) -> Option<u64>) -> ControlFlow<()> {
        if self.budget == 0 {
            self.found = Found::Pending(self.cursor);
            return ControlFlow::Break(());
        }
        self.budget -= 1;
        let equal = match item {
            Item::Bytes(bytes) if bytes.len() != self.needle.len() => false,
            Item::Bytes(bytes) => {
                work::bytes(bytes.len());
                self.budget = self.budget.saturating_sub(bytes.len() / BYTES_PER_COST);
                bytes == self.needle
            }
            Item::Big(big) => self.big_equals(big)?,
        };
        if equal {
            self.found = Found::At(self.cursor.index);
            return ControlFlow::Break(());
        }
        match next(self.cursor.index) {
            Some(index) => self.cursor = Cursor::at(index),
            None => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Compares a big element chunk by chunk; breaks, with the place in the cursor, when the limit
    /// is used up.
    fn big_equals(&mut self, big: &BigString) -> ControlFlow<(), bool> {
        if big.len() != self.needle.len() as u64 {
            return ControlFlow::Continue(false);
        }
        loop {
            let chunk = big.chunk_at(self.cursor.matched);
            let matched = self.cursor.matched as usize;
            work::bytes(chunk.len());
            if chunk != &self.needle[matched..matched + chunk.len()] {
                return ControlFlow::Continue(false);
            }
            self.cursor.matched += chunk.len() as u64;
            if self.cursor.matched == big.len() {
                return ControlFlow::Continue(true);
            }
            self.budget = self.budget.saturating_sub(CHUNK_COST);
            if self.budget == 0 {
                self.found = Found::Pending(self.cursor);
                return ControlFlow::Break(());
            }
        }
    }
}
