//! Lists: one packed blob while small, a counted tree from then on.

use std::ops::{ControlFlow, Range};

use resp::{Protocol, Writer};
use structures::big_string::BigString;
use structures::list::{Block, Cursor, Element, Found, Item, List, Run};
use structures::object::Object;
use structures::packed::Packed;

use super::string::StringStream;
use crate::errors::{self, Result};
use crate::lanes::Discard;
use crate::lanes::DroppedObject;
use crate::output::{Reply, Stream};

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head, where LPUSH pushes.
    Left,
    /// The tail, where RPUSH pushes.
    Right,
}

/// Bytes of a reply that are encoded under the latch; the rest follows from a snapshot.
const INLINE_REPLY_BYTES: usize = 32 * 1024;

/// Elements of a reply that are encoded under the latch. Small ranges are copied at once, because
/// after a snapshot the next write to the list has to copy the path it changes.
const INLINE_REPLY_ELEMENTS: u64 = 256;

/// A new list for a first element.
pub fn new() -> Object {
    Object::PackedList(Packed::new())
}

/// Number of elements.
///
/// # Errors
/// The value is not a list.
pub fn len(object: &Object) -> Result<u64> {
    match object {
        Object::PackedList(packed) => Ok(packed.len() as u64),
        Object::List(list) => Ok(list.len()),
        _ => Err(errors::WRONG_TYPE),
    }
}

/// An argument as an element. Longer ones than a block are given as [`BigString`].
pub fn element(bytes: &[u8]) -> Element<'_> {
    if bytes.len() < 2048 { Element::Bytes(bytes) } else { Element::Block(Block::new(bytes)) }
}

/// Adds an element at an end; turns the list into a tree when it no longer fits into a blob.
pub fn push(object: &mut Object, end: End, element: Element<'_>) {
    if let Object::PackedList(packed) = object {
        match element {
            Element::Bytes(bytes) if !packed.is_full_for(bytes) => {
                return match end {
                    End::Left => packed.push_front(bytes),
                    End::Right => packed.push_back(bytes),
                };
            }
            _ => *object = Object::List(unpacked(packed)),
        }
    }
    if let Object::List(list) = object {
        match end {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
    }
}

/// Elements that one step of a search compares.
const COMPARED_PER_STEP: usize = 64;

/// One step of a search for an element, in either direction.
pub fn find(list: &List, from: Cursor, needle: &[u8], backwards: bool) -> Found {
    match backwards {
        false => list.find_from(from, needle, COMPARED_PER_STEP),
        true => list.find_back_from(from, needle, COMPARED_PER_STEP),
    }
}

/// The list as a tree, which it becomes if it was small.
///
/// # Errors
/// The value is not a list.
pub fn tree(object: &mut Object) -> Result<&mut List> {
    if let Object::PackedList(packed) = object {
        *object = Object::List(unpacked(packed));
    }
    match object {
        Object::List(list) => Ok(list),
        _ => Err(errors::WRONG_TYPE),
    }
}

/// The same list as a tree. At most as many steps as a blob has entries.
pub fn unpacked(packed: &Packed) -> List {
    let mut list = List::new();
    packed.iter().for_each(|entry| list.push_back(Element::Bytes(entry)));
    list
}

/// Joins a list that was built elsewhere to an end: O(log n).
pub fn join(object: &mut Object, end: End, mut built: List) {
    let mut own = match std::mem::replace(object, new()) {
        Object::List(list) => list,
        Object::PackedList(packed) => unpacked(&packed),
        other => return *object = other,
    };
    *object = Object::List(match end {
        End::Right => {
            own.append(built);
            own
        }
        End::Left => {
            built.append(own);
            built
        }
    });
}

/// Removes the element at an end and writes it.
pub fn pop(object: &mut Object, end: End, reply: &mut Reply<'_>) -> bool {
    match (object, end) {
        (Object::PackedList(packed), End::Left) => packed.pop_front(|e| reply.writer().bulk(e)),
        (Object::PackedList(packed), End::Right) => packed.pop_back(|e| reply.writer().bulk(e)),
        (Object::List(list), End::Left) => list.pop_front(|e| write(e.as_item(), reply)),
        (Object::List(list), End::Right) => list.pop_back(|e| write(e.as_item(), reply)),
        _ => false,
    }
}

/// Removes `count` elements at an end, of which there are as many, and writes them: one by one, or if
/// they are long, the rest of them as [`cut_off`] does it.
pub fn pop_some(object: &mut Object, end: End, count: u64, reply: &mut Reply<'_>) {
    let mut bytes = 0;
    for popped in 0..count {
        if let Object::List(list) = object {
            if bytes > INLINE_REPLY_BYTES as u64 {
                return cut_off(list, end, count - popped, reply);
            }
            let next = if end == End::Left { list.get(0) } else { list.get(list.len() - 1) };
            bytes += next.map_or(0, |item| item.len());
        }
        pop(object, end, reply);
    }
}

/// An element that has left a list.
pub enum Taken {
    /// One of moderate length.
    Bytes(Vec<u8>),
    /// A long one.
    Big(BigString),
}

impl Taken {
    fn of(element: Element<'_>) -> Taken {
        match element {
            Element::Bytes(bytes) => Taken::Bytes(bytes.to_vec()),
            Element::Block(block) => Taken::Bytes(block.to_vec()),
            Element::Big(string) => Taken::Big(string),
        }
    }

    /// As it can be read.
    pub fn item(&self) -> Item<'_> {
        match self {
            Taken::Bytes(bytes) => Item::Bytes(bytes),
            Taken::Big(string) => Item::Big(string),
        }
    }

    /// As it goes into a list.
    pub fn into_element(self, bytes: &mut Vec<u8>) -> Element<'_> {
        match self {
            Taken::Bytes(own) => {
                *bytes = own;
                element(bytes)
            }
            Taken::Big(string) => Element::Big(string),
        }
    }
}

/// Removes the element at an end.
pub fn take(object: &mut Object, end: End) -> Option<Taken> {
    let mut taken = None;
    match (object, end) {
        (Object::PackedList(packed), End::Left) => {
            packed.pop_front(|entry| taken = Some(Taken::Bytes(entry.to_vec())));
        }
        (Object::PackedList(packed), End::Right) => {
            packed.pop_back(|entry| taken = Some(Taken::Bytes(entry.to_vec())));
        }
        (Object::List(list), End::Left) => {
            list.pop_front(|element| taken = Some(Taken::of(element)));
        }
        (Object::List(list), End::Right) => {
            list.pop_back(|element| taken = Some(Taken::of(element)));
        }
        _ => {}
    }
    taken
}

/// Replaces the element at an index, which exists. Returns a long former element, which is better
/// not freed under a latch.
pub fn set(object: &mut Object, index: u64, element: Element<'_>) -> Option<Object> {
    if let Object::PackedList(packed) = object {
        match element {
            Element::Bytes(bytes) if packed.can_set(index as usize, bytes) => {
                packed.set(index as usize, bytes);
                return None;
            }
            _ => *object = Object::List(unpacked(packed)),
        }
    }
    let mut displaced = None;
    if let Object::List(list) = object {
        list.set(index, element, |element| displaced = long(element));
    }
    displaced
}

/// Inserts an element before the one at an index, or at the end.
pub fn insert(object: &mut Object, index: u64, element: Element<'_>) {
    if let Object::PackedList(packed) = object {
        match element {
            Element::Bytes(bytes) if !packed.is_full_for(bytes) => {
                return packed.insert_at(index as usize, bytes);
            }
            _ => *object = Object::List(unpacked(packed)),
        }
    }
    if let Object::List(list) = object {
        list.insert(index, element);
    }
}

/// An element that is long enough to be freed by the reaper.
pub fn long(element: Element<'_>) -> Option<Object> {
    match element {
        Element::Big(string) => Some(Object::BigString(string)),
        Element::Bytes(_) | Element::Block(_) => None,
    }
}

/// The position that a client's index means: a negative one counts from the end.
pub fn position(index: i64, len: u64) -> Option<u64> {
    let index = if index < 0 { index.saturating_add(len as i64) } else { index };
    u64::try_from(index).ok().filter(|&index| index < len)
}

/// Cuts `count` elements off an end, of which there are as many, and sends them as they leave.
pub fn cut_off(list: &mut List, end: End, count: u64, reply: &mut Reply<'_>) {
    let len = list.len();
    let stream = match end {
        End::Left => ListStream::forward(list.detach(0..count), 0..count),
        End::Right => ListStream::backward(list.detach(len - count..len)),
    };
    reply.stream(Box::new(stream));
}

/// Writes an element.
pub fn write(item: Item<'_>, reply: &mut Reply<'_>) {
    match item {
        Item::Bytes(bytes) => reply.writer().bulk(bytes),
        Item::Big(string) => reply.stream(Box::new(StringStream::new(string.clone()))),
    }
}

/// The range of elements that a client's two indexes mean: negative ones count from the end, both
/// ends are included. Empty if there is none.
pub fn range(start: i64, stop: i64, len: u64) -> Range<u64> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop { 0..0 } else { start as u64..stop as u64 + 1 }
}

/// The element that a client's index means.
pub fn get(object: &Object, index: i64, reply: &mut Reply<'_>) -> Result<()> {
    let index = position(index, len(object)?);
    match (object, index) {
        (Object::PackedList(packed), Some(index)) => match packed.get(index as usize) {
            Some(entry) => reply.writer().bulk(entry),
            None => reply.writer().null(),
        },
        (Object::List(list), Some(index)) => match list.get(index) {
            Some(item) => write(item, reply),
            None => reply.writer().null(),
        },
        _ => reply.writer().null(),
    }
    Ok(())
}

/// Writes an array of the elements in `range`: at once if they are few, else from a snapshot.
pub fn write_range(object: &Object, range: Range<u64>, reply: &mut Reply<'_>) {
    reply.writer().array(range.end - range.start);
    match object {
        Object::PackedList(packed) => {
            for entry in packed.iter_range(range.start as usize..range.end as usize) {
                reply.writer().bulk(entry);
            }
        }
        Object::List(list) => {
            let here = range.start..range.end.min(range.start + INLINE_REPLY_ELEMENTS);
            let next = if range.end - range.start > INLINE_REPLY_ELEMENTS {
                range.start
            } else {
                write_some(list, here, INLINE_REPLY_BYTES, reply)
            };
            if next < range.end {
                reply.stream(Box::new(ListStream::forward(list.clone(), next..range.end)));
            }
        }
        _ => {}
    }
}

/// Writes elements until `bytes` are exceeded. Returns the first one that was not written.
fn write_some(list: &List, range: Range<u64>, bytes: usize, reply: &mut Reply<'_>) -> u64 {
    let (mut next, mut written) = (range.start, 0);
    if range.is_empty() {
        return next;
    }
    list.for_each_run(range, |run| {
        match run {
            Run::Inline(run, lengths) => {
                next += lengths.len() as u64;
                written += run.len();
                reply.writer().bulks(run, lengths);
            }
            Run::Alone(item) => {
                next += 1;
                written += item.len().min(bytes as u64) as usize;
                write(item, reply);
            }
        }
        continue_if(written <= bytes)
    });
    next
}

/// Elements of a snapshot, without an array's header.
pub struct ListStream {
    list: List,
    /// What is still to be sent.
    range: Range<u64>,
    backwards: bool,
    /// A long element that is being sent.
    element: Option<StringStream>,
    pinned: u64,
}

impl ListStream {
    /// The elements in `range`, first to last.
    pub fn forward(list: List, range: Range<u64>) -> ListStream {
        // Charged with its share of the list: the rest is not what the client asked for.
        let share = u128::from(list.bytes()) * u128::from(range.end - range.start);
        let pinned = (share / u128::from(list.len().max(1))) as u64;
        ListStream { list, range, backwards: false, element: None, pinned }
    }

    /// All elements, last to first.
    pub fn backward(list: List) -> ListStream {
        let (range, pinned) = (0..list.len(), list.bytes());
        ListStream { list, range, backwards: true, element: None, pinned }
    }

    fn encode_elements(&mut self, out: &mut Vec<u8>, upto: usize) {
        let ListStream { list, range, element, .. } = self;
        let (backwards, all) = (self.backwards, range.clone());
        let visit = |run: Run<'_>| {
            let taken = match run {
                Run::Inline(bytes, lengths) => {
                    let (count, mut writer) = (lengths.len(), Writer::new(out, Protocol::Resp2));
                    match backwards {
                        false => writer.bulks(bytes, lengths),
                        true => writer.bulks_back(bytes, lengths),
                    }
                    count as u64
                }
                Run::Alone(item) => {
                    *element = encode(item, out);
                    1
                }
            };
            match backwards {
                false => range.start += taken,
                true => range.end -= taken,
            }
            continue_if(element.is_none() && out.len() < upto)
        };
        match backwards {
            false => list.for_each_run(all, visit),
            true => list.for_each_run_back(all, visit),
        }
    }
}

/// Writes a short element; a long one is to be streamed.
fn encode(item: Item<'_>, out: &mut Vec<u8>) -> Option<StringStream> {
    match item {
        Item::Bytes(bytes) => Writer::new(out, Protocol::Resp2).bulk(bytes),
        Item::Big(string) => return Some(StringStream::new(BigString::clone(string))),
    }
    None
}

fn continue_if(more: bool) -> ControlFlow<()> {
    if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

impl Stream for ListStream {
    fn encode(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let upto = out.len() + bytes;
        while out.len() < upto {
            if let Some(element) = &mut self.element {
                if element.encode(out, bytes) {
                    self.element = None;
                }
                continue;
            }
            if self.range.is_empty() {
                return true;
            }
            self.encode_elements(out, upto);
        }
        self.range.is_empty() && self.element.is_none()
    }

    fn pinned_bytes(&self) -> u64 {
        self.pinned
    }
}

impl Discard for ListStream {
    fn discard_step(&mut self, nodes: usize) -> bool {
        self.list.drop_step(nodes)
    }
}

/// A list that was built elsewhere and is not wanted.
pub fn garbage(list: List) -> Box<dyn Discard> {
    Box::new(DroppedObject::new(Object::List(list)))
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn indexes_mean_what_redis_means() {
        for (start, stop, expected) in [
            (0, -1, 0..5),
            (0, 0, 0..1),
            (-3, 2, 2..3),
            (-100, 100, 0..5),
            (5, 10, 0..0),
            (3, 1, 0..0),
            (0, -6, 0..0),
            (-1, -1, 4..5),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(range(start, stop, 5), expected, "{start} {stop}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
