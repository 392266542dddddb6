//! Sets: SADD, SMEMBERS, and SUNIONSTORE, the first computed store.
//! Invariant: an empty set is no key.

use structures::hash::hash;
use structures::members::{Members, Walk};
use structures::object::Object;
use structures::packed::Packed;
use structures::table::{Expire, NewValue, Value};

use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::HELD_KEYS_MAX;
use crate::keyspace::hold::{Hold, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::{Access, Address, NOBODY};
use crate::lanes::{Discard, Job};
use crate::sync::{Arc, Mutex};
use crate::types::set;
use resp::Args;

/// Members that one hold adds.
const ADDED_AT_ONCE: usize = 32;

/// Bytes of members that one hold adds.
const ADDED_BYTES_AT_ONCE: usize = 16 * 1024;

/// Members of a union that is computed in one hold.
const UNITED_AT_ONCE: u64 = 64;

/// Keys of a union that is computed in one hold.
const UNITED_KEYS_AT_ONCE: usize = 16;

/// Members that one step of a job adds: about a millisecond.
const ADDED_PER_JOB_STEP: usize = 2048;

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
    let added = add(cx.hold, cx.keys[0].key, members)?;
    if added > 0 {
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(added);
    Ok(Flow::Done)
}

fn add<'a>(
    hold: &mut Hold<'_>,
    key: Key<'_>,
    members: impl Iterator<Item = &'a [u8]>,
) -> Result<i64> {
    let mut added = 0;
    match hold.write(key) {
        Some(mut entry) => {
            let Some(mut object) = entry.object_mut() else { return Err(errors::WRONG_TYPE) };
            set::len(&object)?;
            members.for_each(|member| added += i64::from(set::insert(&mut object, member)));
        }
        None => {
            let mut object = set::new();
            members.for_each(|member| added += i64::from(set::insert(&mut object, member)));
            hold.insert(key, NewValue::Object(object), None);
        }
    }
    if added > 0 {
        hold.touched(key);
    }
    Ok(added)
}

/// SADD of many members, in steps under the key's lock.
struct SaddTask {
    next: usize,
    added: i64,
}

impl SaddTask {
    fn start(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(SaddTask { next: 2, added: 0 }))
    }
}

impl Task for SaddTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        let args = request.args();
        let mut upto = self.next;
        let mut bytes = 0;
        while upto < args.len() && upto - self.next < ADDED_AT_ONCE && bytes < ADDED_BYTES_AT_ONCE {
            bytes += args.arg_len(upto);
            upto += 1;
        }
        let wanted = [super::keys::wanted_key(cx, 1, Access::Exclusive)];
        let members = (self.next..upto).map(|index| args.get(index));
        let (added_before, is_last) = (self.added, upto == args.len());
        let held = cx.hold(&wanted, |hold| {
            let added = added_before + add(hold, wanted[0].key, members)?;
            if is_last && added > 0 {
                hold.verbatim(args);
            }
            Ok(added)
        });
        let Ok(added) = held else { return Ok(Step::TakeLocks) };
        self.added = added?;
        self.next = upto;
        if !is_last {
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
    if cx.keys.len() > UNITED_KEYS_AT_ONCE {
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
            set::insert_member(&mut self.union, hash(member), member);
        });
    }
}

impl Job for UnionJob {
    fn step(&mut self) -> bool {
        if let Some(walk) = &mut self.walk {
            let union = &mut self.union;
            let more = walk.next_batch(ADDED_PER_JOB_STEP, |member| {
                set::insert_member(union, hash(member), member);
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
