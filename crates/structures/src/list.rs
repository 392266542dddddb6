//! Hot path. Big lists: a counted copy-on-write tree of 4 KiB leaves.
//!
//! A list is one word; `clone` is an O(1) snapshot. Every operation is O(log n) and bounded by a
//! few leaves whatever the list's length: ranges are detached by cutting the tree, and what a
//! change displaces is handed to the caller, who frees it elsewhere if it is big.
//!
//! ```text
//! List    8 bytes: null (the empty list) or -> Root
//!
//! Root    0  8  reference count
//!         8 32  tree     root node, elements, bytes (see the tree module)
//!        40  8  spare    null or -> an emptied leaf, for the next push
//!
//!             elements up to 1016 bytes   in the leaf (drawn in list/leaf.rs)
//!             up to 8 KiB                 a block of their own, one allocation
//!             longer                      a BigString
//! ```
//!
//! Invariants: those of the tree and of the leaves; the spare leaf has no elements and is never
//! shared (a snapshot's writer starts without one).
//!
//! The spare leaf: pushes and pops that alternate across the boundary of two leaves would allocate
//! and free a page each. Instead a list keeps the page that a pop emptied, for the next push that
//! needs one, at either end; a queue that is filled at one end and emptied at the other recycles
//! its pages without the allocator.
//!
//! Costs, for 100-byte elements: 105 bytes per element. The first write after a snapshot copies one
//! path: the root, an inner node per level and a leaf, with up to 19 reference counts per
//! node and 32 in the leaf.
//!
//! No operation allocates more than 4096 bytes at once. Longer blocks are made by the caller before
//! it takes a latch: see [`Element`].

mod element;
mod find;
mod leaf;

#[cfg(any(test, fuzzing))]
mod drive;
#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Range};

use triomphe::Arc;

use crate::tree::{Inner, Place, Tree};
use crate::work;
use leaf::{ListLeaf, Payload};

#[cfg(any(test, fuzzing))]
pub use drive::drive;
pub use element::{BLOCK_BYTES_MAX, Block, Element, Item, Run};
pub use find::{Cursor, Found};

/// Bytes of a leaf for elements and their lengths.
const LEAF_BUFFER_BYTES: usize = 4074;
/// Children of an inner node; see the tree module for why it is small.
const FANOUT: usize = 19;
/// What a node roughly weighs in [`ListOf::weight`].
const WEIGHT_BYTES: u64 = 4096;

const _: () = assert!(
    size_of::<usize>() + size_of::<ListLeaf<LEAF_BUFFER_BYTES>>() == 4096,
    "a leaf and its reference count fill one page; a byte more costs the next size class"
);
const _: () = assert!(
    size_of::<usize>() + size_of::<Inner<ListLeaf<LEAF_BUFFER_BYTES>, FANOUT>>() <= 640,
    "an inner node fits the 640-byte size class"
);
const _: () = assert!(size_of::<List>() == size_of::<usize>(), "a list is one word");

const _: fn() = || {
    fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<List>();
};

/// A big list.
pub type List = ListOf<LEAF_BUFFER_BYTES, FANOUT>;

/// A list whose leaves have `B` bytes and whose inner nodes up to `F` children. Only [`List`] is
/// meant for use; tests take small nodes, so that few elements make a deep tree.
pub struct ListOf<const B: usize, const F: usize> {
    /// `None` is empty; so may `Some` be.
    root: Option<Arc<Root<B, F>>>,
}

struct Root<const B: usize, const F: usize> {
    tree: Tree<ListLeaf<B>, F>,
    /// A leaf without elements that nobody shares.
    spare: Option<Arc<ListLeaf<B>>>,
}

impl<const B: usize, const F: usize> Clone for ListOf<B, F> {
    fn clone(&self) -> Self {
        ListOf { root: self.root.clone() }
    }
}

impl<const B: usize, const F: usize> Default for ListOf<B, F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const B: usize, const F: usize> Clone for Root<B, F> {
    fn clone(&self) -> Self {
        work::allocations(1);
        Root { tree: self.tree.clone(), spare: None }
    }
}

impl<const B: usize, const F: usize> ListOf<B, F> {
    /// The empty list; allocates nothing.
    pub const fn new() -> Self {
        ListOf { root: None }
    }

    /// Elements. O(1).
    pub fn len(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.tree.extent().count)
    }

    /// Whether there is no element. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes allocated for the list, counting nodes that snapshots share in full. O(1).
    pub fn bytes(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| {
            let own = (size_of::<usize>() + size_of::<Root<B, F>>()) as u64;
            let spare = root.spare.as_ref().map_or(0, |_| ListLeaf::<B>::PAGE_BYTES as u64);
            root.tree.extent().bytes + own + spare
        })
    }

    /// Roughly how many pages must be freed when the list is dropped: decides whether to do that
    /// here or on a reaper. 0 only for a list that owns nothing. O(1).
    pub fn weight(&self) -> usize {
        self.bytes().div_ceil(WEIGHT_BYTES) as usize
    }

    /// Whether both are the same version: no write happened to either since one was cloned from the
    /// other. O(1).
    pub fn same_version(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (None, None) => true,
            _ => false,
        }
    }

    /// Adds an element in front. O(log n).
    pub fn push_front(&mut self, element: Element<'_>) {
        self.insert_at(Place::Front, element);
    }

    /// Adds an element at the end. O(log n).
    pub fn push_back(&mut self, element: Element<'_>) {
        self.insert_at(Place::Back, element);
    }

    /// Removes the first element and hands it to `taken`; returns whether there was one. O(log n).
    pub fn pop_front(&mut self, taken: impl FnOnce(Element<'_>)) -> bool {
        self.remove(0, taken)
    }

    /// Removes the last element and hands it to `taken`; returns whether there was one. O(log n).
    pub fn pop_back(&mut self, taken: impl FnOnce(Element<'_>)) -> bool {
        match self.len().checked_sub(1) {
            Some(last) => self.remove(last, taken),
            None => false,
        }
    }

    /// The element `index`. O(log n).
    pub fn get(&self, index: u64) -> Option<Item<'_>> {
        let (leaf, position) = self.root.as_ref()?.tree.get(index)?;
        Some(leaf.get(position))
    }

    /// Replaces the element `index` and hands the old one to `displaced`; returns whether there was
    /// one (if not, nothing changes). O(log n).
    pub fn set(
        &mut self,
        index: u64,
        element: Element<'_>,
        displaced: impl FnOnce(Element<'_>),
    ) -> bool {
        if index >= self.len() {
            return false;
        }
        let payload = ListLeaf::<B>::payload(element);
        let Root { tree, spare } = self.unique_root();
        tree.update(Place::At(index), |leaf, position| {
            let unique = unique_leaf(leaf);
            let displaced = match payload {
                Payload::Inline(bytes) => match unique.overwrite(position, bytes, displaced) {
                    Ok(()) => return ((), None),
                    Err(displaced) => displaced,
                },
                Payload::OutOfLine(_) => displaced,
            };
            unique.take(position, displaced);
            ((), insert_in_leaf(leaf, position, Place::At(index), payload, spare))
        });
        true
    }

    /// Inserts an element before the element `index`, or at the end if `index` is the length.
    /// O(log n).
    ///
    /// # Panics
    /// If `index` exceeds the length.
    pub fn insert(&mut self, index: u64, element: Element<'_>) {
        assert!(index <= self.len(), "an insertion beyond the end of the list");
        let place = match index {
            0 => Place::Front,
            _ if index == self.len() => Place::Back,
            _ => Place::Gap(index),
        };
        self.insert_at(place, element);
    }

    /// Removes the element `index` and hands it to `taken`; returns whether there was one.
    /// O(log n).
    pub fn remove(&mut self, index: u64, taken: impl FnOnce(Element<'_>)) -> bool {
        let len = self.len();
        if index >= len {
            return false;
        }
        let place = match index {
            _ if index + 1 == len => Place::Back,
            0 => Place::Front,
            _ => Place::At(index),
        };
        let Root { tree, spare } = self.unique_root();
        let take = |leaf: &mut Arc<ListLeaf<B>>, position: usize| {
            let leaf = unique_leaf(leaf);
            // The position of `Back` is the end, one behind the last element.
            let position = position.min(leaf.len() - 1);
            leaf.take(position, taken);
        };
        if place.is_end() && tree.end_leaf(place).is_some_and(ListLeaf::gives_easily) {
            tree.update_end(place, u64::MAX, take);
            return true;
        }
        let ((), emptied) = tree.update(place, |leaf, position| (take(leaf, position), None));
        *spare = spare.take().or(emptied);
        true
    }

    /// Cuts off the elements from `index` on. O(log n).
    pub fn split_off(&mut self, index: u64) -> Self {
        if index >= self.len() {
            return ListOf::new();
        }
        let tree = self.unique_root().tree.split_off(index);
        ListOf::from_tree(tree)
    }

    /// Adds the elements of `other` to the end. O(log n), whatever the sizes.
    pub fn append(&mut self, other: Self) {
        let Some(other) = other.root else { return };
        let tree = match Arc::try_unwrap(other) {
            Ok(root) => root.tree,
            Err(shared) => shared.tree.clone(),
        };
        self.unique_root().tree.append(tree);
    }

    /// Cuts out the elements in `range`, limited to those there are, and returns them as a list.
    /// What they need to be freed or read can happen elsewhere. O(log n).
    pub fn detach(&mut self, range: Range<u64>) -> Self {
        let end = range.end.min(self.len());
        if range.start >= end {
            return ListOf::new();
        }
        if range.start == 0 && end == self.len() {
            return std::mem::take(self);
        }
        let root = self.unique_root();
        if range.start == 0 {
            let rest = root.tree.split_off(end);
            return ListOf::from_tree(std::mem::replace(&mut root.tree, rest));
        }
        let mut cut_out = root.tree.split_off(range.start);
        root.tree.append(cut_out.split_off(end - range.start));
        ListOf::from_tree(cut_out)
    }

    /// Calls `visit` with the elements from `index` on until it breaks or the list ends. One
    /// descent, then O(1) per element.
    pub fn for_each_from(&self, index: u64, mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>) {
        if let Some(root) = &self.root {
            let _ = root.tree.visit_from(index, |leaf, from| leaf.for_each_from(from, &mut visit));
        }
    }

    /// Calls `visit` with the elements in `range`, limited to those there are, in runs, until it
    /// breaks: what lies side by side in a leaf is one run. One descent, then O(1) per run.
    pub fn for_each_run(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Run<'_>) -> ControlFlow<()>,
    ) {
        let Some(root) = self.root.as_ref().filter(|_| !range.is_empty()) else { return };
        let mut left = range.end - range.start;
        let _ = root.tree.visit_from(range.start, |leaf, from| {
            let upto = leaf.len().min(from.saturating_add(left as usize));
            left -= (upto - from) as u64;
            leaf.for_each_run(from..upto, &mut visit)?;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// The same from the last run to the first; within a run the elements have their order.
    pub fn for_each_run_back(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Run<'_>) -> ControlFlow<()>,
    ) {
        let end = range.end.min(self.len());
        let Some(root) = self.root.as_ref().filter(|_| range.start < end) else { return };
        let mut left = end - range.start;
        let _ = root.tree.visit_back_from(end - 1, |leaf, last| {
            let from = (last + 1).saturating_sub(left as usize);
            left -= (last + 1 - from) as u64;
            leaf.for_each_run_back(from..last + 1, &mut visit)?;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// Frees about `budget_nodes` nodes (at least one) and returns whether nothing is left. Nodes
    /// that a snapshot shares are released, not freed. Between the first call and the drop of the
    /// list only this method, `len`, `bytes` and `weight` may be called.
    pub fn drop_step(&mut self, budget_nodes: usize) -> bool {
        let Some(mut root) = self.root.take().and_then(Arc::into_unique) else { return true };
        let mut budget = budget_nodes.max(1);
        let empty = root.tree.drop_step(&mut budget);
        if !empty {
            self.root = Some(root.shareable());
        }
        empty
    }

    /// Checks the invariants of the list and its nodes in O(n).
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self) {
        let Some(root) = &self.root else { return };
        root.tree.check_invariants();
        if let Some(spare) = &root.spare {
            assert!(spare.is_unique() && spare.len() == 0, "the spare leaf is free");
        }
    }

    fn from_tree(tree: Tree<ListLeaf<B>, F>) -> Self {
        work::allocations(1);
        ListOf { root: Some(Arc::new(Root { tree, spare: None })) }
    }

    fn unique_root(&mut self) -> &mut Root<B, F> {
        Arc::make_mut(self.root.get_or_insert_with(|| {
            work::allocations(1);
            Arc::new(Root { tree: Tree::default(), spare: None })
        }))
    }

    fn insert_at(&mut self, place: Place, element: Element<'_>) {
        let payload = ListLeaf::<B>::payload(element);
        let Root { tree, spare } = self.unique_root();
        if tree.extent().count == 0 {
            *tree = Tree::from_leaf(leaf_of(place, payload, spare));
            return;
        }
        if place.is_end() && tree.end_leaf(place).is_some_and(|leaf| leaf.takes_easily(&payload)) {
            return tree.update_end(place, 1, |leaf, position| {
                unique_leaf(leaf).insert(position, payload);
            });
        }
        tree.update(place, |leaf, position| {
            ((), insert_in_leaf(leaf, position, place, payload, spare))
        });
    }
}

/// Inserts into a leaf; returns its new right sibling if it had to split.
#[inline]
fn insert_in_leaf<const B: usize>(
    leaf: &mut Arc<ListLeaf<B>>,
    position: usize,
    place: Place,
    payload: Payload<'_>,
    spare: &mut Option<Arc<ListLeaf<B>>>,
) -> Option<Arc<ListLeaf<B>>> {
    if leaf.has_room_for(&payload) {
        unique_leaf(leaf).insert(position, payload);
        return None;
    }
    match place {
        Place::Back => Some(leaf_of(place, payload, spare)),
        // The new leaf takes the place of the full one, which becomes its sibling.
        Place::Front => Some(std::mem::replace(leaf, leaf_of(place, payload, spare))),
        Place::At(_) | Place::Gap(_) => Some(split_and_insert(leaf, position, payload)),
    }
}

/// A leaf with one element, prepared for more at the same end.
fn leaf_of<const B: usize>(
    place: Place,
    payload: Payload<'_>,
    spare: &mut Option<Arc<ListLeaf<B>>>,
) -> Arc<ListLeaf<B>> {
    let mut arc = spare.take().unwrap_or_else(|| {
        work::allocations(1);
        work::bytes(B);
        Arc::new(ListLeaf::empty())
    });
    let leaf = unique_leaf(&mut arc);
    if place == Place::Front {
        leaf.prepare_for_front(&payload);
    }
    leaf.insert(0, payload);
    arc
}

/// Splits a leaf in halves and inserts into one of them; returns the right half.
fn split_and_insert<const B: usize>(
    leaf: &mut Arc<ListLeaf<B>>,
    position: usize,
    payload: Payload<'_>,
) -> Arc<ListLeaf<B>> {
    work::allocations(1);
    let left = unique_leaf(leaf);
    let mut right = left.split_in_half();
    match position.checked_sub(left.len()) {
        Some(position) if position > 0 => right.insert(position, payload),
        _ => left.insert(position, payload),
    }
    Arc::new(right)
}

/// The leaf for writing; copies it if it is shared.
#[inline]
fn unique_leaf<const B: usize>(leaf: &mut Arc<ListLeaf<B>>) -> &mut ListLeaf<B> {
    Arc::make_mut(leaf)
}
