//! Hot path. Changing the table: descent to the segment of a member, splits, merges.
//!
//! Uniqueness means something only from the root down: a part below a shared one has a count of 1
//! and is shared all the same. So every descent here begins at a root that is unique, and makes
//! each part unique before it goes below it.

use super::entry::{LargeMember, NewMember};
use super::part::{Part, Run};
use super::segment::{self, Fit, Place};
use super::{HASH_BITS, POSITION_BITS, Root, Shape, Sizes, branch, branches};
use crate::work;

/// The bit that parts a segment which covers a run of branches at the level of `shift`.
fn split_bit(shift: u32, run: Run) -> u32 {
    shift + run.length.ilog2() - 1
}

/// Inserts an absent member; `index` is the slot for it, as far as nothing is split.
pub(super) fn insert<S: Shape>(root: &mut Root, hash: u64, index: usize, member: NewMember<'_>) {
    let Root { sizes, top, .. } = root;
    let mut index = Some(index);
    if !top.is_node() {
        let bit = HASH_BITS - 1;
        if let Fit::Done = insert_into::<S>(top, index.take(), hash, member, bit, sizes) {
            return;
        }
        *top = split_to_node::<S>(top, bit, sizes);
    }
    let mut shift = HASH_BITS - S::LEVEL_BITS;
    let mut node = top;
    loop {
        node.unshare_node();
        let branch = branch::<S>(hash, shift);
        let kid = node.kid_index(branch);
        if node.kids()[kid].is_node() {
            node = &mut node.kids_mut()[kid];
            shift -= S::LEVEL_BITS;
            continue;
        }
        let run = node.run(branch, branches::<S>());
        let bit = split_bit(shift, run);
        let target = &mut node.kids_mut()[kid];
        if let Fit::Done = insert_into::<S>(target, index.take(), hash, member, bit, sizes) {
            return;
        }
        if run.length == 1 {
            *target = split_to_node::<S>(target, bit, sizes);
        } else {
            split_in_node::<S>(node, kid, run, bit, sizes);
        }
    }
}

/// Inserts into one segment, which could be split by `bit`.
fn insert_into<S: Shape>(
    target: &mut Part,
    index: Option<usize>,
    hash: u64,
    member: NewMember<'_>,
    bit: u32,
    sizes: &mut Sizes,
) -> Fit {
    let index = index.unwrap_or_else(|| match segment::find(target, hash, member.bytes()) {
        Place::Absent(index) => index,
        Place::Found(_) => unreachable!("only absent members are inserted"),
    });
    let before = target.head().size;
    let can_split = bit >= POSITION_BITS;
    let fit = segment::insert::<S>(target, index, hash, member, can_split);
    sizes.replace(before, target.head().size);
    fit
}

/// Both halves of a segment, with the sums adapted.
fn split<S: Shape>(target: &Part, bit: u32, sizes: &mut Sizes) -> (Part, Part) {
    let (without, with) = segment::split::<S>(target, bit);
    sizes.replace(target.head().size, without.head().size);
    sizes.add(with.head().size.into());
    (without, with)
}

/// Splits a segment that covers all branches of a level which has no node yet.
fn split_to_node<S: Shape>(target: &Part, bit: u32, sizes: &mut Sizes) -> Part {
    let (without, with) = split::<S>(target, bit, sizes);
    let node = Part::node_of(without, with, branches::<S>() / 2);
    sizes.add(node.head().size.into());
    node
}

/// Splits a segment that covers several branches of its node.
fn split_in_node<S: Shape>(node: &mut Part, kid: usize, run: Run, bit: u32, sizes: &mut Sizes) {
    let (without, with) = split::<S>(&node.kids()[kid], bit, sizes);
    node.kids_mut()[kid] = without;
    let before = node.head().size;
    node.insert_kid(kid + 1, run.start + run.length / 2, with);
    sizes.replace(before, node.head().size);
}

/// Removes the member at the slot `index` of its segment. Returns it if it lies outside.
pub(super) fn remove<S: Shape>(root: &mut Root, hash: u64, index: usize) -> Option<LargeMember> {
    let shift = HASH_BITS - S::LEVEL_BITS;
    remove_below::<S>(&mut root.top, shift, hash, index, &mut root.sizes).0
}

/// Removes a member below a part. The second value is true when the part is a segment that may now
/// be worth merging. Recursion is as deep as the trie: at most 8 levels in the standard shape.
fn remove_below<S: Shape>(
    part: &mut Part,
    shift: u32,
    hash: u64,
    index: usize,
    sizes: &mut Sizes,
) -> (Option<LargeMember>, bool) {
    if !part.is_node() {
        let before = part.head().size;
        let removed = segment::remove(part, index);
        let shrunk = segment::shrink(part) || part.head().count == 0;
        sizes.replace(before, part.head().size);
        return (removed, shrunk);
    }
    part.unshare_node();
    let branch = branch::<S>(hash, shift);
    let kid = part.kid_index(branch);
    let below = shift.saturating_sub(S::LEVEL_BITS);
    let (removed, shrunk) = remove_below::<S>(&mut part.kids_mut()[kid], below, hash, index, sizes);
    if !shrunk {
        return (removed, false);
    }
    while merge_with_buddy::<S>(part, branch, sizes) {}
    if part.head().count == 1 && !part.kids()[0].is_node() {
        sizes.subtract(part.head().size.into());
        let only = part.remove_kid(0, 0);
        *part = only;
        return (removed, true);
    }
    (removed, false)
}

/// Merges the segment that covers a branch with the one that covers the other half of twice as many
/// branches, when both together are small: at most half of what a segment may have, so that the
/// next insertions do not part them again.
fn merge_with_buddy<S: Shape>(node: &mut Part, branch: u32, sizes: &mut Sizes) -> bool {
    let run = node.run(branch, branches::<S>());
    if run.length == branches::<S>() {
        return false;
    }
    let buddy = node.run(run.start ^ run.length, branches::<S>());
    let left = node.kid_index(run.start.min(buddy.start));
    let [first, second] = [&node.kids()[left], &node.kids()[left + 1]];
    work::nodes(1);
    if buddy.length != run.length || first.is_node() || second.is_node() {
        return false;
    }
    let together = segment::charged_bytes(first) + segment::charged_bytes(second);
    if together > S::SEGMENT_BYTES_MAX / 2 {
        return false;
    }
    let merged = segment::merge(first, second);
    sizes.replace(first.head().size, merged.head().size);
    sizes.subtract(second.head().size.into());
    node.kids_mut()[left] = merged;
    drop(node.remove_kid(left + 1, run.start.max(buddy.start)));
    true
}
