//! Hot path. One entry of the keyspace: header, optional expiry, key and value in one allocation.
//!
//! ```text
//!  byte 0        1        2 3      4 5 6    7       8 ..            ..              ..      ..
//!  +-------+--------+----------+----------+-----+-----------------+-----------------+-----+-------+
//!  | kind  | key    | value    | access   |  0  | [expiry, i64 ms]| [key length u32,| key | value |
//!  |       | length | length   | 24 bits  |     |                 |  value len. u32]|     |       |
//!  +-------+--------+----------+----------+-----+-----------------+-----------------+-----+-------+
//!  kind: bits 0-3 tag of an object | 4-5 encoding | 6 the expiry field exists | 7 the expiry is set
//! ```
//!
//! A key length of 255 says that both lengths are in the lengths word instead. The value is its
//! bytes, or 8 bytes (unaligned) of an integer or of an object's word.
//!
//! The size of the allocation follows from the header alone: it is the size class (16-byte steps to
//! 128, then four classes per doubling, as in jemalloc) of what the fields need. So nothing has to
//! remember a capacity, growing by appends is amortised, and a field that fits the class is free.
//! 16 + 16 bytes of key and value need 40 bytes, with expiry 48: both are the class of 48.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::slice;

use crate::work;

/// The value is its bytes.
pub(super) const BYTES: u8 = 0 << 4;
/// The value is an integer of 8 bytes.
pub(super) const INT: u8 = 1 << 4;
/// The value is the word of an object whose tag is in the low bits.
pub(super) const OBJECT: u8 = 2 << 4;
const ENCODING: u8 = 3 << 4;
const TAG: u8 = 15;
/// The entry has room for an expiry.
const EXPIRY_FIELD: u8 = 1 << 6;
/// The expiry is set.
const EXPIRY_SET: u8 = 1 << 7;

/// In `Header::key_length`: the lengths are in the lengths word.
const LONG: u8 = u8::MAX;
/// Size of an integer or an object's word.
const WORD_SIZE: usize = size_of::<u64>();
/// Entries are aligned so that the header and the expiry are.
const ENTRY_ALIGN: usize = 8;
/// The access field has 24 bits: what LRU and LFU need.
const ACCESS_MASK: u32 = (1 << 24) - 1;
/// Virtual addresses that a slot can hold.
const ADDRESS_BITS: u32 = 48;

/// The first word of an entry. It is read and written as a whole: a load of a word that has just
/// been written in parts waits until the line is in the cache, and all work behind it too.
#[derive(Clone, Copy)]
struct Header(u64);

impl Header {
    const KEY_LENGTH: u32 = 8;
    const VALUE_LENGTH: u32 = 16;
    const ACCESS: u32 = 32;

    fn new(kind: u8, shape: Shape, access: u32) -> Self {
        let kind = kind | if shape.expiry { EXPIRY_FIELD } else { 0 };
        let (key, value) =
            if shape.long() { (LONG, 0) } else { (shape.key as u8, shape.value as u16) };
        let lengths = u64::from(key) << Self::KEY_LENGTH | u64::from(value) << Self::VALUE_LENGTH;
        Self(u64::from(kind) | lengths).with_access(access)
    }

    fn kind(self) -> u8 {
        self.0 as u8
    }

    fn key_length(self) -> u8 {
        (self.0 >> Self::KEY_LENGTH) as u8
    }

    fn value_length(self) -> u16 {
        (self.0 >> Self::VALUE_LENGTH) as u16
    }

    fn access(self) -> u32 {
        (self.0 >> Self::ACCESS) as u32
    }

    /// Encoding and tag.
    fn value_kind(self) -> u8 {
        self.kind() & (ENCODING | TAG)
    }

    fn has_expiry_field(self) -> bool {
        self.kind() & EXPIRY_FIELD != 0
    }

    fn has_expiry(self) -> bool {
        self.kind() & EXPIRY_SET != 0
    }

    fn with_value_kind(self, kind: u8) -> Self {
        Self(self.0 & !u64::from(ENCODING | TAG) | u64::from(kind))
    }

    fn with_access(self, access: u32) -> Self {
        let others = self.0 & !(u64::from(ACCESS_MASK) << Self::ACCESS);
        Self(others | u64::from(access & ACCESS_MASK) << Self::ACCESS)
    }
}

/// A value on its way into an entry.
pub(super) enum Payload<'a> {
    /// Becomes the value's bytes.
    Bytes(&'a [u8]),
    /// An integer, or an object's word: `kind` is [`INT`], or [`OBJECT`] with the tag.
    Word { kind: u8, word: u64 },
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Word { .. } => WORD_SIZE,
        }
    }

    fn kind(&self) -> u8 {
        match *self {
            Payload::Bytes(_) => BYTES,
            Payload::Word { kind, .. } => kind,
        }
    }
}

/// What decides the layout and the size of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    expiry: bool,
    key: usize,
    value: usize,
}

impl Shape {
    fn long(self) -> bool {
        self.key >= LONG as usize || self.value > u16::MAX as usize
    }

    fn key_offset(self) -> usize {
        let fields = 1 + usize::from(self.expiry) + usize::from(self.long());
        fields * WORD_SIZE
    }

    fn class(self) -> usize {
        size_class(self.key_offset() + self.key + self.value)
    }
}

/// The size that the allocator would round `size` up to.
fn size_class(size: usize) -> usize {
    let step = if size <= 128 { 16 } else { 1 << ((size - 1).ilog2() - 2) };
    // The step is a power of two.
    (size + step - 1) & !(step - 1)
}

/// An entry after a change.
pub(super) struct Changed {
    /// The entry from now on.
    pub(super) entry: RawEntry,
    /// Bytes that it has more than before, by size classes.
    pub(super) grown: isize,
}

/// A pointer to an entry. Whoever holds one knows by other means that it is still allocated and
/// that nobody else writes to it: that is the safety condition of every method here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RawEntry(NonNull<u8>);

impl RawEntry {
    /// Allocates an entry of its own for key, value and expiry.
    pub(super) fn new(key: &[u8], payload: &Payload<'_>, expire_at: Option<i64>) -> Self {
        let shape = Shape { expiry: expire_at.is_some(), key: key.len(), value: payload.len() };
        let entry = Self::allocate(shape.class());
        // SAFETY: the entry was just allocated for this shape, hence for these lengths.
        unsafe {
            entry.write_head(payload.kind(), 0, shape, expire_at);
            ptr::copy_nonoverlapping(key.as_ptr(), entry.key_pointer(shape), key.len());
            entry.write_value(shape, payload);
        }
        work::bytes(key.len());
        entry
    }

    /// A block of a size class, not initialised.
    fn allocate(class: usize) -> Self {
        let layout = layout(class);
        // SAFETY: the layout is not empty, a header at least.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        assert!(pointer.addr().get() >> ADDRESS_BITS == 0, "an address that no slot can hold");
        work::allocations(1);
        Self(pointer)
    }

    /// Frees the block; an object in it must have been taken before.
    pub(super) unsafe fn free(self) {
        work::allocations(1);
        // SAFETY: the block was allocated with the class of this very shape.
        unsafe { dealloc(self.0.as_ptr(), layout(self.shape().class())) }
    }

    /// The address, to be kept in a slot.
    pub(super) fn expose(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The entry whose address [`RawEntry::expose`] has given.
    pub(super) unsafe fn from_exposed(address: u64) -> Self {
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller got the address from an entry.
        Self(unsafe { NonNull::new_unchecked(pointer) })
    }

    #[inline]
    unsafe fn header(self) -> Header {
        // SAFETY: an entry begins with its header.
        Header(unsafe { self.0.cast::<u64>().read() })
    }

    unsafe fn set_header(self, header: Header) {
        // SAFETY: an entry begins with its header; the caller has it alone.
        unsafe { self.0.cast::<u64>().write(header.0) }
    }

    #[inline]
    unsafe fn shape(self) -> Shape {
        // SAFETY: the header is initialised.
        unsafe { self.shape_of(self.header()) }
    }

    /// The shape of the entry, whose header this is.
    #[inline]
    unsafe fn shape_of(self, header: Header) -> Shape {
        let expiry = header.has_expiry_field();
        if header.key_length() != LONG {
            let (key, value) = (header.key_length() as usize, header.value_length() as usize);
            return Shape { expiry, key, value };
        }
        // SAFETY: the header says that there is a lengths word.
        let [key, value] = unsafe { self.lengths(expiry).read() };
        Shape { expiry, key: key as usize, value: value as usize }
    }

    /// Where the lengths word of an entry with long parts is.
    unsafe fn lengths(self, expiry: bool) -> *mut [u32; 2] {
        // SAFETY: it follows the header and the expiry.
        unsafe { self.0.as_ptr().add((1 + usize::from(expiry)) * WORD_SIZE).cast() }
    }

    /// Writes all that precedes the key, in a block that has room for `shape`.
    unsafe fn write_head(self, kind: u8, access: u32, shape: Shape, expire_at: Option<i64>) {
        let fits = shape.key <= u32::MAX as usize && shape.value <= u32::MAX as usize;
        assert!(fits, "a key or an inline value of 4 GiB or more");
        debug_assert!(shape.expiry || expire_at.is_none());
        let kind = kind | if expire_at.is_some() { EXPIRY_SET } else { 0 };
        // SAFETY: the block has room for what `shape` describes.
        unsafe {
            self.set_header(Header::new(kind, shape, access));
            if let Some(expire_at) = expire_at {
                self.expiry_pointer().write(expire_at);
            }
            if shape.long() {
                self.lengths(shape.expiry).write([shape.key as u32, shape.value as u32]);
            }
        }
    }

    unsafe fn expiry_pointer(self) -> *mut i64 {
        // SAFETY: the field follows the header.
        unsafe { self.0.as_ptr().add(WORD_SIZE).cast() }
    }

    unsafe fn key_pointer(self, shape: Shape) -> *mut u8 {
        // SAFETY: the offset is within a block of this shape.
        unsafe { self.0.as_ptr().add(shape.key_offset()) }
    }

    unsafe fn value_pointer(self, shape: Shape) -> *mut u8 {
        // SAFETY: the value follows the key, within a block of this shape.
        unsafe { self.0.as_ptr().add(shape.key_offset() + shape.key) }
    }

    #[inline]
    pub(super) unsafe fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the shape says where the key is and how long.
        unsafe {
            let shape = self.shape();
            slice::from_raw_parts(self.key_pointer(shape), shape.key)
        }
    }

    /// [`BYTES`], [`INT`] or [`OBJECT`].
    #[inline]
    pub(super) unsafe fn encoding(self) -> u8 {
        // SAFETY: the header is initialised.
        unsafe { self.header().kind() & ENCODING }
    }

    /// The tag that came with an object.
    pub(super) unsafe fn tag(self) -> u8 {
        // SAFETY: the header is initialised.
        unsafe { self.header().kind() & TAG }
    }

    /// The bytes of a value of encoding [`BYTES`].
    #[inline]
    pub(super) unsafe fn bytes<'a>(self) -> &'a mut [u8] {
        // SAFETY: the shape says where the value is and how long; the caller has it alone.
        unsafe {
            let shape = self.shape();
            slice::from_raw_parts_mut(self.value_pointer(shape), shape.value)
        }
    }

    /// The word of a value of encoding [`INT`] or [`OBJECT`].
    pub(super) unsafe fn word(self) -> u64 {
        // SAFETY: such a value is 8 bytes, of any alignment.
        unsafe { self.value_pointer(self.shape()).cast::<u64>().read_unaligned() }
    }

    /// Overwrites the word and its kind; the value must be of encoding [`INT`] or [`OBJECT`].
    pub(super) unsafe fn set_word(self, kind: u8, word: u64) {
        // SAFETY: such a value is 8 bytes, of any alignment.
        unsafe {
            self.set_header(self.header().with_value_kind(kind));
            self.value_pointer(self.shape()).cast::<u64>().write_unaligned(word);
        }
    }

    /// When the entry expires, milliseconds since 1970.
    #[inline]
    pub(super) unsafe fn expire_at(self) -> Option<i64> {
        // SAFETY: an expiry that is set has its field.
        unsafe { self.header().has_expiry().then(|| self.expiry_pointer().read()) }
    }

    pub(super) unsafe fn access(self) -> u32 {
        // SAFETY: the header is initialised.
        unsafe { self.header().access() }
    }

    #[inline]
    pub(super) unsafe fn set_access(self, access: u32) {
        // SAFETY: the header is initialised; the caller has it alone.
        unsafe { self.set_header(self.header().with_access(access)) }
    }

    /// Bytes that the allocator gives for this entry.
    pub(super) unsafe fn allocated(self) -> usize {
        // SAFETY: the header is initialised.
        unsafe { self.shape().class() }
    }

    /// Writes the value; the value's length in the shape must be the payload's.
    unsafe fn write_value(self, shape: Shape, payload: &Payload<'_>) {
        debug_assert!(shape.value == payload.len());
        // SAFETY: the block has room for a value of this length.
        unsafe {
            let target = self.value_pointer(shape);
            match *payload {
                Payload::Bytes(bytes) => {
                    ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
                    work::bytes(bytes.len());
                }
                Payload::Word { word, .. } => target.cast::<u64>().write_unaligned(word),
            }
        }
    }

    /// Gives the entry another value and expiry, in place when the size class allows, else in a new
    /// block that replaces this one. Key and access stay. An old object must have been taken.
    pub(super) unsafe fn rewrite(self, payload: &Payload<'_>, expire_at: Option<i64>) -> Changed {
        // SAFETY: as the caller promises for `self`; `make_room` gives room for the new shape.
        unsafe {
            let header = self.header();
            let old = self.shape_of(header);
            // A field that has lost its use stays as long as it costs nothing.
            let mut new =
                Shape { expiry: old.expiry || expire_at.is_some(), value: payload.len(), ..old };
            if new != old && new.class() != old.class() {
                new.expiry = expire_at.is_some();
            }
            let changed = self.make_room(old, new, 0);
            changed.entry.write_head(payload.kind(), header.access(), new, expire_at);
            changed.entry.write_value(new, payload);
            changed
        }
    }

    /// Sets or clears the expiry, in a new block if the size class has no room for it.
    pub(super) unsafe fn set_expiry(self, expire_at: Option<i64>) -> Changed {
        // SAFETY: as the caller promises for `self`; `make_room` gives room for the new shape.
        unsafe {
            let header = self.header();
            let old = self.shape_of(header);
            let new = Shape { expiry: old.expiry || expire_at.is_some(), ..old };
            let changed = self.make_room(old, new, old.value);
            changed.entry.write_head(header.value_kind(), header.access(), new, expire_at);
            changed
        }
    }

    /// Gives a value of encoding [`BYTES`] another length; new bytes are zero.
    pub(super) unsafe fn resize(self, length: usize) -> Changed {
        // SAFETY: as the caller promises for `self`; `make_room` gives room for `length` bytes, of
        // which it has kept those that there were.
        unsafe {
            let (header, expire_at) = (self.header(), self.expire_at());
            let old = self.shape_of(header);
            let new = Shape { value: length, ..old };
            let kept = old.value.min(length);
            let changed = self.make_room(old, new, kept);
            changed.entry.write_head(header.value_kind(), header.access(), new, expire_at);
            ptr::write_bytes(changed.entry.value_pointer(new).add(kept), 0, length - kept);
            work::bytes(length - kept);
            changed
        }
    }

    /// A block for the new shape that has this entry's key and the first `kept` bytes of the value
    /// where they belong, but not yet its head: the same one if the size class stays, else
    /// another one in place of this.
    unsafe fn make_room(self, old: Shape, new: Shape, kept: usize) -> Changed {
        if new == old {
            return Changed { entry: self, grown: 0 };
        }
        let moved = old.key + kept;
        let grown = new.class() as isize - old.class() as isize;
        // SAFETY: source and target ranges lie within their blocks, as the two shapes say.
        unsafe {
            let from = self.key_pointer(old);
            if grown == 0 {
                if old.key_offset() != new.key_offset() {
                    ptr::copy(from, self.key_pointer(new), moved);
                    work::bytes(moved);
                }
                return Changed { entry: self, grown };
            }
            let entry = Self::allocate(new.class());
            ptr::copy_nonoverlapping(from, entry.key_pointer(new), moved);
            work::bytes(moved);
            self.free();
            Changed { entry, grown }
        }
    }
}

fn layout(class: usize) -> Layout {
    Layout::from_size_align(class, ENTRY_ALIGN).expect("lengths of 32 bits cannot overflow it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        let classes: Vec<_> = [1, 16, 17, 40, 48, 128, 129, 160, 161, 257, 1024, 1025, 4097, 20481]
            .into_iter()
            .map(size_class)
            .collect();
        let expected = [16, 16, 32, 48, 48, 128, 160, 160, 192, 320, 1024, 1280, 5120, 24576];
        assert_eq!(classes, expected);
    }

    #[test]
    fn every_change_keeps_the_rest() {
        let lengths = [0, 1, 8, 15, 16, 17, 31, 100, 254, 255, 256, 1000, 65535, 65536, 70000];
        for key_length in [0, 1, 16, 100, 254, 255, 300] {
            let key = vec![b'k'; key_length];
            for from in lengths {
                for to in lengths {
                    // SAFETY: the entry is this test's own, and each call gives the pointer that
                    // is valid from then on.
                    unsafe { change(&key, from, to) }
                }
            }
        }
    }

    unsafe fn change(key: &[u8], from: usize, to: usize) {
        let (old, new) = (vec![b'o'; from], vec![b'n'; to]);
        // SAFETY: as said by the caller.
        unsafe {
            let mut entry = RawEntry::new(key, &Payload::Bytes(&old), None);
            entry.set_access(0xABCDEF);
            let check = |entry: RawEntry, value: &[u8], expire_at| {
                assert_eq!(entry.key(), key);
                assert_eq!(entry.encoding(), BYTES);
                assert_eq!(entry.bytes(), value);
                assert_eq!(entry.expire_at(), expire_at);
                assert_eq!(entry.access(), 0xABCDEF);
            };
            check(entry, &old, None);
            entry = entry.set_expiry(Some(77)).entry;
            check(entry, &old, Some(77));
            entry = entry.resize(to).entry;
            let mut resized = old.clone();
            resized.resize(to, 0);
            check(entry, &resized, Some(77));
            entry = entry.rewrite(&Payload::Bytes(&old), None).entry;
            check(entry, &old, None);
            entry = entry.rewrite(&Payload::Bytes(&new), Some(-5)).entry;
            check(entry, &new, Some(-5));
            entry = entry.rewrite(&Payload::Word { kind: INT, word: 9 }, Some(6)).entry;
            assert_eq!((entry.encoding(), entry.word(), entry.key()), (INT, 9, key));
            entry = entry.rewrite(&Payload::Word { kind: OBJECT | 3, word: 1 << 63 }, None).entry;
            assert_eq!((entry.encoding(), entry.tag(), entry.word()), (OBJECT, 3, 1 << 63));
            assert_eq!((entry.key(), entry.expire_at()), (key, None));
            entry = entry.rewrite(&Payload::Bytes(&new), None).entry;
            check(entry, &new, None);
            entry.free();
        }
    }
}
