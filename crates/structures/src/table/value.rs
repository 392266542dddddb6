//! Hot path. The typed side of entries: values, references to them, entries outside of a table.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};

use super::entry::{BYTES, INT, OBJECT, Payload, RawEntry};

/// Tags that fit the four bits of an entry's header.
const TAGS: u8 = 16;

/// A value that is one tagged machine word, so that an entry holds it without another allocation.
///
/// # Safety
///
/// `from_word` with what `into_word` has given for a value must give that value back. The tag is
/// below 16. A value that is only read must not change its word (no `Cell` in the word itself): the
/// table hands out references to copies of it.
pub unsafe trait Word: Sized {
    /// The value as a tag and a word, which own what it owned.
    fn into_word(self) -> (u8, u64);

    /// The value of a tag and a word.
    ///
    /// # Safety
    ///
    /// Both come from `into_word`, and no other value has been made of them that will be dropped.
    unsafe fn from_word(tag: u8, word: u64) -> Self;
}

/// A value in a table.
pub enum Value<'a, O> {
    /// A string, inside the entry.
    Bytes(&'a [u8]),
    /// A string that is an integer.
    Int(i64),
    /// Anything else.
    Object(ObjectRef<'a, O>),
}

/// A value on its way into a table.
pub enum NewValue<'a, O> {
    /// A string, to be copied into the entry; below 4 GiB, as keys are.
    Bytes(&'a [u8]),
    /// A string that is an integer.
    Int(i64),
    /// Anything else.
    Object(O),
}

impl<'a, O: Word> NewValue<'a, O> {
    /// The value for an entry, which owns the object from now on.
    pub(super) fn into_payload(self) -> Payload<'a> {
        match self {
            NewValue::Bytes(bytes) => Payload::Bytes(bytes),
            NewValue::Int(int) => Payload::Word { kind: INT, word: int as u64 },
            NewValue::Object(object) => {
                let (kind, word) = object_word(object);
                Payload::Word { kind, word }
            }
        }
    }
}

/// Kind and word of an object.
fn object_word<O: Word>(object: O) -> (u8, u64) {
    let (tag, word) = object.into_word();
    assert!(tag < TAGS, "a tag of more than four bits");
    (OBJECT | tag, word)
}

/// Takes the object out of an entry, if it has one. The entry is an integer afterwards.
pub(super) unsafe fn take_object<O: Word>(entry: RawEntry) -> Option<O> {
    // SAFETY: the caller has the entry alone; its object is never made again of the word.
    unsafe {
        if entry.encoding() != OBJECT {
            return None;
        }
        let object = O::from_word(entry.tag(), entry.word());
        entry.set_word(INT, 0);
        Some(object)
    }
}

unsafe fn value<'a, O: Word>(entry: RawEntry) -> Value<'a, O> {
    // SAFETY: the caller guarantees that the entry is valid for the lifetime. The copy of the
    // object is never dropped.
    unsafe {
        match entry.encoding() {
            BYTES => Value::Bytes(entry.bytes()),
            INT => Value::Int(entry.word() as i64),
            _ => {
                let object = ManuallyDrop::new(O::from_word(entry.tag(), entry.word()));
                Value::Object(ObjectRef { object, lifetime: PhantomData })
            }
        }
    }
}

/// A reference to an object in a table.
pub struct ObjectRef<'a, O> {
    object: ManuallyDrop<O>,
    lifetime: PhantomData<&'a O>,
}

impl<O> Deref for ObjectRef<'_, O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.object
    }
}

/// An object of a table that is being changed. The entry has the new object, of whatever tag,
/// when this is dropped; if it is leaked, the entry is an integer.
pub struct ObjectMut<'a, O: Word> {
    entry: RawEntry,
    object: ManuallyDrop<O>,
    lifetime: PhantomData<&'a mut O>,
}

impl<O: Word> ObjectMut<'_, O> {
    /// The caller has the entry alone for the lifetime.
    pub(super) unsafe fn new(entry: RawEntry) -> Option<Self> {
        // SAFETY: as the caller promises.
        let object = ManuallyDrop::new(unsafe { take_object(entry) }?);
        Some(Self { entry, object, lifetime: PhantomData })
    }
}

impl<O: Word> Deref for ObjectMut<'_, O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.object
    }
}

impl<O: Word> DerefMut for ObjectMut<'_, O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.object
    }
}

impl<O: Word> Drop for ObjectMut<'_, O> {
    fn drop(&mut self) {
        // SAFETY: the object is taken once, here; the entry is ours while the lifetime lasts, and
        // an integer, so its value is a word.
        unsafe {
            let (kind, word) = object_word(ManuallyDrop::take(&mut self.object));
            self.entry.set_word(kind, word);
        }
    }
}

/// An entry of a table, for reading.
pub struct EntryRef<'a, O> {
    entry: RawEntry,
    lifetime: PhantomData<&'a O>,
}

impl<O> Clone for EntryRef<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for EntryRef<'_, O> {}

impl<'a, O: Word> EntryRef<'a, O> {
    /// The entry must be valid and not be changed for the lifetime.
    pub(super) unsafe fn new(entry: RawEntry) -> Self {
        Self { entry, lifetime: PhantomData }
    }

    /// The key.
    pub fn key(self) -> &'a [u8] {
        // SAFETY: the entry is valid for the lifetime.
        unsafe { self.entry.key() }
    }

    /// The value.
    #[inline]
    pub fn value(self) -> Value<'a, O> {
        // SAFETY: the entry is valid for the lifetime.
        unsafe { value(self.entry) }
    }

    /// When the entry expires, milliseconds since 1970.
    #[inline]
    pub fn expire_at(self) -> Option<i64> {
        // SAFETY: the entry is valid for the lifetime.
        unsafe { self.entry.expire_at() }
    }

    /// The 24 bits that LRU or LFU keep of the last access.
    pub fn access(self) -> u32 {
        // SAFETY: the entry is valid for the lifetime.
        unsafe { self.entry.access() }
    }

    /// Bytes of the entry itself: its size class.
    pub fn allocated_bytes(self) -> usize {
        // SAFETY: the entry is valid for the lifetime.
        unsafe { self.entry.allocated() }
    }
}

/// An entry that is in no table.
pub struct OwnedEntry<O: Word> {
    entry: RawEntry,
    object: PhantomData<O>,
}

// SAFETY: the entry is owned; what it holds is bytes, an integer or an O.
unsafe impl<O: Word + Send> Send for OwnedEntry<O> {}
// SAFETY: a shared entry gives shared access to bytes, an integer or an O.
unsafe impl<O: Word + Sync> Sync for OwnedEntry<O> {}

impl<O: Word> OwnedEntry<O> {
    /// An entry for [`super::Table::insert_entry`] or [`super::EntryMut::replace`].
    pub fn new(key: &[u8], value: NewValue<'_, O>, expire_at: Option<i64>) -> Self {
        let entry = RawEntry::new(key, &value.into_payload(), expire_at);
        Self { entry, object: PhantomData }
    }

    /// The caller gives the entry away.
    pub(super) unsafe fn from_raw(entry: RawEntry) -> Self {
        Self { entry, object: PhantomData }
    }

    pub(super) fn into_raw(self) -> RawEntry {
        let entry = self.entry;
        mem::forget(self);
        entry
    }

    /// The entry for reading.
    pub fn as_ref(&self) -> EntryRef<'_, O> {
        // SAFETY: the entry is borrowed for the lifetime.
        unsafe { EntryRef::new(self.entry) }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.as_ref().key()
    }

    /// The value.
    pub fn value(&self) -> Value<'_, O> {
        self.as_ref().value()
    }

    /// When the entry expires, milliseconds since 1970.
    pub fn expire_at(&self) -> Option<i64> {
        self.as_ref().expire_at()
    }

    /// The 24 bits that LRU or LFU keep of the last access.
    pub fn access(&self) -> u32 {
        self.as_ref().access()
    }

    /// Bytes of the entry itself: its size class.
    pub fn allocated_bytes(&self) -> usize {
        self.as_ref().allocated_bytes()
    }

    /// Sets the 24 bits that LRU or LFU keep of the last access.
    pub fn set_access(&mut self, access: u32) {
        // SAFETY: the entry is borrowed mutably.
        unsafe { self.entry.set_access(access) }
    }

    /// The object, if the value is one.
    pub fn into_object(self) -> Option<O> {
        // SAFETY: the entry is owned.
        unsafe { take_object(self.entry) }
    }
}

impl<O: Word> Drop for OwnedEntry<O> {
    fn drop(&mut self) {
        // SAFETY: the entry is owned, and nobody has it after this.
        unsafe {
            drop(take_object::<O>(self.entry));
            self.entry.free();
        }
    }
}
