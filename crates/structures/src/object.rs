//! Hot path. The values of the keyspace that are more than a short string, one machine word each.
//!
//! ```text
//! entry of the table:   header { encoding 4 bits, tag 4 bits, ... } | expiry | key | word 8 bytes
//!                                                 |                                  |
//!   tag 1  list, packed blob   \                  '--- which variant                 '--- its pointer
//!   tag 2  list, counted tree   | type LIST
//!   tag 3  set, packed blob    \
//!   tag 4  set, segment table   | type SET
//!   tag 5  string of chunks       type STRING
//! ```
//!
//! Invariants: a variant is exactly one pointer; zero stands for an empty value where the structure
//! has one.

use crate::big_string::BigString;
use crate::list::List;
use crate::members::{Members, Remains};
use crate::packed::Packed;
use crate::table::Word;

/// A value that does not live inside its entry.
#[derive(Clone)]
pub enum Object {
    /// A list of few short elements.
    PackedList(Packed),
    /// Any other list.
    List(List),
    /// A set of few short members.
    PackedSet(Packed),
    /// Any other set.
    Set(Members),
    /// A string over 8 KiB.
    BigString(BigString),
}

impl Object {
    /// About how many nodes freeing the value visits: O(1).
    pub fn weight(&self) -> usize {
        match self {
            Object::PackedList(_) | Object::PackedSet(_) => 1,
            Object::List(list) => list.weight(),
            Object::Set(members) => members.weight() as usize,
            Object::BigString(string) => string.weight() as usize,
        }
    }

    /// Bytes that the value has from the allocator.
    pub fn bytes(&self) -> u64 {
        match self {
            Object::PackedList(packed) | Object::PackedSet(packed) => packed.bytes() as u64,
            Object::List(list) => list.bytes(),
            Object::Set(members) => members.bytes(),
            Object::BigString(string) => string.bytes(),
        }
    }

    /// The value on its way to be freed in pieces.
    pub fn into_remains(self) -> ObjectRemains {
        match self {
            Object::PackedList(_) | Object::PackedSet(_) => ObjectRemains::Nothing,
            Object::List(list) => ObjectRemains::List(list),
            Object::Set(members) => ObjectRemains::Set(members.into_remains()),
            Object::BigString(string) => ObjectRemains::BigString(string),
        }
    }
}

/// A value that nobody reads any more.
pub enum ObjectRemains {
    /// Freed already.
    Nothing,
    /// What is left of a list.
    List(List),
    /// What is left of a set.
    Set(Remains),
    /// What is left of a big string.
    BigString(BigString),
}

impl ObjectRemains {
    /// Frees about `budget` nodes. True when nothing large is left.
    pub fn drop_step(&mut self, budget: usize) -> bool {
        match self {
            ObjectRemains::Nothing => true,
            ObjectRemains::List(list) => list.drop_step(budget),
            ObjectRemains::Set(members) => members.drop_step(budget),
            ObjectRemains::BigString(string) => string.drop_step(budget),
        }
    }
}

/// Takes a value of one pointer apart.
fn pointer_of<T>(value: T) -> u64 {
    const { assert!(size_of::<T>() == size_of::<*const ()>(), "a value of one word") };
    let value = std::mem::ManuallyDrop::new(value);
    // SAFETY: sizes are equal (above); the types used here are one pointer, possibly null, which a
    // raw pointer may hold. The value is not dropped, so the word owns what it owned.
    let pointer: *const () = unsafe { std::mem::transmute_copy(&value) };
    pointer.expose_provenance() as u64
}

/// Puts a value together again.
///
/// # Safety
/// `word` comes from [`pointer_of`] for a value of the same type, which is not used elsewhere.
unsafe fn value_of<T>(word: u64) -> T {
    const { assert!(size_of::<T>() == size_of::<*const ()>(), "a value of one word") };
    let pointer = std::ptr::with_exposed_provenance::<()>(word as usize);
    // SAFETY: the bytes are those of a value of this type, as the caller promises.
    unsafe { std::mem::transmute_copy(&pointer) }
}

// SAFETY: `from_word` rebuilds the variant of the same tag from the pointer that `into_word` took;
// the tags are below 16; no variant changes its own word through a shared reference.
unsafe impl Word for Object {
    fn into_word(self) -> (u8, u64) {
        match self {
            Object::PackedList(packed) => (1, pointer_of(packed)),
            Object::List(list) => (2, pointer_of(list)),
            Object::PackedSet(packed) => (3, pointer_of(packed)),
            Object::Set(members) => (4, pointer_of(members)),
            Object::BigString(string) => (5, pointer_of(string)),
        }
    }

    unsafe fn from_word(tag: u8, word: u64) -> Object {
        // SAFETY: tag and word come from `into_word`, so the word is of the tag's type.
        unsafe {
            match tag {
                1 => Object::PackedList(value_of(word)),
                2 => Object::List(value_of(word)),
                3 => Object::PackedSet(value_of(word)),
                4 => Object::Set(value_of(word)),
                _ => Object::BigString(value_of(word)),
            }
        }
    }
}
