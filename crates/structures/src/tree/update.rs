//! Hot path. Changes of one leaf, and what follows from them on the way back to the root.
//!
//! There is one way to change a leaf, [`Tree::update`]: it makes the path unique, lets the caller
//! change the leaf, and then repairs each level: a leaf that split gets its sibling inserted, an
//! empty one is removed, a thin one merges with a neighbour.

use triomphe::Arc;

use super::{Extent, Inner, Leaf, Node, Place, Tree};
use crate::work;

/// What a change of one node means for its parent.
struct Step<R, L, const F: usize> {
    /// What the caller's change returned.
    result: R,
    /// The node's new right sibling.
    sibling: Option<Node<L, F>>,
    /// The leaf that the change emptied, already removed from the tree.
    emptied: Option<Arc<L>>,
    /// The difference (modulo 2^64) in what lies below the node; `None` if nodes came or went: then
    /// it has to be recomputed.
    change: Option<Extent>,
}

impl<L: Leaf, const F: usize> Tree<L, F> {
    /// Lets `change` work on the leaf at `place` and repairs the tree around it. O(log n).
    ///
    /// `change` gets the leaf and the position in it. The leaf may be shared: `change` makes it
    /// unique before it writes. It may empty the leaf, or return a right sibling for it.
    ///
    /// Returns the result of `change` and, if the leaf is empty and was therefore removed, that
    /// leaf.
    ///
    /// # Panics
    /// If the tree is empty or `place` is beyond its end.
    pub fn update<R>(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut Arc<L>, usize) -> (R, Option<Arc<L>>),
    ) -> (R, Option<Arc<L>>) {
        let root = self.root.as_mut().expect("an empty tree has no leaf to update");
        work::nodes(root.height() + 1);
        let mut step = update_node(root, place, change);
        if let Some(change) = step.change {
            self.extent.count = self.extent.count.wrapping_add(change.count);
            self.extent.bytes = self.extent.bytes.wrapping_add(change.bytes);
            if self.extent.count > 0 {
                return (step.result, None);
            }
        }
        self.settle_root(&mut step);
        (step.result, step.emptied)
    }

    /// Lets `change` work on the leaf at one end, which makes the tree `change_in_count` elements
    /// longer (modulo 2^64) and nothing else: as in [`Tree::update`], but it neither splits nor empties the leaf, and the bytes
    /// allocated stay the same. One descent, without the repairs of [`Tree::update`]: what pushes
    /// and pops at the ends of long lists mostly need. O(log n).
    ///
    /// # Panics
    /// If the tree is empty or `place` is not an end.
    #[inline]
    pub fn update_end<R>(
        &mut self,
        place: Place,
        change_in_count: u64,
        change: impl FnOnce(&mut Arc<L>, usize) -> R,
    ) -> R {
        assert!(place.is_end(), "only ends are found without counting");
        let mut node = self.root.as_mut().expect("an empty tree has no leaf to update");
        work::nodes(node.height() + 1);
        self.extent.count = self.extent.count.wrapping_add(change_in_count);
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let position = place.position_in_leaf(&**leaf);
                    return change(leaf, position);
                }
                Node::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    let (slot, _) = inner.locate(place);
                    inner.adjust(slot, Extent { count: change_in_count, bytes: 0 });
                    node = inner.child_mut(slot);
                }
            }
        }
    }

    /// The rare part of [`Tree::update`]: the root may have split, or have one child, or none.
    fn settle_root<R>(&mut self, step: &mut Step<R, L, F>) {
        let root = self.root.take();
        self.root = match (root, step.sibling.take()) {
            (Some(left), Some(right)) => {
                Some(Node::Inner(Arc::new(Inner::parent_of([left, right]))))
            }
            (Some(Node::Leaf(leaf)), None) if leaf.count() == 0 => {
                step.emptied = Some(leaf);
                None
            }
            (root, _) => root,
        };
        self.settle();
    }

    /// Restores the root's invariants: it is not empty, it has at least two children; recomputes
    /// the extent.
    pub(super) fn settle(&mut self) {
        while let Some(Node::Inner(inner)) = &mut self.root
            && inner.len() <= 1
        {
            work::allocations(1);
            self.root = match Arc::get_mut(inner) {
                Some(inner) => inner.pop(),
                None => Some(inner.child(0).clone()),
            };
        }
        self.extent = self.root.as_ref().map(Node::extent).unwrap_or_default();
    }
}

fn update_node<R, L: Leaf, const F: usize>(
    node: &mut Node<L, F>,
    place: Place,
    change: impl FnOnce(&mut Arc<L>, usize) -> (R, Option<Arc<L>>),
) -> Step<R, L, F> {
    let inner = match node {
        Node::Leaf(leaf) => return update_leaf(leaf, place, change),
        Node::Inner(inner) => Arc::make_mut(inner),
    };
    let (slot, below) = inner.locate(place);
    let mut step = update_node(inner.child_mut(slot), below, change);
    match step.change {
        Some(change) => inner.adjust(slot, change),
        None => inner.refresh(slot),
    }
    if let Some(sibling) = step.sibling.take() {
        step.sibling = inner.insert_or_split(slot + 1, sibling, place).map(Node::Inner);
    } else if inner.count(slot) == 0 {
        step.change = None;
        if let Node::Leaf(leaf) = inner.remove(slot) {
            step.emptied = Some(leaf);
        }
    } else if step.has_shrunk() && !place.is_end() && inner.merge_if_thin(slot) {
        step.change = None;
    }
    step
}

fn update_leaf<R, L: Leaf, const F: usize>(
    leaf: &mut Arc<L>,
    place: Place,
    change: impl FnOnce(&mut Arc<L>, usize) -> (R, Option<Arc<L>>),
) -> Step<R, L, F> {
    let (count, bytes) = (leaf.count() as u64, leaf.bytes());
    let position = place.position_in_leaf(&**leaf);
    let (result, sibling) = change(leaf, position);
    let change = match &sibling {
        Some(_) => None,
        None => Some(Extent {
            count: (leaf.count() as u64).wrapping_sub(count),
            bytes: leaf.bytes().wrapping_sub(bytes),
        }),
    };
    Step { result, sibling: sibling.map(Node::Leaf), emptied: None, change }
}

impl<R, L, const F: usize> Step<R, L, F> {
    /// Whether the node may have become thin.
    fn has_shrunk(&self) -> bool {
        self.change.is_none_or(|change| change.count.cast_signed() < 0)
    }
}

impl<L: Leaf, const F: usize> Inner<L, F> {
    /// If the child in `slot` is thin, joins it with a neighbour that is not too full; returns
    /// whether it did.
    fn merge_if_thin(&mut self, slot: usize) -> bool {
        let (load, capacity) = self.child(slot).load();
        if load * 4 >= capacity {
            return false;
        }
        let joins = |left: usize| {
            left + 1 < self.len()
                && (self.child(left).load().0 + self.child(left + 1).load().0) * 4 <= capacity * 3
        };
        let left = match slot.checked_sub(1) {
            Some(left) if joins(left) => left,
            _ if joins(slot) => slot,
            _ => return false,
        };
        let mut right = self.remove(left + 1);
        self.child_mut(left).absorb(&mut right);
        self.refresh(left);
        true
    }
}

impl<L: Leaf, const F: usize> Node<L, F> {
    /// Moves everything below `right`, a node of the same height that is to be dropped afterwards,
    /// to the end of this node, which must have room.
    pub(super) fn absorb(&mut self, right: &mut Self) {
        work::nodes(2);
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(right),
            (Node::Inner(left), Node::Inner(right)) => {
                Arc::make_mut(left).append(Arc::make_mut(right));
            }
            _ => unreachable!("nodes of the same height are of the same kind"),
        }
    }
}
