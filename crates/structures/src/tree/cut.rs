//! Hot path. Cutting a tree in two and joining two trees, along one path each.
//!
//! A cut goes down to the leaf that holds the position and divides each node on the way. What is
//! left and right of the path is moved, not visited. Nodes beside the cut may be thin, down to one
//! child; the two roots lose levels that have become single.
//!
//! Joining hangs the lower tree into the edge of the higher one, at its own height. The nodes that
//! meet there (the *seam*: one pair per level) are joined where they fit into one, so cutting and
//! joining for a lifetime does not leave a tree of thin nodes.

use triomphe::Arc;

use super::{Inner, Leaf, Node, Place, Tree};
use crate::work;

impl<L: Leaf, const F: usize> Tree<L, F> {
    /// Cuts off the elements from `index` on. O(log n).
    pub fn split_off(&mut self, index: u64) -> Self {
        if index >= self.extent.count {
            return Tree::default();
        }
        let mut right = Tree::default();
        if let Some(root) = self.root.take() {
            work::nodes(2 * (root.height() + 1));
            (self.root, right.root) = match index {
                0 => (None, Some(root)),
                _ => {
                    let (left, right) = cut(root, index);
                    (Some(left), Some(right))
                }
            };
        }
        self.settle();
        right.settle();
        right
    }

    /// Adds the elements of `right` to the end. O(log n), whatever the sizes.
    pub fn append(&mut self, right: Self) {
        self.root = match (self.root.take(), right.root) {
            (Some(left), Some(right)) => Some(join(left, right)),
            (left, right) => left.or(right),
        };
        self.settle();
    }
}

/// Divides a node so that the left part has `index` elements; both parts have some.
fn cut<L: Leaf, const F: usize>(node: Node<L, F>, index: u64) -> (Node<L, F>, Node<L, F>) {
    match node {
        Node::Leaf(mut leaf) => {
            work::allocations(1);
            let right = Arc::make_mut(&mut leaf).split_off(index as usize);
            (Node::Leaf(leaf), Node::Leaf(Arc::new(right)))
        }
        Node::Inner(mut arc) => {
            let inner = Arc::make_mut(&mut arc);
            let (slot, below) = inner.locate_element(index);
            let mut right = inner.split_off(slot);
            if below > 0 {
                let (before, behind) = cut(right.remove(0), below);
                inner.push(before);
                right.insert(0, behind);
            }
            (Node::Inner(arc), Node::Inner(Arc::new(right)))
        }
    }
}

fn join<L: Leaf, const F: usize>(mut left: Node<L, F>, mut right: Node<L, F>) -> Node<L, F> {
    work::nodes(left.height().max(right.height()) + 1);
    let (left, right) = if left.height() >= right.height() {
        match join_right(&mut left, right) {
            None => return left,
            Some(sibling) => (left, sibling),
        }
    } else {
        match join_left(left, &mut right) {
            None => return right,
            Some(sibling) => (sibling, right),
        }
    };
    Node::Inner(Arc::new(Inner::parent_of([left, right])))
}

/// Hangs `right` into the right edge of `node`, which is at least as high; returns a new right
/// sibling of `node` if one was needed.
fn join_right<L: Leaf, const F: usize>(
    node: &mut Node<L, F>,
    mut right: Node<L, F>,
) -> Option<Node<L, F>> {
    if node.height() == right.height() {
        return (!join_seam(node, &mut right)).then_some(right);
    }
    let Node::Inner(inner) = node else { unreachable!("a node above another is an inner node") };
    let inner = Arc::make_mut(inner);
    let last = inner.len() - 1;
    let sibling = join_right(inner.child_mut(last), right);
    inner.refresh(last);
    inner.insert_or_split(last + 1, sibling?, Place::Back).map(Node::Inner)
}

/// Hangs `left` into the left edge of `node`, which is at least as high; returns a new left sibling
/// of `node` if one was needed.
fn join_left<L: Leaf, const F: usize>(
    mut left: Node<L, F>,
    node: &mut Node<L, F>,
) -> Option<Node<L, F>> {
    if node.height() == left.height() {
        if join_seam(&mut left, node) {
            *node = left;
            return None;
        }
        return Some(left);
    }
    let Node::Inner(inner) = node else { unreachable!("a node above another is an inner node") };
    let inner = Arc::make_mut(inner);
    let sibling = join_left(left, inner.child_mut(0));
    inner.refresh(0);
    let sibling = sibling?;
    if inner.is_full() {
        return Some(Node::Inner(Arc::new(Inner::parent_of([sibling]))));
    }
    inner.insert(0, sibling);
    None
}

/// Joins the pairs of nodes along the seam between two nodes of the same height that fit into one
/// node; returns whether `right` was used up by that. Copies nothing below the lowest such pair.
fn join_seam<L: Leaf, const F: usize>(left: &mut Node<L, F>, right: &mut Node<L, F>) -> bool {
    match lowest_fit(left, right) {
        Some(depth) => join_seam_down_to(depth, left, right),
        None => false,
    }
}

/// How many levels down the lowest pair of the seam is that fits into one node.
fn lowest_fit<L: Leaf, const F: usize>(left: &Node<L, F>, right: &Node<L, F>) -> Option<usize> {
    let below = match (left, right) {
        (Node::Inner(left), Node::Inner(right)) => {
            lowest_fit(left.child(left.len() - 1), right.child(0)).map(|depth| depth + 1)
        }
        _ => None,
    };
    below.or(fits(left, right).then_some(0))
}

/// Whether two nodes of the same height fit into one.
fn fits<L: Leaf, const F: usize>(left: &Node<L, F>, right: &Node<L, F>) -> bool {
    let (load, capacity) = left.load();
    load + right.load().0 <= capacity
}

fn join_seam_down_to<L: Leaf, const F: usize>(
    depth: usize,
    left: &mut Node<L, F>,
    right: &mut Node<L, F>,
) -> bool {
    if let (1.., Node::Inner(left), Node::Inner(right)) = (depth, &mut *left, &mut *right) {
        let (left, right) = (Arc::make_mut(left), Arc::make_mut(right));
        let last = left.len() - 1;
        let used_up = join_seam_down_to(depth - 1, left.child_mut(last), right.child_mut(0));
        left.refresh(last);
        match used_up {
            true => drop(right.remove(0)),
            false => right.refresh(0),
        }
        if right.len() == 0 {
            return true;
        }
    }
    let joins = fits(left, right);
    if joins {
        left.absorb(right);
    }
    joins
}
