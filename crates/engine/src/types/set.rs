//! Sets: one packed blob with fingerprints while small, a segment table from then on.

use structures::hash::hash;
use structures::members::{LargeMember, MEMBER_INLINE_MAX, Members, Remains, Walk};
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
        *object = Object::Set(unpacked(packed));
    }
    match object {
        Object::Set(members) => insert_member(members, hashed, member),
        _ => false,
    }
}

/// Adds a member to a table.
pub fn insert_member(members: &mut Members, hashed: u64, member: &[u8]) -> bool {
    if member.len() <= MEMBER_INLINE_MAX {
        members.insert(hashed, member)
    } else {
        members.insert_large(hashed, &LargeMember::new(member))
    }
}

fn unpacked(packed: &Packed) -> Members {
    let mut members = Members::new();
    packed.iter().for_each(|member| {
        insert_member(&mut members, hash(member), member);
    });
    members
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
            if !self.walk.next_batch(BATCH, |member| {
                resp::Writer::new(out, resp::Protocol::Resp2).bulk(member)
            }) {
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
