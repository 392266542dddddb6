//! Hot path. The inner node: parallel arrays of children and of what lies below each.
//!
//! All changes of the arrays are here, so that the three of them never disagree in length. The
//! layout is drawn in [`super`].

use std::hint::black_box;

use triomphe::Arc;

use super::{Extent, Leaf, Node, Place};
use crate::work;

/// An inner node with up to `F` children. The order of the fields is the order in which a descent
/// reads them.
#[repr(C)]
pub struct Inner<L, const F: usize> {
    /// Levels below this node.
    height: u8,
    /// Children in use.
    len: u8,
    /// Elements below each child.
    counts: [u64; F],
    /// `Some` below `len`, `None` from there on.
    children: [Option<Node<L, F>>; F],
    /// Bytes allocated below each child, the child itself included.
    bytes: [u64; F],
}

impl<L, const F: usize> Clone for Inner<L, F>
where
    L: Leaf,
{
    /// The copy increments one counter per child. Those lie in as many cold cache lines, and an
    /// atomic increment waits for its line; plain loads do not wait for each other, so the loads
    /// that come first fetch all lines at once.
    fn clone(&self) -> Self {
        black_box(self.children().map(Node::references).fold(0, usize::wrapping_add));
        work::allocations(1);
        work::nodes(self.len().div_ceil(2));
        Inner {
            height: self.height,
            len: self.len,
            counts: self.counts,
            children: self.children.clone(),
            bytes: self.bytes,
        }
    }
}

impl<L: Leaf, const F: usize> Inner<L, F> {
    const LIMITS: () = assert!(F >= 4 && F < 256, "halves must hold two children; len is a byte");

    /// A node without children, to be filled at once.
    fn empty(height: usize) -> Self {
        let () = Self::LIMITS;
        work::allocations(1);
        Inner {
            height: height as u8,
            len: 0,
            counts: [0; F],
            children: [const { None }; F],
            bytes: [0; F],
        }
    }

    /// The parent of `children`, which have the same height.
    pub(super) fn parent_of<const N: usize>(children: [Node<L, F>; N]) -> Self {
        const { assert!(N >= 1 && N <= F, "a node has from one to F children") };
        let mut parent = Self::empty(children[0].height() + 1);
        for child in children {
            parent.push(child);
        }
        parent
    }

    pub(super) fn height(&self) -> usize {
        usize::from(self.height)
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == F
    }

    /// Elements below the child in `slot`.
    pub(super) fn count(&self, slot: usize) -> u64 {
        self.counts[slot]
    }

    pub(super) fn child(&self, slot: usize) -> &Node<L, F> {
        self.children[slot].as_ref().expect("slots below len hold children")
    }

    /// After a change of the child call [`Inner::refresh`] or [`Inner::adjust`].
    pub(super) fn child_mut(&mut self, slot: usize) -> &mut Node<L, F> {
        self.children[slot].as_mut().expect("slots below len hold children")
    }

    fn children(&self) -> impl Iterator<Item = &Node<L, F>> {
        self.children.iter().flatten()
    }

    /// The node's own allocation and everything below it. O(F).
    pub(super) fn extent(&self) -> Extent {
        let own = (size_of::<usize>() + size_of::<Self>()) as u64;
        let len = self.len();
        Extent {
            count: self.counts[..len].iter().sum(),
            bytes: self.bytes[..len].iter().sum::<u64>() + own,
        }
    }

    /// The slot of the child that holds `place`, and the place within the child.
    #[inline]
    pub(super) fn locate(&self, place: Place) -> (usize, Place) {
        match place {
            Place::Front => (0, Place::Front),
            Place::Back => (self.len() - 1, Place::Back),
            Place::At(index) => {
                let (slot, below) = self.locate_element(index);
                (slot, Place::At(below))
            }
            Place::Gap(0) => (0, Place::Gap(0)),
            Place::Gap(index) => {
                let (slot, below) = self.locate_element(index - 1);
                (slot, Place::Gap(below + 1))
            }
        }
    }

    /// The slot of the child that holds the element `index`, and its index within the child.
    #[inline]
    pub(super) fn locate_element(&self, index: u64) -> (usize, u64) {
        let mut below = index;
        for (slot, &count) in self.counts[..self.len()].iter().enumerate() {
            if below < count {
                return (slot, below);
            }
            below -= count;
        }
        panic!("an index beyond the elements of the node");
    }

    /// Recomputes what lies below the child in `slot`. O(F).
    pub(super) fn refresh(&mut self, slot: usize) {
        let extent = self.child(slot).extent();
        self.counts[slot] = extent.count;
        self.bytes[slot] = extent.bytes;
    }

    /// Adds the difference `change` (modulo 2^64) to what lies below the child in `slot`. O(1).
    #[inline]
    pub(super) fn adjust(&mut self, slot: usize, change: Extent) {
        self.counts[slot] = self.counts[slot].wrapping_add(change.count);
        self.bytes[slot] = self.bytes[slot].wrapping_add(change.bytes);
    }

    /// Adds a child at the end; there must be room.
    pub(super) fn push(&mut self, child: Node<L, F>) {
        self.insert(self.len(), child);
    }

    /// Removes the last child.
    pub(super) fn pop(&mut self) -> Option<Node<L, F>> {
        let last = self.len().checked_sub(1)?;
        Some(self.remove(last))
    }

    /// Inserts a child before slot `at`; there must be room.
    pub(super) fn insert(&mut self, at: usize, child: Node<L, F>) {
        let len = self.len();
        let extent = child.extent();
        // The free slot behind the last child comes to `at`, the ones between move up.
        self.children[at..=len].rotate_right(1);
        self.children[at] = Some(child);
        self.counts.copy_within(at..len, at + 1);
        self.counts[at] = extent.count;
        self.bytes.copy_within(at..len, at + 1);
        self.bytes[at] = extent.bytes;
        self.len += 1;
    }

    /// Removes the child in slot `at`.
    pub(super) fn remove(&mut self, at: usize) -> Node<L, F> {
        let len = self.len();
        let child = self.children[at].take().expect("slots below len hold children");
        self.children[at..len].rotate_left(1);
        self.counts.copy_within(at + 1..len, at);
        self.bytes.copy_within(at + 1..len, at);
        self.len -= 1;
        child
    }

    /// Moves the children from slot `at` on into a new node.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::empty(self.height());
        right.take_children(self, at);
        right
    }

    /// Moves all children of `right` to the end of this node; there must be room.
    pub(super) fn append(&mut self, right: &mut Self) {
        self.take_children(right, 0);
    }

    fn take_children(&mut self, from: &mut Self, first: usize) {
        let (start, moved) = (self.len(), from.len() - first);
        let end = start + moved;
        self.counts[start..end].copy_from_slice(&from.counts[first..from.len()]);
        self.bytes[start..end].copy_from_slice(&from.bytes[first..from.len()]);
        for (to, child) in self.children[start..end].iter_mut().zip(&mut from.children[first..]) {
            *to = child.take();
        }
        self.len += moved as u8;
        from.len = first as u8;
    }

    /// Inserts `child` before slot `at`. If the node is full it is split, and the right part, a new
    /// sibling, is returned: at an end of the sequence next to the new child, elsewhere in halves.
    pub(super) fn insert_or_split(
        &mut self,
        at: usize,
        child: Node<L, F>,
        place: Place,
    ) -> Option<Arc<Self>> {
        if !self.is_full() {
            self.insert(at, child);
            return None;
        }
        let cut = match place {
            Place::Front | Place::Back => at,
            Place::At(_) | Place::Gap(_) => F / 2,
        };
        let mut right = self.split_off(cut);
        match at < cut {
            true => self.insert(at, child),
            false => right.insert(at - cut, child),
        }
        Some(Arc::new(right))
    }

    /// Panics unless the arrays agree with each other and with the children, whose extents
    /// `check_child` returns.
    pub(super) fn check_invariants(&self, check_child: impl Fn(&Node<L, F>) -> Extent) {
        assert!((1..=F).contains(&self.len()), "a node has from one to F children");
        for (slot, child) in self.children.iter().enumerate() {
            assert_eq!(child.is_some(), slot < self.len(), "children are in front");
            let Some(child) = child else { continue };
            assert_eq!(child.height() + 1, self.height(), "all leaves lie at the same depth");
            let kept = Extent { count: self.counts[slot], bytes: self.bytes[slot] };
            assert_eq!(check_child(child), kept, "what lies below slot {slot}");
        }
    }
}
