//! Sets: one packed blob with fingerprints while small, a segment table from then on.

use std::ops::ControlFlow;

use structures::hash::hash;
use structures::members::{LargeMember, Members, Remains, Walk};
use structures::object::Object;
use structures::packed::Packed;

use crate::errors::{self, Result};
use crate::lanes::Discard;
use crate::lanes::DroppedObject;
use crate::output::{Reply, Stream};

/// Members that a stream reads from the snapshot at once.
const BATCH: usize = 64;

/// A new set for a first member.
pub fn new() -> Object {
    Object::PackedSet(Packed::new())
}

/// Number of members.
///
/// # Errors
/// The value is not a set.
pub fn len(object: &Object) -> Result<u64> {
    match object {
        Object::PackedSet(packed) => Ok(packed.len() as u64),
        Object::Set(members) => Ok(members.len()),
        _ => Err(errors::WRONG_TYPE),
    }
}

/// Adds a member; turns the set into a table when it no longer fits into a blob. Returns whether
/// the member is new.
pub fn insert(object: &mut Object, member: &[u8]) -> bool {
    let hashed = hash(member);
    if let Object::PackedSet(packed) = object {
        if packed.contains(hashed, member) {
            return false;
        }
        if !packed.is_full_for(member) {
            return packed.insert(hashed, member);
        }
        *object = Object::Set(Members::from_packed(packed));
    }
    match object {
        Object::Set(members) => members.insert(hashed, member),
        _ => false,
    }
}

/// Adds a member that was copied before the latch, with its hash.
pub fn insert_large(object: &mut Object, hashed: u64, member: &LargeMember) -> bool {
    if let Object::PackedSet(packed) = object {
        *object = Object::Set(Members::from_packed(packed));
    }
    match object {
        Object::Set(members) => members.insert_large(hashed, member),
        _ => false,
    }
}

/// Whether adding these members would copy more than `copies_max` parts of a large set because a
/// snapshot has them, too.
pub fn copies_more_than<'a>(
    object: &Object,
    members: impl Iterator<Item = &'a [u8]>,
    copies_max: usize,
) -> bool {
    let Object::Set(set) = object else { return false };
    members.filter(|member| set.is_shared_at(hash(member))).take(copies_max + 1).count()
        > copies_max
}

/// Calls `visit` with the members of a small set. Returns false for a large one.
pub fn visit_small(object: &Object, mut visit: impl FnMut(&[u8])) -> bool {
    match object {
        Object::PackedSet(packed) => packed.iter().for_each(&mut visit),
        _ => return false,
    }
    true
}

/// Writes all members: at once if they are few, else from a snapshot.
///
/// # Errors
/// The value is not a set.
pub fn write(object: &Object, reply: &mut Reply<'_>) -> Result<()> {
    reply.writer().set(len(object)?);
    match object {
        Object::Set(members) => reply.stream(Box::new(SetStream::new(members))),
        small => {
            visit_small(small, |member| reply.writer().bulk(member));
        }
    }
    Ok(())
}

/// The members of a snapshot, without the header.
struct SetStream {
    walk: Walk,
    pinned: u64,
    /// Set when the stream is given up.
    remains: Option<Remains>,
}

impl SetStream {
    fn new(members: &Members) -> SetStream {
        SetStream { walk: members.walk(), pinned: members.bytes(), remains: None }
    }
}

impl Stream for SetStream {
    fn encode(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let upto = out.len() + bytes;
        while out.len() < upto {
            let more = self.walk.next_until(BATCH, |member| {
                resp::Writer::new(out, resp::Protocol::Resp2).bulk(member);
                if out.len() < upto { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if !more {
                return true;
            }
        }
        false
    }

    fn pinned_bytes(&self) -> u64 {
        self.pinned
    }
}

impl Discard for SetStream {
    fn discard_step(&mut self, nodes: usize) -> bool {
        if self.remains.is_none() {
            let empty = Members::new().walk();
            let walk = std::mem::replace(&mut self.walk, empty);
            let members = walk.members().clone();
            drop(walk);
            self.remains = Some(members.into_remains());
        }
        self.remains.as_mut().is_none_or(|remains| remains.drop_step(nodes))
    }
}

/// A set that was built elsewhere and is not wanted.
pub fn garbage(members: Members) -> Box<dyn Discard> {
    Box::new(DroppedObject::new(Object::Set(members)))
}
