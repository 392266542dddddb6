//! Interprets bytes as operations on a list and on a model of it, for the fuzz target and the
//! randomized tests.
//!
//! The model is a vector. Up to [`SNAPSHOTS_MAX`] snapshots live beside the list; what was written
//! after them must not show in them. Small nodes make a deep tree of few elements.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::ListOf;
use super::element::{Block, Element, Item, Run, SMALL_BLOCK_BYTES_MAX};
use super::find::{Cursor, Found};
use crate::big_string::BigString;

/// Snapshots that live at the same time.
const SNAPSHOTS_MAX: usize = 6;
/// The list is cut when it is longer.
const LEN_MAX: usize = 3000;
/// Operations between two comparisons of everything.
const FULL_CHECK_INTERVAL: usize = 32;

type Visit<'a> = dyn FnMut(Item<'_>) -> ControlFlow<()> + 'a;
type Model = Vec<Rc<Vec<u8>>>;

/// Runs the operations on a list with small nodes.
pub fn drive(ops: &[u8]) {
    drive_with::<48, 4>(ops);
}

/// Runs the operations on a list with leaves of `B` bytes and inner nodes of `F` children.
pub(super) fn drive_with<const B: usize, const F: usize>(ops: &[u8]) {
    let mut driver = Driver::<B, F>::new(ops);
    let mut count = 0;
    while let Some(op) = driver.input.next() {
        driver.operate(op);
        driver.list.check_invariants();
        assert_eq!(driver.list.len(), driver.model.len() as u64);
        count += 1;
        if count % FULL_CHECK_INTERVAL == 0 {
            driver.check_all();
        }
    }
    driver.check_all();
}

struct Driver<'a, const B: usize, const F: usize> {
    input: std::iter::Copied<std::slice::Iter<'a, u8>>,
    list: ListOf<B, F>,
    model: Model,
    snapshots: Vec<(ListOf<B, F>, Model)>,
    /// Makes elements differ.
    serial: u32,
}

impl<'a, const B: usize, const F: usize> Driver<'a, B, F> {
    fn new(ops: &'a [u8]) -> Self {
        Driver {
            input: ops.iter().copied(),
            list: ListOf::new(),
            model: Model::new(),
            snapshots: Vec::new(),
            serial: 0,
        }
    }

    fn operate(&mut self, op: u8) {
        match op % 32 {
            0..=3 => self.push_many(),
            4..=6 => self.pop_many(),
            7..=9 => self.insert(),
            10..=12 => self.remove(),
            13..=15 => self.set(),
            16 => self.remove_run(),
            17 => self.cut_and_swap(),
            18 => self.append_new(),
            19 => self.append_itself(),
            20..=21 => self.detach(),
            22..=23 => self.take_snapshot(),
            24 => self.roll_back(),
            25 => self.drop_snapshot(),
            26 => self.find(),
            27 => self.walk(),
            28 => self.drop_in_steps(),
            29 => self.insert_run(),
            30 => self.edge_thrash(),
            _ => self.get(),
        }
        if self.model.len() > LEN_MAX {
            self.list.split_off(LEN_MAX as u64 / 8);
            self.model.truncate(LEN_MAX / 8);
        }
    }

    fn byte(&mut self) -> usize {
        usize::from(self.input.next().unwrap_or(0))
    }

    fn coin(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    /// A number below `limit`, which must not be zero.
    fn below(&mut self, limit: usize) -> usize {
        (self.byte() << 8 | self.byte()) % limit
    }

    /// An element, and its bytes for the model. Most lie in the leaf, some of them at the limit.
    fn element(&mut self) -> Vec<u8> {
        let choice = self.byte();
        let length = match choice {
            0..=200 => choice % (B / 8),
            201..=240 => B / 4 - 2 + choice % 2,
            241..=253 => B / 4 + choice,
            254 => SMALL_BLOCK_BYTES_MAX,
            _ => SMALL_BLOCK_BYTES_MAX + 1 + self.byte() * 32,
        };
        // A few different contents only, so that searches find something.
        self.serial = self.serial.wrapping_mul(5).wrapping_add(1);
        vec![b'a' + (self.serial >> 20) as u8 % 4; length]
    }

    fn with_element(
        &mut self,
        store: impl FnOnce(&mut ListOf<B, F>, &mut Model, Element<'_>, Rc<Vec<u8>>),
    ) {
        let bytes = Rc::new(self.element());
        let element = match bytes.len() {
            length if length < B / 4 => Element::Bytes(&bytes),
            length if length % 3 == 0 => Element::Block(Block::new(&bytes)),
            length if length % 3 == 1 => {
                let mut big = BigString::new();
                big.append(&bytes);
                Element::Big(big)
            }
            _ => Element::Bytes(&bytes),
        };
        store(&mut self.list, &mut self.model, element, Rc::clone(&bytes));
    }

    fn push_many(&mut self) {
        let choice = self.byte();
        for _ in 0..choice / 2 {
            self.with_element(|list, model, element, bytes| match choice % 2 {
                0 => {
                    list.push_back(element);
                    model.push(bytes);
                }
                _ => {
                    list.push_front(element);
                    model.insert(0, bytes);
                }
            });
        }
    }

    fn pop_many(&mut self) {
        let choice = self.byte();
        for _ in 0..choice / 2 % 40 {
            let mut popped = None;
            let keep = |element: Element<'_>| popped = Some(element.as_item().to_vec());
            let (done, expected) = match choice % 2 {
                0 => (self.list.pop_back(keep), self.model.pop()),
                _ if self.model.is_empty() => (self.list.pop_front(keep), None),
                _ => (self.list.pop_front(keep), Some(self.model.remove(0))),
            };
            assert_eq!(done, expected.is_some());
            assert_eq!(popped.as_ref(), expected.as_deref());
        }
    }

    fn insert(&mut self) {
        let index = self.below(self.model.len() + 1);
        self.with_element(|list, model, element, bytes| {
            list.insert(index as u64, element);
            model.insert(index, bytes);
        });
    }

    fn insert_run(&mut self) {
        let index = self.below(self.model.len() + 1);
        for _ in 0..self.byte() % 40 {
            self.with_element(|list, model, element, bytes| {
                list.insert(index as u64, element);
                model.insert(index, bytes);
            });
        }
    }

    fn remove(&mut self) {
        let index = self.below(self.model.len() + 1);
        self.remove_at(index);
    }

    fn remove_run(&mut self) {
        let index = self.below(self.model.len() + 1);
        for _ in 0..self.byte() % 64 {
            self.remove_at(index);
        }
    }

    fn remove_at(&mut self, index: usize) {
        let mut removed = None;
        let done =
            self.list.remove(index as u64, |element| removed = Some(element.as_item().to_vec()));
        assert_eq!(done, index < self.model.len());
        if done {
            assert_eq!(removed.as_ref(), Some(&*self.model.remove(index)));
        }
    }

    fn set(&mut self) {
        let index = self.below(self.model.len() + 1);
        self.with_element(|list, model, element, bytes| {
            let mut displaced = None;
            let done = list.set(index as u64, element, |element| {
                displaced = Some(element.as_item().to_vec());
            });
            assert_eq!(done, index < model.len());
            if done {
                assert_eq!(displaced.as_ref(), Some(&*model[index]));
                model[index] = bytes;
            }
        });
    }

    /// Cuts the list and joins the parts in the other order, or in the old one.
    fn cut_and_swap(&mut self) {
        let index = self.below(self.model.len() + 1);
        let mut right = self.list.split_off(index as u64);
        right.check_invariants();
        assert_eq!(right.len(), (self.model.len() - index) as u64);
        if self.coin() {
            self.list.append(right);
        } else {
            right.append(std::mem::take(&mut self.list));
            self.list = right;
            self.model.rotate_left(index);
        }
    }

    fn append_new(&mut self) {
        let mut taken = std::mem::take(&mut self.list);
        let mut model = std::mem::take(&mut self.model);
        for _ in 0..1 + self.byte() % 4 {
            self.push_many();
        }
        if self.coin() {
            std::mem::swap(&mut taken, &mut self.list);
            std::mem::swap(&mut model, &mut self.model);
        }
        self.list.append(taken);
        self.model.append(&mut model);
    }

    fn append_itself(&mut self) {
        if self.model.len() < LEN_MAX / 2 {
            self.list.append(self.list.clone());
            self.model.extend_from_within(..);
        }
    }

    fn detach(&mut self) {
        let start = self.below(self.model.len() + 1);
        let end = match self.byte() % 4 {
            0 => self.model.len(),
            1 => start,
            _ => start + self.below(self.model.len() + 1 - start),
        };
        let start = if self.coin() { 0 } else { start };
        let detached = self.list.detach(start as u64..end as u64);
        let expected: Model = self.model.drain(start..end).collect();
        detached.check_invariants();
        compare(&detached, &expected);
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() < SNAPSHOTS_MAX {
            self.snapshots.push((self.list.clone(), self.model.clone()));
        }
    }

    fn roll_back(&mut self) {
        if let Some((list, model)) = self.snapshots.pop() {
            compare(&list, &model);
            (self.list, self.model) = (list, model);
        }
    }

    fn drop_snapshot(&mut self) {
        if !self.snapshots.is_empty() {
            let index = self.byte() % self.snapshots.len();
            let (list, model) = self.snapshots.swap_remove(index);
            list.check_invariants();
            compare(&list, &model);
        }
    }

    /// Searches in steps, in both directions.
    fn find(&mut self) {
        if self.model.is_empty() {
            return;
        }
        let index = self.below(self.model.len());
        let needle = Rc::clone(&self.model[index]);
        let start = self.below(self.model.len());
        let limit = 1 + self.byte() % 8;
        let steps = |step: &dyn Fn(Cursor) -> Found| {
            let mut cursor = Cursor::at(start as u64);
            loop {
                match step(cursor) {
                    Found::Pending(next) => {
                        assert_ne!(cursor, next, "a step gets on");
                        cursor = next;
                    }
                    Found::At(index) => break Some(index as usize),
                    Found::Nothing => break None,
                }
            }
        };
        let forward = steps(&|cursor| self.list.find_from(cursor, &needle, limit));
        let expected = (start..self.model.len()).find(|&index| self.model[index] == needle);
        assert_eq!(forward, expected);
        let backward = steps(&|cursor| self.list.find_back_from(cursor, &needle, limit));
        assert_eq!(backward, (0..=start).rev().find(|&index| self.model[index] == needle));
    }

    fn walk(&mut self) {
        let start = self.below(self.model.len() + 1);
        let limit = self.byte();
        let walk = |run: &dyn Fn(&mut Visit<'_>)| {
            let mut seen = Vec::new();
            run(&mut |item| {
                if seen.len() == limit {
                    return ControlFlow::Break(());
                }
                seen.push(item.to_vec());
                ControlFlow::Continue(())
            });
            seen
        };
        let forward = walk(&|visit| self.list.for_each_from(start as u64, visit));
        let expected = self.model[start..].iter().take(limit);
        assert!(forward.iter().eq(expected.map(|bytes| &**bytes)));
        self.walk_runs(start, limit);
    }

    fn walk_runs(&self, start: usize, limit: usize) {
        let range = start as u64..(start + limit) as u64;
        let mut seen = Vec::new();
        self.list.for_each_run(range.clone(), |run| {
            seen.extend(elements_of(run));
            ControlFlow::Continue(())
        });
        let expected = self.model[start..].iter().take(limit);
        assert!(seen.iter().eq(expected.clone().map(|bytes| &**bytes)));
        seen.clear();
        self.list.for_each_run_back(range, |run| {
            seen.extend(elements_of(run).into_iter().rev());
            ControlFlow::Continue(())
        });
        assert!(seen.iter().eq(expected.rev().map(|bytes| &**bytes)));
    }

    /// Frees a part of the list as the reaper does.
    fn drop_in_steps(&mut self) {
        let index = self.below(self.model.len() + 1);
        let budget = 1 + self.byte() % 16;
        let mut right = self.list.split_off(index as u64);
        self.model.truncate(index);
        let mut before = (right.len(), right.bytes());
        while !right.drop_step(budget) {
            let after = (right.len(), right.bytes());
            assert!(after.0 <= before.0 && after.1 <= before.1);
            before = after;
        }
        assert!(right.is_empty());
    }

    /// Adds and removes at one end, across the boundary of leaves.
    fn edge_thrash(&mut self) {
        for _ in 0..self.byte() % 16 {
            self.with_element(|list, _, element, _| list.push_back(element));
            self.list.check_invariants();
            assert!(self.list.pop_back(|_| ()));
            self.with_element(|list, _, element, _| list.push_front(element));
            self.list.check_invariants();
            assert!(self.list.pop_front(|_| ()));
        }
    }

    fn get(&mut self) {
        for _ in 0..8 {
            let index = self.below(self.model.len() + 1);
            let item = self.list.get(index as u64).map(|item| item.to_vec());
            assert_eq!(item.as_ref(), self.model.get(index).map(|bytes| &**bytes));
        }
    }

    fn check_all(&self) {
        compare(&self.list, &self.model);
        for (list, model) in &self.snapshots {
            list.check_invariants();
            compare(list, model);
        }
    }
}

fn elements_of(run: Run<'_>) -> Vec<Vec<u8>> {
    match run {
        Run::Alone(item) => vec![item.to_vec()],
        Run::Inline(mut bytes, lengths) => {
            let parts = lengths.map(|length| bytes.split_off(..length).expect("a part").to_vec());
            let parts = parts.collect();
            assert!(bytes.is_empty(), "the lengths sum up to the run");
            parts
        }
    }
}

/// Whether the list holds exactly the elements of the model.
fn compare<const B: usize, const F: usize>(list: &ListOf<B, F>, model: &[Rc<Vec<u8>>]) {
    assert_eq!(list.len(), model.len() as u64);
    let mut expected = model.iter();
    list.for_each_from(0, |item| {
        let bytes = expected.next().expect("the lengths are equal");
        match item {
            Item::Bytes(item) => assert_eq!(item, &***bytes),
            Item::Big(big) => assert!(big.equals(bytes)),
        }
        ControlFlow::Continue(())
    });
    assert!(expected.next().is_none(), "the walk ends early");
}
