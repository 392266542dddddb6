//! Keys of any type: DEL, TYPE, and the expiry.

use crate::errors::{self, Result};
use crate::execution::command::{
    Arity, Command, Context, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run, TaskSeed,
};
use crate::execution::task::{Step, Task, TaskContext};
use crate::keyspace::hold::{Hold, Wanted};
use crate::keyspace::key::Key;
use crate::keyspace::locks::Access;
use crate::parse;
use crate::types::Type;
use resp::Args;

/// Keys of DEL that fit into one hold, and that one step removes.
const KEYS_AT_ONCE: usize = 32;

/// Bytes of the names of such keys.
const KEY_BYTES_AT_ONCE: usize = 64 * 1024;

const READ: Keys = Keys::First(Access::Shared);
const WRITE: Keys = Keys::First(Access::Exclusive);

/// The row of one of the commands that set an expiry.
const fn expire_row(name: &'static str, since: &'static str, summary: &'static str) -> Row {
    Row {
        name,
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::FAST),
        group: "generic",
        keys: WRITE,
        cost: Cost::Small(1000),
        locks: Locks::Keys,
        since,
        complexity: "O(1)",
        summary,
    }
}

/// The row of one of the commands that remove keys.
const fn remove_row(name: &'static str, flags: Flags, since: &'static str) -> Row {
    Row {
        name,
        arity: Arity::AtLeast(2),
        flags,
        group: "generic",
        keys: Keys::All { step: 1, access: Access::Exclusive },
        cost: Cost::Stepped,
        locks: Locks::Keys,
        since,
        complexity: "O(N) for N keys, whatever their size",
        summary: "Removes keys.",
    }
}

/// The row of one of the commands that count keys.
const fn count_row(name: &'static str, since: &'static str, summary: &'static str) -> Row {
    Row {
        name,
        arity: Arity::AtLeast(2),
        flags: Flags::READ.with(Flags::FAST),
        group: "generic",
        keys: Keys::All { step: 1, access: Access::Shared },
        cost: Cost::Stepped,
        locks: Locks::Keys,
        since,
        complexity: "O(N) for N keys",
        summary,
    }
}

/// The row of one of the commands that ask for an expiry.
const fn ttl_row(name: &'static str, since: &'static str, summary: &'static str) -> Row {
    Row {
        name,
        arity: Arity::Exactly(2),
        flags: Flags::READ.with(Flags::FAST),
        group: "generic",
        keys: READ,
        cost: Cost::Small(500),
        locks: Locks::Keys,
        since,
        complexity: "O(1)",
        summary,
    }
}

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: remove_row("del", Flags::WRITE, "1.0.0"),
        run: Run::Wide { fits: few_keys, handler: del, task: CountTask::del },
    },
    Command {
        row: remove_row("unlink", Flags::WRITE.with(Flags::FAST), "4.0.0"),
        run: Run::Wide { fits: few_keys, handler: del, task: CountTask::del },
    },
    Command {
        row: count_row("exists", "1.0.0", "Returns how many of the keys exist."),
        run: Run::Wide { fits: few_keys, handler: exists, task: CountTask::exists },
    },
    Command {
        row: count_row("touch", "3.2.1", "Returns how many of the keys exist; they count as used."),
        run: Run::Wide { fits: few_keys, handler: exists, task: CountTask::exists },
    },
    Command {
        row: Row {
            name: "type",
            arity: Arity::Exactly(2),
            flags: Flags::READ.with(Flags::FAST),
            group: "generic",
            keys: READ,
            cost: Cost::Small(500),
            locks: Locks::Keys,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the type of a key's value.",
        },
        run: Run::Keyed(type_),
    },
    Command {
        row: expire_row("expire", "1.0.0", "Lets a key expire after a number of seconds."),
        run: Run::Keyed(|cx| expire(cx, 1000, Since::Now, "expire")),
    },
    Command {
        row: expire_row("pexpire", "2.6.0", "Lets a key expire after a number of milliseconds."),
        run: Run::Keyed(|cx| expire(cx, 1, Since::Now, "pexpire")),
    },
    Command {
        row: expire_row("expireat", "1.2.0", "Lets a key expire at a Unix time in seconds."),
        run: Run::Keyed(|cx| expire(cx, 1000, Since::Epoch, "expireat")),
    },
    Command {
        row: expire_row("pexpireat", "2.6.0", "Lets a key expire at a Unix time in milliseconds."),
        run: Run::Keyed(|cx| expire(cx, 1, Since::Epoch, "pexpireat")),
    },
    Command {
        row: Row {
            arity: Arity::Exactly(2),
            ..expire_row("persist", "2.2.0", "Lets a key never expire.")
        },
        run: Run::Keyed(persist),
    },
    Command {
        row: ttl_row("expiretime", "7.0.0", "Returns when a key expires, in Unix seconds."),
        run: Run::Keyed(|cx| expires(cx, |at_ms, _| (at_ms + 500) / 1000)),
    },
    Command {
        row: ttl_row("pexpiretime", "7.0.0", "Returns when a key expires, in Unix milliseconds."),
        run: Run::Keyed(|cx| expires(cx, |at_ms, _| at_ms)),
    },
    Command {
        row: ttl_row("ttl", "1.0.0", "Returns the seconds until a key expires."),
        run: Run::Keyed(|cx| expires(cx, |at_ms, now_ms| ((at_ms - now_ms).max(0) + 500) / 1000)),
    },
    Command {
        row: ttl_row("pttl", "2.6.0", "Returns the milliseconds until a key expires."),
        run: Run::Keyed(|cx| expires(cx, |at_ms, now_ms| (at_ms - now_ms).max(0))),
    },
];

/// What a task's hold must cover for the key at a position of the words.
pub(super) fn wanted_key<'r>(cx: &TaskContext<'r>, index: usize, access: Access) -> Wanted<'r> {
    Wanted { key: cx.worker.engine.keyspace.key(cx.request.args().get(index)), access }
}

fn few_keys(args: Args<'_>) -> bool {
    args.len() - 1 <= KEYS_AT_ONCE && args.total_bytes() <= KEY_BYTES_AT_ONCE
}

fn del(cx: &mut Context<'_, '_>) -> Outcome {
    let removed = cx.keys.iter().filter(|wanted| remove(cx.hold, wanted.key)).count();
    if removed > 0 {
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(removed as i64);
    Ok(Flow::Done)
}

/// Removes a key. Returns whether it was there. An expired one does not count as removed: looking at
/// it removes it with its own effect.
fn remove(hold: &mut Hold<'_>, key: Key<'_>) -> bool {
    let removed = hold.read(key).is_some() && hold.delete(key);
    if removed {
        hold.touched(key);
    }
    removed
}

/// DEL or EXISTS of many keys, under locks: each key in its own hold, and the count at the end.
struct CountTask {
    access: Access,
    /// What is done with a key. Returns whether it counts.
    visit: fn(&mut Hold<'_>, Key<'_>) -> bool,
    next: usize,
    counted: i64,
}

impl CountTask {
    fn del(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        Ok(Box::new(CountTask { access: Access::Exclusive, visit: remove, next: 1, counted: 0 }))
    }

    fn exists(_: Args<'_>, _: &TaskSeed) -> Result<Box<dyn Task>> {
        let visit = |hold: &mut Hold<'_>, key: Key<'_>| hold.look_up(key).is_some();
        Ok(Box::new(CountTask { access: Access::Shared, visit, next: 1, counted: 0 }))
    }
}

impl Task for CountTask {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let request = cx.request;
        let args = request.args();
        let upto = args.len().min(self.next + KEYS_AT_ONCE);
        let mut bytes = 0;
        while self.next < upto && bytes <= KEY_BYTES_AT_ONCE {
            let wanted = [wanted_key(cx, self.next, self.access)];
            bytes += args.arg_len(self.next);
            self.next += 1;
            let is_last = self.next == args.len();
            let held = cx.hold(&wanted, |hold| {
                self.counted += i64::from((self.visit)(hold, wanted[0].key));
                if is_last && self.counted > 0 && self.access == Access::Exclusive {
                    hold.verbatim(args);
                }
            });
            debug_assert!(held.is_ok(), "the keys are locked");
        }
        if self.next < args.len() {
            return Ok(Step::Again);
        }
        cx.session.reply().writer().int(self.counted);
        Ok(Step::Done)
    }
}

fn type_(cx: &mut Context<'_, '_>) -> Outcome {
    let name = match cx.hold.look_up(cx.keys[0].key) {
        None => "none",
        Some(entry) => Type::of(&entry.value()).name(),
    };
    cx.reply.writer().simple(name);
    Ok(Flow::Done)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Now,
    Epoch,
}

/// Conditions of the EXPIRE family.
#[derive(Default)]
struct ExpireOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

fn expire_options(args: Args<'_>, name: &str) -> Result<ExpireOptions> {
    parse::check_words(args, name)?;
    let mut options = ExpireOptions::default();
    for index in 3..args.len() {
        match args.get(index) {
            option if parse::is(option, "nx") => options.nx = true,
            option if parse::is(option, "xx") => options.xx = true,
            option if parse::is(option, "gt") => options.gt = true,
            option if parse::is(option, "lt") => options.lt = true,
            option => return Err(errors::unsupported_option(option)),
        }
    }
    if options.nx && (options.xx || options.gt || options.lt) {
        return Err(errors::EXPIRE_NX_CONFLICT);
    }
    if options.gt && options.lt {
        return Err(errors::EXPIRE_GT_LT_CONFLICT);
    }
    Ok(options)
}

impl ExpireOptions {
    /// Whether the expiry may be changed from `current` to `at_ms`; no expiry is the latest of all.
    fn allow(&self, current: Option<i64>, at_ms: i64) -> bool {
        let is_later = current.is_some_and(|current| at_ms > current);
        let is_earlier = current.is_none_or(|current| at_ms < current);
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && !is_later
            || self.lt && !is_earlier)
    }
}

fn expire(cx: &mut Context<'_, '_>, unit_ms: i64, since: Since, name: &'static str) -> Outcome {
    let options = expire_options(cx.args, name)?;
    let now_ms = cx.hold.now_ms();
    let base_ms = if since == Since::Now { now_ms } else { 0 };
    let at_ms = parse::integer(cx.args.get(2))?
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(base_ms))
        .ok_or_else(|| errors::invalid_expire(name))?;
    let key = cx.keys[0].key;
    let allowed = match cx.hold.write(key) {
        None => false,
        Some(mut entry) => {
            let allowed = options.allow(entry.expire_at(), at_ms);
            if allowed && at_ms > now_ms {
                entry.set_expire(Some(at_ms));
            }
            allowed
        }
    };
    if allowed && at_ms <= now_ms {
        cx.hold.delete(key);
        cx.hold.replaced_by(&[b"DEL", key.bytes]);
    } else if allowed {
        let mut digits = itoa::Buffer::new();
        cx.hold.replaced_by(&[b"PEXPIREAT", key.bytes, digits.format(at_ms).as_bytes()]);
    }
    if allowed {
        cx.hold.touched(key);
    }
    cx.reply.writer().int(i64::from(allowed));
    Ok(Flow::Done)
}

/// Answers an expiry as `shown` makes it of that moment and now, in Unix milliseconds.
fn expires(cx: &mut Context<'_, '_>, shown: fn(i64, i64) -> i64) -> Outcome {
    let now_ms = cx.hold.now_ms();
    let answer = match cx.hold.look_up(cx.keys[0].key) {
        None => -2,
        Some(entry) => entry.expire_at().map_or(-1, |at_ms| shown(at_ms, now_ms)),
    };
    cx.reply.writer().int(answer);
    Ok(Flow::Done)
}

fn persist(cx: &mut Context<'_, '_>) -> Outcome {
    let key = cx.keys[0].key;
    let entry = cx.hold.write(key);
    let removed = match entry {
        Some(mut entry) if entry.expire_at().is_some() => {
            entry.set_expire(None);
            true
        }
        _ => false,
    };
    if removed {
        cx.hold.touched(key);
        cx.hold.verbatim(cx.args);
    }
    cx.reply.writer().int(i64::from(removed));
    Ok(Flow::Done)
}

fn exists(cx: &mut Context<'_, '_>) -> Outcome {
    let found = cx.keys.iter().filter(|wanted| cx.hold.look_up(wanted.key).is_some()).count();
    cx.reply.writer().int(found as i64);
    Ok(Flow::Done)
}
