//! Hot path. The leaf of a list: elements without headers, and a column of their lengths.
//!
//! ```text
//!     0    8  reference count
//!     8    8  slab   null or -> the elements that lie outside, in order
//!    16    2  head   where the first element's bytes begin in the buffer
//!    18    2  tail   where the last element's bytes end
//!    20    2  len    elements
//!    22 4074  buffer:
//!             [ free ][ bytes of the elements, in order ][ free ][ len[n-1] ... len[1] len[0] ]
//!                   head ---------------------------> tail       u16 each, growing downwards
//! ```
//!
//! Bit 15 of a length marks an element that lies outside the leaf: it has no bytes in the buffer
//! (the other bits are zero), and the number of such marks before it is its place in the slab.
//!
//! The position of an element is a sum of lengths from the nearer end: forty lengths of 100-byte
//! elements are two cache lines, read in order, and the sum is vectorised. Lengths beside the
//! elements would cost a cache line per step instead.
//!
//! Load: an element counts with its bytes and its length's; one outside with a 32nd of the leaf,
//! which bounds the reference counts that a copy of the leaf increments. An element that would
//! count with more than a quarter goes outside, so half a leaf always has room for one more.
//!
//! Invariants: `head <= tail <= B - 2 * len`; the lengths sum up to `tail - head`; marks and slab
//! agree; the load is at most `B`.
//!
//! Costs: a push moves two bytes per element at most (in front) or nothing (at the end). When one
//! of the two gaps is used up the elements move so that both have the same size again.

use std::ops::{ControlFlow, Range};

use super::element::{Element, Item, Lengths, OutOfLine, Run};
use crate::tree::Leaf;
use crate::{cache, work};

/// Set in the length of an element that lies in the slab.
const OUT_OF_LINE: u16 = 1 << 15;
/// Bytes of one length in the column.
const LENGTH_BYTES: usize = size_of::<u16>();
/// Elements outside that a leaf may have.
const OUT_OF_LINE_MAX: usize = 32;

/// Elements of a walk that are worth a unit of work.
const VISITS_PER_UNIT: u64 = 4;

/// A leaf with a buffer of `B` bytes.
#[derive(Clone)]
#[repr(C)]
pub(super) struct ListLeaf<const B: usize> {
    /// The elements that lie outside; `None` if there are none.
    slab: Option<Box<Slab>>,
    /// Where the bytes of the first element begin.
    head: u16,
    /// Where the bytes of the last element end.
    tail: u16,
    /// Elements, those outside included.
    len: u16,
    /// Bytes of the elements and, at the end, their lengths.
    buffer: [u8; B],
}

/// Elements that lie outside of a leaf.
#[derive(Clone, Default)]
struct Slab {
    /// In the order of the leaf.
    values: Vec<OutOfLine>,
    /// Bytes allocated for the values.
    bytes: u64,
}

/// An element in the form in which a leaf stores it.
pub(super) enum Payload<'a> {
    Inline(&'a [u8]),
    OutOfLine(OutOfLine),
}

impl<const B: usize> ListLeaf<B> {
    /// The leaf's own allocation.
    pub(super) const PAGE_BYTES: usize = size_of::<usize>() + size_of::<Self>();
    /// The longest element in the buffer.
    const INLINE_BYTES_MAX: usize = B / 4 - LENGTH_BYTES;
    /// What an element outside counts for.
    const OUT_OF_LINE_LOAD: usize = {
        assert!(B >= 32 && B < OUT_OF_LINE as usize, "offsets and lengths have 15 bits");
        if B / OUT_OF_LINE_MAX > LENGTH_BYTES { B / OUT_OF_LINE_MAX } else { LENGTH_BYTES }
    };

    pub(super) const fn empty() -> Self {
        ListLeaf { slab: None, head: 0, tail: 0, len: 0, buffer: [0; B] }
    }

    /// The form in which a leaf stores an element. Allocates if that is outside.
    pub(super) fn payload(element: Element<'_>) -> Payload<'_> {
        match element {
            Element::Bytes(bytes) if bytes.len() <= Self::INLINE_BYTES_MAX => {
                Payload::Inline(bytes)
            }
            Element::Bytes(bytes) => Payload::OutOfLine(OutOfLine::new(bytes)),
            Element::Block(block) => Payload::OutOfLine(OutOfLine::Block(block)),
            Element::Big(big) => Payload::OutOfLine(OutOfLine::Big(big)),
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the payload may be inserted without a split.
    pub(super) fn has_room_for(&self, payload: &Payload<'_>) -> bool {
        let load = match payload {
            Payload::Inline(bytes) => bytes.len() + LENGTH_BYTES,
            Payload::OutOfLine(_) => Self::OUT_OF_LINE_LOAD,
        };
        self.load() + load <= B
    }

    /// Whether the payload may be inserted without a split and without an allocation, even if the
    /// leaf is shared and copied for that.
    #[inline]
    pub(super) fn takes_easily(&self, payload: &Payload<'_>) -> bool {
        matches!(payload, Payload::Inline(_)) && self.slab.is_none() && self.has_room_for(payload)
    }

    /// Whether one element can be taken out without anything to free, merge or remove.
    #[inline]
    pub(super) fn gives_easily(&self) -> bool {
        self.slab.is_none() && self.len > 1
    }

    /// The element at `position`.
    pub(super) fn get(&self, position: usize) -> Item<'_> {
        self.item(position, self.offset(position), || self.slab_place(position))
    }

    /// Inserts before the element at `position`; there must be room.
    pub(super) fn insert(&mut self, position: usize, payload: Payload<'_>) {
        debug_assert!(self.has_room_for(&payload));
        let length = match payload {
            Payload::Inline(bytes) => {
                let offset = self.open_gap(position, bytes.len());
                self.buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
                bytes.len() as u16
            }
            Payload::OutOfLine(value) => {
                self.open_gap(position, 0);
                let place = self.slab_place(position);
                self.slab.get_or_insert_default().insert(place, value);
                OUT_OF_LINE
            }
        };
        let end = B - position * LENGTH_BYTES;
        let start = self.column_start();
        self.buffer.copy_within(start..end, start - LENGTH_BYTES);
        self.buffer[end - LENGTH_BYTES..end].copy_from_slice(&length.to_le_bytes());
        self.len += 1;
        work::bytes(usize::from(length & !OUT_OF_LINE) + self.len() * LENGTH_BYTES / 2);
    }

    /// Removes the element at `position` and hands it to `taken`.
    pub(super) fn take(&mut self, position: usize, taken: impl FnOnce(Element<'_>)) {
        let length = self.raw_length(position);
        if length == OUT_OF_LINE {
            taken(self.take_out_of_line(position).into_element());
        } else {
            let offset = self.offset(position);
            let bytes = offset..offset + usize::from(length);
            taken(Element::Bytes(&self.buffer[bytes.clone()]));
            self.close_gap(bytes);
        }
        let end = B - position * LENGTH_BYTES;
        let start = self.column_start();
        self.buffer.copy_within(start..end - LENGTH_BYTES, start + LENGTH_BYTES);
        self.len -= 1;
        if self.len == 0 {
            (self.head, self.tail) = (0, 0);
        }
        work::bytes(self.len() * LENGTH_BYTES / 2);
    }

    /// Replaces the bytes of the element at `position` by as many others, and hands the old ones to
    /// `displaced`. If the element cannot be overwritten in its place, returns what was given.
    pub(super) fn overwrite<T: FnOnce(Element<'_>)>(
        &mut self,
        position: usize,
        bytes: &[u8],
        displaced: T,
    ) -> Result<(), T> {
        if usize::from(self.raw_length(position)) != bytes.len() {
            return Err(displaced);
        }
        let offset = self.offset(position);
        let old = &mut self.buffer[offset..offset + bytes.len()];
        displaced(Element::Bytes(old));
        old.copy_from_slice(bytes);
        work::bytes(bytes.len());
        Ok(())
    }

    /// Prepares an empty leaf for pushes in front of elements like `first`: leaves just so much
    /// room behind the first element as the lengths of a full leaf take.
    pub(super) fn prepare_for_front(&mut self, first: &Payload<'_>) {
        debug_assert!(self.len == 0);
        let length = match first {
            Payload::Inline(bytes) => bytes.len() + LENGTH_BYTES,
            Payload::OutOfLine(_) => Self::OUT_OF_LINE_LOAD,
        };
        self.head = (B - B / length * LENGTH_BYTES) as u16;
        self.tail = self.head;
    }

    /// Moves the second half of the load into a new leaf.
    pub(super) fn split_in_half(&mut self) -> Self {
        let half = self.load() / 2;
        let mut load = 0;
        let mut left = 0;
        while load < half && left + 1 < self.len() {
            load += match self.raw_length(left) {
                OUT_OF_LINE => Self::OUT_OF_LINE_LOAD,
                length => usize::from(length) + LENGTH_BYTES,
            };
            left += 1;
        }
        self.split_off(left)
    }

    /// Calls `visit` with the elements from `position` on until it breaks.
    pub(super) fn for_each_from(
        &self,
        position: usize,
        visit: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut offset = self.offset(position);
        let mut place = self.slab_place(position);
        let mut visited = 0;
        let flow = (position..self.len()).try_for_each(|position| {
            let (at, length) = (offset, self.raw_length(position));
            let at_place = place;
            offset += usize::from(length & !OUT_OF_LINE);
            place += usize::from(length >> 15);
            visited += 1;
            visit(self.item(position, at, || at_place))
        });
        work::add(visited / VISITS_PER_UNIT);
        flow
    }

    /// Calls `visit` with the elements at `positions` in runs until it breaks. May break itself if
    /// they end within the leaf: then nobody wants those behind.
    pub(super) fn for_each_run(
        &self,
        positions: Range<usize>,
        visit: &mut impl FnMut(Run<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.slab.is_some() {
            let mut next = positions.start;
            return self.for_each_from(positions.start, &mut |item| {
                visit(Run::Alone(item))?;
                next += 1;
                let is_over = next == positions.end && next < self.len();
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        visit(self.run(positions))
    }

    /// The same from the last run to the first.
    pub(super) fn for_each_run_back(
        &self,
        positions: Range<usize>,
        visit: &mut impl FnMut(Run<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.slab.is_none() {
            return visit(self.run(positions));
        }
        let mut left = positions.len();
        self.for_each_back_from(positions.end - 1, &mut |item| {
            visit(Run::Alone(item))?;
            left -= 1;
            let is_over = left == 0 && positions.start > 0;
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// The elements at `positions`, none of which lies outside.
    fn run(&self, positions: Range<usize>) -> Run<'_> {
        work::add(positions.len() as u64 / VISITS_PER_UNIT);
        let start = self.offset(positions.start);
        let bytes = &self.buffer[start..start + self.sum(positions.clone())];
        bytes.chunks(cache::LINE_BYTES).for_each(|line| cache::prefetch(line.as_ptr()));
        let column = B - positions.end * LENGTH_BYTES..B - positions.start * LENGTH_BYTES;
        let (pairs, _) = self.buffer[column].as_chunks::<LENGTH_BYTES>();
        Run::Inline(bytes, Lengths { pairs: pairs.iter() })
    }

    /// Calls `visit` with the element at `position` and those before it until it breaks.
    pub(super) fn for_each_back_from(
        &self,
        position: usize,
        visit: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut offset = self.offset(position + 1);
        let mut place = self.slab_place(position + 1);
        let mut visited = 0;
        let flow = (0..=position).rev().try_for_each(|position| {
            let length = self.raw_length(position);
            offset -= usize::from(length & !OUT_OF_LINE);
            place -= usize::from(length >> 15);
            visited += 1;
            visit(self.item(position, offset, || place))
        });
        work::add(visited / VISITS_PER_UNIT);
        flow
    }

    /// The element at `position`, given its offset and, if it lies outside, its place.
    #[inline]
    fn item(&self, position: usize, offset: usize, place: impl FnOnce() -> usize) -> Item<'_> {
        match self.raw_length(position) {
            OUT_OF_LINE => {
                let slab = self.slab.as_ref().expect("a mark has a value in the slab");
                slab.values[place()].as_item()
            }
            length => Item::Bytes(&self.buffer[offset..offset + usize::from(length)]),
        }
    }

    /// Where the column of lengths begins.
    fn column_start(&self) -> usize {
        B - self.len() * LENGTH_BYTES
    }

    /// The lengths of a range of positions, last one first.
    fn lengths(&self, positions: Range<usize>) -> impl Iterator<Item = u16> {
        let column = B - positions.end * LENGTH_BYTES..B - positions.start * LENGTH_BYTES;
        let (pairs, _) = self.buffer[column].as_chunks::<LENGTH_BYTES>();
        pairs.iter().map(|&pair| u16::from_le_bytes(pair))
    }

    /// The length at `position`, with its mark.
    #[inline]
    fn raw_length(&self, position: usize) -> u16 {
        let end = B - position * LENGTH_BYTES;
        u16::from_le_bytes([self.buffer[end - 2], self.buffer[end - 1]])
    }

    /// Bytes in the buffer of a range of elements. They are less than 2^15, so the sum of 16-bit
    /// lengths, which vectorises best, does not overflow.
    fn sum(&self, positions: Range<usize>) -> usize {
        usize::from(
            self.lengths(positions).fold(0_u16, |sum, it| sum.wrapping_add(it & !OUT_OF_LINE)),
        )
    }

    /// Where the bytes of the element at `position` begin; for the length, where all bytes end.
    fn offset(&self, position: usize) -> usize {
        match position * 2 <= self.len() {
            true => usize::from(self.head) + self.sum(0..position),
            false => usize::from(self.tail) - self.sum(position..self.len()),
        }
    }

    /// How many elements before `position` lie outside.
    fn slab_place(&self, position: usize) -> usize {
        match self.slab {
            None => 0,
            Some(_) => self.lengths(0..position).map(|length| usize::from(length >> 15)).sum(),
        }
    }

    fn take_out_of_line(&mut self, position: usize) -> OutOfLine {
        let place = self.slab_place(position);
        let slab = self.slab.as_mut().expect("a mark has a value in the slab");
        let value = slab.remove(place);
        if slab.values.is_empty() {
            self.slab = None;
        }
        value
    }

    /// Makes room for `length` bytes before the element at `position`, and for one more length;
    /// returns where. Moves the smaller side, or both when its gap is used up.
    fn open_gap(&mut self, position: usize, length: usize) -> usize {
        let (head, tail) = (usize::from(self.head), usize::from(self.tail));
        let limit = self.column_start() - LENGTH_BYTES;
        let offset = self.offset(position);
        let fits_in_front = head >= length && tail <= limit;
        let fits_behind = tail + length <= limit;
        let in_front = head..offset;
        let behind = offset..tail;
        let new_head = if fits_in_front && in_front.len() <= behind.len() {
            head - length
        } else if fits_behind && behind.len() <= in_front.len() {
            head
        } else {
            (limit - (tail - head) - length) / 2
        };
        let gap = new_head + in_front.len();
        // The side that moves away from the other one goes first, so neither overwrites the other.
        if new_head > head {
            self.move_bytes(behind, gap + length);
            self.move_bytes(in_front, new_head);
        } else {
            self.move_bytes(in_front, new_head);
            self.move_bytes(behind, gap + length);
        }
        self.head = new_head as u16;
        self.tail = (new_head + (tail - head) + length) as u16;
        gap
    }

    /// Takes the bytes of one element out, by moving the smaller side.
    fn close_gap(&mut self, gap: Range<usize>) {
        let (head, tail) = (usize::from(self.head), usize::from(self.tail));
        if gap.start - head < tail - gap.end {
            self.move_bytes(head..gap.start, head + gap.len());
            self.head += gap.len() as u16;
        } else {
            self.move_bytes(gap.end..tail, gap.start);
            self.tail -= gap.len() as u16;
        }
    }

    #[inline]
    fn move_bytes(&mut self, from: Range<usize>, to: usize) {
        if from.start != to && !from.is_empty() {
            work::bytes(from.len());
            self.buffer.copy_within(from, to);
        }
    }
}

impl<const B: usize> Leaf for ListLeaf<B> {
    const CAPACITY: usize = B;

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        Self::PAGE_BYTES as u64 + self.slab.as_ref().map_or(0, |slab| slab.allocated())
    }

    #[inline]
    fn prefetch(&self) {
        cache::prefetch(self);
        let end = self.buffer.as_ptr_range().end;
        (1..=2).for_each(|line| cache::prefetch(end.wrapping_sub(line * cache::LINE_BYTES)));
    }

    fn load(&self) -> usize {
        let outside = self.slab.as_ref().map_or(0, |slab| slab.values.len());
        usize::from(self.tail - self.head)
            + self.len() * LENGTH_BYTES
            + outside * (Self::OUT_OF_LINE_LOAD - LENGTH_BYTES)
    }

    fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::empty();
        let offset = self.offset(at);
        let place = self.slab_place(at);
        let moved = offset..usize::from(self.tail);
        let column = self.column_start()..B - at * LENGTH_BYTES;
        work::bytes(moved.len() + column.len());
        right.buffer[..moved.len()].copy_from_slice(&self.buffer[moved.clone()]);
        right.buffer[B - column.len()..].copy_from_slice(&self.buffer[column]);
        right.tail = moved.len() as u16;
        right.len = self.len - at as u16;
        self.tail = offset as u16;
        self.len = at as u16;
        if let Some(slab) = &mut self.slab {
            right.slab = slab.split_off(place);
            if slab.values.is_empty() {
                self.slab = None;
            }
        }
        right
    }

    fn append(&mut self, right: &Self) {
        let moved = usize::from(right.head)..usize::from(right.tail);
        let column_start = self.column_start() - right.len() * LENGTH_BYTES;
        if usize::from(self.tail) + moved.len() > column_start {
            let data = usize::from(self.head)..usize::from(self.tail);
            self.tail = data.len() as u16;
            self.move_bytes(data, 0);
            self.head = 0;
        }
        let (tail, end) = (usize::from(self.tail), usize::from(self.tail) + moved.len());
        work::bytes(moved.len() + right.len() * LENGTH_BYTES);
        self.buffer[tail..end].copy_from_slice(&right.buffer[moved]);
        let column = column_start..self.column_start();
        self.buffer[column].copy_from_slice(&right.buffer[right.column_start()..]);
        self.tail = end as u16;
        self.len += right.len;
        if let Some(slab) = &right.slab {
            self.slab.get_or_insert_default().append(slab);
        }
    }

    fn drop_step(&mut self, budget: &mut usize) -> bool {
        let Some(slab) = &mut self.slab else { return true };
        while let Some(value) = slab.values.last_mut() {
            let bytes = value.bytes();
            if *budget == 0 || !value.drop_step(budget) {
                return false;
            }
            work::allocations(1);
            *budget = budget.saturating_sub(1);
            slab.values.pop();
            slab.bytes -= bytes;
        }
        true
    }

    fn check_invariants(&self) {
        let (head, tail) = (usize::from(self.head), usize::from(self.tail));
        assert!(head <= tail && tail <= self.column_start(), "elements and lengths overlap");
        assert_eq!(self.sum(0..self.len()), tail - head, "lengths and bytes disagree");
        assert!(self.load() <= B, "overfull");
        let marks = self.lengths(0..self.len()).filter(|&length| length >= OUT_OF_LINE).count();
        match &self.slab {
            None => assert_eq!(marks, 0, "a mark without a slab"),
            Some(slab) => {
                assert!(marks > 0, "an empty slab");
                assert_eq!(marks, slab.values.len(), "marks and slab disagree");
                let bytes: u64 = slab.values.iter().map(OutOfLine::bytes).sum();
                assert_eq!(bytes, slab.bytes, "bytes of the slab");
            }
        }
    }
}

impl Slab {
    /// Bytes allocated for the slab and its values.
    fn allocated(&self) -> u64 {
        let own = size_of::<Self>() + self.values.capacity() * size_of::<OutOfLine>();
        own as u64 + self.bytes
    }

    fn insert(&mut self, place: usize, value: OutOfLine) {
        self.bytes += value.bytes();
        self.values.insert(place, value);
    }

    fn remove(&mut self, place: usize) -> OutOfLine {
        let value = self.values.remove(place);
        self.bytes -= value.bytes();
        value
    }

    /// Moves the values from `place` on into a new slab, if there are any.
    fn split_off(&mut self, place: usize) -> Option<Box<Slab>> {
        if place == self.values.len() {
            return None;
        }
        let values = self.values.split_off(place);
        let bytes = values.iter().map(OutOfLine::bytes).sum();
        self.bytes -= bytes;
        Some(Box::new(Slab { values, bytes }))
    }

    fn append(&mut self, right: &Slab) {
        self.values.extend_from_slice(&right.values);
        self.bytes += right.bytes;
    }
}
