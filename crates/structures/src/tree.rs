//! Hot path. A counted, copy-on-write B+ tree: sequences with O(log n) access by position, O(1)
//! snapshots and ranges that are cut off without touching what they hold.
//!
//! The tree is generic over its leaves (see [`Leaf`]): a list packs elements into pages, other
//! types may order them. All leaves lie at the same depth.
//!
//! ```text
//! Inner node, fanout F = 19: 624 bytes with its reference count, size class 640
//!
//!     0    8  reference count
//!     8    2  height (leaves have height 0), number of children
//!    16  8xF  counts[i]  elements below child i
//!   168 16xF  children[i] -> Leaf or Inner (a tag word and a pointer)
//!   472  8xF  bytes[i]   bytes allocated below child i, itself included
//! ```
//!
//! Invariants: every node holds at least one element; `counts` and `bytes` are exact (a shared node
//! counts in full); heights fall by one per level; the root has at least two children. There is no
//! minimum fill: a cut leaves thin nodes along its path, which later changes nearby merge.
//!
//! Sharing: `clone` takes one more reference to the root. A change makes every node on its path
//! unique first, copying those that are shared. A count of 1 below a shared node proves nothing, so
//! uniqueness is only ever tested from the root down, and no pointer into the tree is ever cached.
//! Copying an inner node touches the counters of all its children, which are cold: hence the small
//! fanout, and hence [`Inner`]'s clone loads all of them at once before it increments the first.
//!
//! Filling: a node that overflows at an end of the sequence is not halved; the new element starts a
//! new node ([`Place::Front`], [`Place::Back`]), so pushes leave full nodes behind. Removal at an
//! end merges nothing, it drops the node once it is empty. Elsewhere a thin node (below a quarter)
//! merges with a neighbour if the two fill three quarters at most, so that no insertion splits what
//! a removal has just merged.
//!
//! Costs: access and change O(log n), with at most one path copied; [`Tree::split_off`] and
//! [`Tree::append`] O(log n) whatever the sizes; a change frees at most the leaf that it emptied
//! and copies of its own path. Ten million elements in pages of forty are five levels.
//!
//! Source: Bayer and McCreight 1972 (B-trees), Rodeh 2008 "B-trees, Shadowing, and Clones".

mod cut;
mod inner;
mod update;

use std::ops::ControlFlow;

use triomphe::Arc;

use crate::work;
pub use inner::Inner;

/// Leaves that a walk asks the processor for when it reaches their parent: the misses of short
/// ranges then overlap.
const LOOKED_AHEAD: usize = 4;

/// What the tree asks of its leaves.
pub trait Leaf: Clone {
    /// The load above which a leaf overflows; what a unit is, the leaf decides.
    const CAPACITY: usize;

    /// Elements in the leaf.
    fn count(&self) -> usize;
    /// Bytes allocated for the leaf and all it holds.
    fn bytes(&self) -> u64;
    /// Asks the processor for what a visit reads first. The default does nothing.
    fn prefetch(&self) {}
    /// How full the leaf is. At most [`Leaf::CAPACITY`]; two leaves whose loads sum up to no more
    /// can be joined into one.
    fn load(&self) -> usize;
    /// Moves the elements from `at` on into a new leaf.
    fn split_off(&mut self, at: usize) -> Self;
    /// Adds the elements of `right` to the end.
    fn append(&mut self, right: &Self);
    /// Frees what the leaf holds beside its own page, within about `budget` frees, which it takes
    /// off the budget; returns whether the leaf may now be dropped in O(1). If not, the leaf still
    /// knows its count and bytes, but its elements may not be read any more.
    fn drop_step(&mut self, budget: &mut usize) -> bool;
    /// Panics if the leaf is not consistent.
    fn check_invariants(&self);
}

/// Elements and allocated bytes of a node and everything below it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Elements.
    pub count: u64,
    /// Bytes allocated.
    pub bytes: u64,
}

/// Where a change happens. The ends have their own names because nodes are filled differently
/// there, and because finding them needs no counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The first leaf, position 0.
    Front,
    /// The last leaf, the position behind its last element.
    Back,
    /// The element with this index.
    At(u64),
    /// Between the elements `index - 1` and `index`; where these are in two leaves, the end of the
    /// left one.
    Gap(u64),
}

/// A child of an inner node, or the root.
pub enum Node<L, const F: usize> {
    /// A leaf, height 0.
    Leaf(Arc<L>),
    /// An inner node, height 1 and up.
    Inner(Arc<Inner<L, F>>),
}

/// A sequence of elements, kept in leaves. `clone` is an O(1) snapshot. See the module.
pub struct Tree<L, const F: usize> {
    /// `None` is the empty sequence.
    root: Option<Node<L, F>>,
    /// Elements and bytes below the root.
    extent: Extent,
}

impl<L, const F: usize> Clone for Node<L, F> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(leaf) => Node::Leaf(Arc::clone(leaf)),
            Node::Inner(inner) => Node::Inner(Arc::clone(inner)),
        }
    }
}

impl<L, const F: usize> Clone for Tree<L, F> {
    fn clone(&self) -> Self {
        Tree { root: self.root.clone(), extent: self.extent }
    }
}

impl<L, const F: usize> Default for Tree<L, F> {
    fn default() -> Self {
        Tree { root: None, extent: Extent::default() }
    }
}

impl<L: Leaf, const F: usize> Node<L, F> {
    fn height(&self) -> usize {
        match self {
            Node::Leaf(_) => 0,
            Node::Inner(inner) => inner.height(),
        }
    }

    /// O(F): the sums of an inner node are not stored.
    fn extent(&self) -> Extent {
        match self {
            Node::Leaf(leaf) => Extent { count: leaf.count() as u64, bytes: leaf.bytes() },
            Node::Inner(inner) => inner.extent(),
        }
    }

    /// How full the node is, and what full means.
    fn load(&self) -> (usize, usize) {
        match self {
            Node::Leaf(leaf) => (leaf.load(), L::CAPACITY),
            Node::Inner(inner) => (inner.len(), F),
        }
    }

    /// The reference count of the node, whose cache line this loads.
    fn references(&self) -> usize {
        match self {
            Node::Leaf(leaf) => Arc::strong_count(leaf),
            Node::Inner(inner) => Arc::strong_count(inner),
        }
    }

    /// Frees the node from its end until the budget is used up; returns what is left. A node that
    /// someone else holds is only released. Which of two holders that let go at the same time
    /// frees the node is decided by the counter itself, so neither is surprised by the work.
    fn drop_step(self, budget: &mut usize) -> Option<Self> {
        match self {
            Node::Leaf(leaf) => {
                if let Some(mut leaf) = Arc::into_unique(leaf)
                    && !leaf.drop_step(budget)
                {
                    return Some(Node::Leaf(leaf.shareable()));
                }
            }
            Node::Inner(inner) => {
                if let Some(mut inner) = Arc::into_unique(inner) {
                    while let Some(last) = inner.pop() {
                        let rest = if *budget == 0 { Some(last) } else { last.drop_step(budget) };
                        if let Some(rest) = rest {
                            inner.push(rest);
                            return Some(Node::Inner(inner.shareable()));
                        }
                    }
                }
            }
        }
        *budget = budget.saturating_sub(1);
        work::allocations(1);
        None
    }
}

impl<L: Leaf, const F: usize> Tree<L, F> {
    /// The sequence of `leaf`'s elements, of which there must be at least one.
    pub fn from_leaf(leaf: Arc<L>) -> Self {
        debug_assert!(leaf.count() > 0, "no node is empty");
        let root = Node::Leaf(leaf);
        Tree { extent: root.extent(), root: Some(root) }
    }

    /// Elements and allocated bytes. O(1).
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Levels of inner nodes above the leaves. O(1).
    pub fn height(&self) -> usize {
        self.root.as_ref().map_or(0, Node::height)
    }

    /// The leaf that holds the element `index`, and its position there. O(log n).
    pub fn get(&self, index: u64) -> Option<(&L, usize)> {
        if index >= self.extent.count {
            return None;
        }
        let mut node = self.root.as_ref()?;
        let mut place = match index {
            0 => Place::Front,
            _ if index + 1 == self.extent.count => Place::Back,
            _ => Place::At(index),
        };
        work::nodes(node.height() + 1);
        loop {
            match node {
                Node::Leaf(leaf) => {
                    // The position of `Back` is the end, one behind the last element.
                    let position = place.position_in_leaf(&**leaf).min(leaf.count() - 1);
                    return Some((leaf, position));
                }
                Node::Inner(inner) => {
                    let (child, below) = inner.locate(place);
                    node = inner.child(child);
                    place = below;
                }
            }
        }
    }

    /// The leaf at one end, `None` if the tree is empty. O(log n).
    ///
    /// # Panics
    /// If `place` is not an end.
    #[inline]
    pub fn end_leaf(&self, place: Place) -> Option<&L> {
        assert!(place.is_end(), "only ends are found without counting");
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Inner(inner) => {
                    let (slot, _) = inner.locate(place);
                    node = inner.child(slot);
                }
            }
        }
    }

    /// Calls `visit` with the leaf that holds the element `index` and the position there, then
    /// with each following leaf and 0, until it breaks. One descent, then O(1) per leaf.
    pub fn visit_from<B>(
        &self,
        index: u64,
        mut visit: impl FnMut(&L, usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.root {
            Some(root) if index < self.extent.count => forward(root, index, &mut visit),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Calls `visit` with the leaf that holds the element `index` and the position there, then
    /// with each preceding leaf and its last position, until it breaks.
    pub fn visit_back_from<B>(
        &self,
        index: u64,
        mut visit: impl FnMut(&L, usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.root {
            Some(root) if index < self.extent.count => backward(root, index, &mut visit),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Frees leaves from the end until about `budget` frees are done, and takes them off the
    /// budget; returns whether the tree is empty now. See [`Leaf::drop_step`] for what the last
    /// leaf is good for in between.
    pub fn drop_step(&mut self, budget: &mut usize) -> bool {
        if let Some(root) = self.root.take() {
            self.root = root.drop_step(budget);
        }
        self.extent = self.root.as_ref().map(Node::extent).unwrap_or_default();
        self.root.is_none()
    }

    /// Checks the module's invariants in O(n).
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self) {
        let Some(root) = &self.root else {
            return assert_eq!(self.extent, Extent::default(), "an empty tree has no extent");
        };
        if let Node::Inner(inner) = root {
            assert!(inner.len() >= 2, "a root with a single child should be that child");
        }
        assert_eq!(check_node(root), self.extent, "the tree's extent");
    }
}

impl Place {
    /// Whether this is an end of the sequence.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Place::Front | Place::Back)
    }

    fn position_in_leaf(self, leaf: &impl Leaf) -> usize {
        match self {
            Place::Front => 0,
            Place::Back => leaf.count(),
            Place::At(index) | Place::Gap(index) => index as usize,
        }
    }
}

fn forward<L: Leaf, const F: usize, B>(
    node: &Node<L, F>,
    index: u64,
    visit: &mut impl FnMut(&L, usize) -> ControlFlow<B>,
) -> ControlFlow<B> {
    work::nodes(1);
    match node {
        Node::Leaf(leaf) => visit(leaf, index as usize),
        Node::Inner(inner) => {
            let (first, below) = inner.locate_element(index);
            for slot in first..inner.len().min(first + LOOKED_AHEAD) {
                if let Node::Leaf(leaf) = inner.child(slot) {
                    leaf.prefetch();
                }
            }
            forward(inner.child(first), below, visit)?;
            (first + 1..inner.len()).try_for_each(|slot| forward(inner.child(slot), 0, visit))
        }
    }
}

fn backward<L: Leaf, const F: usize, B>(
    node: &Node<L, F>,
    index: u64,
    visit: &mut impl FnMut(&L, usize) -> ControlFlow<B>,
) -> ControlFlow<B> {
    work::nodes(1);
    match node {
        Node::Leaf(leaf) => visit(leaf, index as usize),
        Node::Inner(inner) => {
            let (first, below) = inner.locate_element(index);
            backward(inner.child(first), below, visit)?;
            (0..first)
                .rev()
                .try_for_each(|slot| backward(inner.child(slot), inner.count(slot) - 1, visit))
        }
    }
}

fn check_node<L: Leaf, const F: usize>(node: &Node<L, F>) -> Extent {
    match node {
        Node::Leaf(leaf) => leaf.check_invariants(),
        Node::Inner(inner) => inner.check_invariants(check_node),
    }
    let extent = node.extent();
    assert!(extent.count > 0, "an empty node");
    extent
}
