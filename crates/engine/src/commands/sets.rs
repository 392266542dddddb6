//! Sets: SADD, SMEMBERS, and SUNIONSTORE, the first computed store.
//! Invariant: an empty set is no key.

use std::ops::ControlFlow;

use structures::hash::hash;
use structures::members::{LargeMember, Members, Walk};
use structures::object::Object;
use structures::packed::Packed;
use structures::table::{Expire, NewValue, Value};
use structures::work;

use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::hold::{Hold, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::{Access, Address, NOBODY};
use crate::keyspace::{HELD_KEYS_MAX, HOLD_UNITS_MAX};
use crate::lanes::{Discard, Job};
use crate::sync::{Arc, Mutex};
use crate::types::set;
use resp::Args;

/// Members that one hold adds.
const ADDED_AT_ONCE: usize = 32;

/// Bytes of members that one hold adds.
const ADDED_BYTES_AT_ONCE: usize = 16 * 1024;

/// Parts of a large set that one hold copies because a snapshot has them, too.
const COPIES_AT_ONCE: usize = 8;

/// Units of work after which a step adds no further member.
const UNITS_PER_STEP: u64 = HOLD_UNITS_MAX / 4;

/// The longest member: what one hold may compare with another one.
const MEMBER_BYTES_MAX: usize = 256 * 1024;

/// Members whose length one step compares with the limit.
const CHECKED_PER_STEP: usize = 1024;

/// Members of a union that is computed in one hold.
const UNITED_AT_ONCE: u64 = 64;

/// Keys of a union that is computed in one hold.
const UNITED_KEYS_AT_ONCE: usize = 16;

/// Members that one step of a job adds: some tens of microseconds.
const ADDED_PER_JOB_STEP: usize = 256;

/// Bytes of members that one step of a job adds.
const BYTES_PER_JOB_STEP: usize = 1024 * 1024;

/// Attempts to install a computed set before the keys are locked.
const ATTEMPTS: u32 = 2;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "sadd",
            arity: Arity::AtLeast(3),
            flags: Flags::WRITE.with(Flags::FAST),
            group: "set",
            keys: Keys::First(Access::Exclusive),
            cost: Cost::Stepped,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(1) for each member",
            summary: "Adds members to a set, which is created if absent.",
        },
        run: Run::Wide { fits: few_members, handler: sadd, task: SaddTask::start },
    },
    Command {
        row: Row {
            name: "smembers",
            arity: Arity::Exactly(2),
            flags: Flags::READ,
            group: "set",
            keys: Keys::First(Access::Shared),
            cost: Cost::Streamed,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(N)",
            summary: "Returns all members of a set.",
        },
        run: Run::Keyed(smembers),
    },
    Command {
        row: Row {
            name: "sunionstore",
            arity: Arity::AtLeast(3),
            flags: Flags::WRITE,
            group: "set",
            keys: Keys::DestinationAndSources,
            cost: Cost::Computed,
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(N) for N members of all sets",
            summary: "Stores the union of sets in a key.",
        },
        run: Run::Probing { handler: sunionstore, task: UnionTask::start },
    },
];

fn few_members(args: Args<'_>) -> bool {
    args.len() - 2 <= ADDED_AT_ONCE && args.total_bytes() <= ADDED_BYTES_AT_ONCE
}

fn sadd(cx: &mut Context<'_, '_>) -> Outcome {
    let members = (2..cx.args.len()).map(|index| cx.args.get(index));
    let mut added = 0;
    let key = cx.keys[0].key;
    let created = match cx.hold.write(key) {
        Some(mut entry) => {
            let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
            set::len(&object)?;
            if cx.may_escalate
                && members.len() > COPIES_AT_ONCE
                && set::copies_more_than(&object, members.clone(), COPIES_AT_ONCE)
            {
                return Ok(Flow::Escalate);
            }
            members.for_each(|member| added += i64::from(set::insert(&mut object, member)));
            None
        }
        None => {
            let mut object = set::new();
            members.for_each(|member| added += i64::from(set::insert(&mut object, member)));
            Some(object)
        }
    };
    if let Some(object) = created {
        cx.hold.insert(key, NewValue::Object(object), None);
    }
    if added > 0 {
        cx.hold.touched(key);
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(added);
    Ok(Flow::Done)
}

/// SADD of many or long members, in steps under the key's lock.
struct SaddTask {
    /// Position up to which no member is too long.
    checked: usize,
    next: usize,
    added: i64,
}

impl SaddTask {
    fn start(args: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let checked = if args.total_bytes() > MEMBER_BYTES_MAX { 2 } else { args.len() };
        Ok(Box::new(SaddTask { checked, next: 2, added: 0 }))
    }

    /// Looks for members that are too long, before the first one is added.
    fn check(&mut self, args: Args<'_>) -> Result<Step> {
        let upto = args.len().min(self.checked + CHECKED_PER_STEP);
        if (self.checked..upto).any(|index| args.arg_len(index) > MEMBER_BYTES_MAX) {
            return Err(errors::MEMBER_TOO_LONG);
        }
        self.checked = upto;
        Ok(Step::Again)
    }
}

/// Adds members from position `next` of the words on, until a hold has done its share. Returns the
/// position of the first one that was not added, and how many were new.
fn add_some(object: &mut Object, args: Args<'_>, next: usize) -> (usize, i64) {
    let begin = work::counted();
    let (mut at, mut added) = (next, 0);
    while at < args.len() && args.arg_len(at) <= ADDED_BYTES_AT_ONCE {
        added += i64::from(set::insert(object, args.get(at)));
        at += 1;
        if work::counted().wrapping_sub(begin) > UNITS_PER_STEP {
            break;
        }
    }
    (at, added)
}

impl Task for SaddTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        let (args, next) = (request.args(), self.next);
        if self.checked < args.len() {
            return self.check(args);
        }
        let wanted = [super::keys::wanted_key(cx, 1, Access::Exclusive)];
        // A long member is hashed and copied before the latch, and has a hold of its own.
        let member = args.get(next);
        let large =
            (member.len() > ADDED_BYTES_AT_ONCE).then(|| (hash(member), LargeMember::new(member)));
        let add = |object: &mut Object| match &large {
            Some((hashed, large)) => {
                (next + 1, i64::from(set::insert_large(object, *hashed, large)))
            }
            None => add_some(object, args, next),
        };
        let added_before = self.added;
        let held = cx.hold(&wanted, |hold| {
            let key = wanted[0].key;
            let (upto, added) = match hold.write(key) {
                Some(mut entry) => {
                    let Some(mut object) = entry.object_mut() else {
                        return Err(errors::WRONG_TYPE);
                    };
                    set::len(&object)?;
                    add(&mut object)
                }
                None => {
                    let mut object = set::new();
                    let done = add(&mut object);
                    hold.insert(key, NewValue::Object(object), None);
                    done
                }
            };
            if added > 0 {
                hold.touched(key);
            }
            if upto == args.len() && added_before + added > 0 {
                hold.verbatim(args);
            }
            Ok((upto, added))
        });
        let Ok(done) = held else { return Ok(Step::TakeLocks) };
        let (upto, added) = done?;
        self.added += added;
        self.next = upto;
        if upto < args.len() {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().int(self.added);
        Ok(Step::Done)
    }
}

fn smembers(cx: &mut Context<'_, '_>) -> Outcome {
    let Some(entry) = cx.hold.look_up(cx.keys[0].key) else {
        cx.reply.writer().set(0);
        return Ok(Flow::Done);
    };
    let Value::Object(object) = entry.value() else { return Err(errors::WRONG_TYPE) };
    set::write(&object, &mut cx.reply)?;
    Ok(Flow::Done)
}

/// The set at a key, as a snapshot; `None` if the key is absent.
fn snapshot(hold: &mut Hold<'_>, key: Key<'_>) -> Result<Option<Object>> {
    let Some(entry) = hold.read(key) else { return Ok(None) };
    let Value::Object(object) = entry.value() else { return Err(errors::WRONG_TYPE) };
    set::len(&object)?;
    Ok(Some(object.clone()))
}

fn sunionstore(cx: &mut Context<'_, '_>) -> Outcome {
    if cx.keys.len() > UNITED_KEYS_AT_ONCE || cx.args.total_bytes() > ADDED_BYTES_AT_ONCE {
        return Ok(Flow::Escalate);
    }
    let mut total = 0;
    for source in &cx.keys[1..] {
        let Some(entry) = cx.hold.read(source.key) else { continue };
        let Value::Object(object) = entry.value() else { return Err(errors::WRONG_TYPE) };
        total += set::len(&object)?;
        if matches!(*object, Object::Set(_)) {
            return Ok(Flow::Escalate);
        }
    }
    if total > UNITED_AT_ONCE {
        return Ok(Flow::Escalate);
    }
    let mut union = set::new();
    for source in &cx.keys[1..] {
        if let Some(sources) = snapshot(cx.hold, source.key)? {
            set::visit_small(&sources, |member| {
                set::insert(&mut union, member);
            });
        }
    }
    let count = set::len(&union)?;
    store(cx.hold, cx.keys[0].key, union, count, cx.args);
    cx.reply.writer().int(count as i64);
    Ok(Flow::Done)
}

/// Puts a computed set in place of whatever is there.
fn store(hold: &mut Hold<'_>, key: Key<'_>, union: Object, count: u64, args: Args<'_>) {
    if count > 0 {
        hold.read(key);
        hold.upsert(key, NewValue::Object(union), Expire::Clear);
        hold.verbatim(args);
    } else if hold.read(key).is_some() {
        hold.delete(key);
        hold.touched(key);
        hold.replaced_by(&[b"DEL", key.bytes]);
    }
}

/// What an input or the destination was when the computation began.
enum Seen {
    Absent,
    /// The value; pinned, so that an equal pointer means an unchanged value.
    Set(Object),
    /// Something that only the destination may be.
    Other,
}

impl Seen {
    fn is_unchanged(&self, hold: &mut Hold<'_>, key: Key<'_>) -> bool {
        match (self, hold.read(key)) {
            (Seen::Absent, None) | (Seen::Other, _) => true,
            (Seen::Set(pinned), Some(entry)) => match (pinned, entry.value()) {
                (Object::Set(pinned), Value::Object(now)) => {
                    matches!(&*now, Object::Set(now) if now.same_version(pinned))
                }
                (Object::PackedSet(pinned), Value::Object(now)) => {
                    matches!(&*now, Object::PackedSet(now) if now.same_block(pinned))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// The union as the slow lane computes it.
struct UnionJob {
    sources: Vec<Object>,
    walk: Option<Walk>,
    union: Members,
    result: Arc<Mutex<Option<Members>>>,
    finished: Box<dyn Fn() + Send>,
}

impl UnionJob {
    fn insert_small(&mut self, packed: &Packed) {
        packed.iter().for_each(|member| {
            self.union.insert(hash(member), member);
        });
    }
}

impl Job for UnionJob {
    fn step(&mut self) -> bool {
        if let Some(walk) = &mut self.walk {
            let (union, mut bytes) = (&mut self.union, 0);
            let more = walk.next_until(ADDED_PER_JOB_STEP, |member| {
                union.insert(hash(member), member);
                bytes += member.len();
                if bytes < BYTES_PER_JOB_STEP {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            if !more {
                self.walk = None;
            }
            return false;
        }
        match self.sources.pop() {
            Some(Object::Set(members)) => self.walk = Some(members.walk()),
            Some(Object::PackedSet(packed)) => self.insert_small(&packed),
            Some(_) => {}
            None => {
                *self.result.lock() = Some(std::mem::take(&mut self.union));
                (self.finished)();
                return true;
            }
        }
        false
    }
}

enum UnionState {
    /// The inputs are being pinned, from this key on.
    Pin(usize),
    /// The job runs.
    Compute(Arc<Mutex<Option<Members>>>),
    /// The result is checked and installed.
    Install(Members),
}

/// SUNIONSTORE of large sets.
struct UnionTask {
    state: UnionState,
    seen: Vec<Seen>,
    attempts: u32,
}

impl UnionTask {
    fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(UnionTask { state: UnionState::Pin(1), seen: Vec::new(), attempts: 0 }))
    }

    fn needs_locks(&self, cx: &TaskContext<'_>) -> bool {
        cx.owner == NOBODY && (self.attempts >= ATTEMPTS || cx.args().len() > HELD_KEYS_MAX)
    }

    /// Pins sources together: all in one hold, or one after the other under their locks.
    fn pin(&mut self, cx: &mut TaskContext<'_>, from: usize) -> Result<Step> {
        let args = cx.request.args();
        if from == 1 {
            self.attempts += 1;
            self.seen.clear();
        }
        let upto = args.len().min(from + HELD_KEYS_MAX - 1);
        let wanted: Vec<Wanted<'_>> = (from..upto)
            .map(|index| {
                let access = if index == 1 { Access::Exclusive } else { Access::Shared };
                super::keys::wanted_key(cx, index, access)
            })
            .collect();
        let seen = &mut self.seen;
        let held = cx.hold(&wanted, |hold| {
            for (index, wanted) in wanted.iter().enumerate() {
                seen.push(match snapshot(hold, wanted.key) {
                    Ok(None) => Seen::Absent,
                    Ok(Some(object)) => Seen::Set(object),
                    Err(_) if from + index == 1 => Seen::Other,
                    Err(error) => return Err(error),
                });
            }
            Ok(())
        });
        let Ok(pinned) = held else {
            self.seen.clear();
            return Ok(Step::TakeLocks);
        };
        pinned?;
        if upto < args.len() {
            self.state = UnionState::Pin(upto);
            return Ok(Step::Again);
        }
        self.submit(cx);
        Ok(Step::Waiting)
    }

    fn submit(&mut self, cx: &mut TaskContext<'_>) {
        let result = Arc::new(Mutex::new(None));
        let sources = self.seen[1..].iter().filter_map(|seen| match seen {
            Seen::Set(object) => Some(object.clone()),
            _ => None,
        });
        let (engine, address): (_, Address) = (cx.worker.engine.clone(), cx.session.address);
        cx.worker.engine.slow_lane.push(Box::new(UnionJob {
            sources: sources.collect(),
            walk: None,
            union: Members::new(),
            result: Arc::clone(&result),
            finished: Box::new(move || engine.mailboxes.resume(address)),
        }));
        self.state = UnionState::Compute(result);
    }

    /// Installs the result if nothing changed. The destination may have: it is overwritten.
    fn install(&mut self, cx: &mut TaskContext<'_>, union: Members) -> Result<Step> {
        let request = cx.request;
        let args = request.args();
        let checked = if cx.owner == NOBODY { args.len() } else { 2 };
        let wanted: Vec<Wanted<'_>> = (1..checked)
            .map(|index| {
                let access = if index == 1 { Access::Exclusive } else { Access::Shared };
                super::keys::wanted_key(cx, index, access)
            })
            .collect();
        let (seen, count) = (&self.seen, union.len());
        let mut union = Some(union);
        let installed = cx.hold(&wanted, |hold| {
            let sources = wanted.iter().zip(seen).skip(1);
            #[cfg(all(shuttle, planted_bug = "install"))]
            let sources = sources.take(1);
            for (wanted, seen) in sources {
                if !seen.is_unchanged(hold, wanted.key) {
                    return false;
                }
            }
            let union = Object::Set(union.take().unwrap_or_default());
            store(hold, wanted[0].key, union, count, args);
            true
        });
        if installed == Ok(true) {
            cx.session.reply().writer().int(count as i64);
            return Ok(Step::Done);
        }
        cx.worker.stats().restarts.add(1);
        cx.worker.garbage.extend(union.map(set::garbage));
        self.state = UnionState::Pin(1);
        Ok(if installed.is_err() { Step::TakeLocks } else { Step::Again })
    }
}

impl Task for UnionTask {
    fn begins_with_locks(&self, _: &Command) -> bool {
        false
    }

    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        match std::mem::replace(&mut self.state, UnionState::Pin(1)) {
            UnionState::Pin(from) => {
                if self.needs_locks(cx) {
                    return Ok(Step::TakeLocks);
                }
                self.pin(cx, from)
            }
            UnionState::Compute(result) => {
                let union = result.lock().take();
                match union {
                    Some(union) => {
                        self.state = UnionState::Install(union);
                        Ok(Step::Again)
                    }
                    None => {
                        self.state = UnionState::Compute(result);
                        Ok(Step::Waiting)
                    }
                }
            }
            UnionState::Install(union) => self.install(cx, union),
        }
    }

    fn discard(self: Box<Self>) -> Option<Box<dyn Discard>> {
        Some(Box::new(PinnedSets(self.seen)))
    }
}

/// The inputs of a union, no longer needed. A pin may be the last reference to a set.
struct PinnedSets(Vec<Seen>);

impl Discard for PinnedSets {
    fn discard_step(&mut self, nodes: usize) -> bool {
        let Some(Seen::Set(object)) = self.0.pop() else { return self.0.is_empty() };
        let mut remains = object.into_remains();
        while !remains.drop_step(nodes) {}
        self.0.is_empty()
    }
}
