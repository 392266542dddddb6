//! What the models share: workers without sockets, lanes, and the schedules that are tried.
//!
//! A model is a function that builds an engine, runs its workers as shuttle's threads and asserts
//! what must hold under every schedule. A [`Node`] is the server's loop without its sockets: the
//! same calls in the same order, so what a model finds is a bug of production code. A thread that
//! has nothing to do sleeps until it is woken: a lost wake-up ends as shuttle's "deadlock".

#![allow(dead_code, reason = "each model uses its own part")]

pub(crate) mod node;
pub(crate) mod world;

use std::cell::Cell;

use resp::reply::Reply;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Bytes of a thread's stack: handlers keep the latches of 64 keys there.
const STACK_BYTES: usize = 512 * 1024;

/// Preemptions that the second half of the schedules distributes.
const PREEMPTIONS: usize = 3;

thread_local! {
    /// The cycle counter of the model that runs on this thread of the operating system.
    static TICKS: Cell<u64> = const { Cell::new(0) };
    /// Its time, Unix milliseconds.
    static NOW_MS: Cell<i64> = const { Cell::new(BEGIN_MS) };
}

/// When every model begins, Unix milliseconds.
pub(crate) const BEGIN_MS: i64 = 1_000_000;

/// Runs `model` under `schedules` random schedules and half as many with few preemptions.
/// EVENKEEL_TEST_ROUNDS multiplies both; the seeds are fixed. EVENKEEL_SCHEDULE replays the schedule
/// that a failure has printed.
pub(crate) fn check(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let model = move || {
        TICKS.set(0);
        NOW_MS.set(BEGIN_MS);
        model();
    };
    if let Some(schedule) = setting("EVENKEEL_SCHEDULE") {
        return shuttle::replay(model, &schedule);
    }
    let rounds: u64 = setting("EVENKEEL_TEST_ROUNDS").and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 1..=rounds {
        let random = RandomScheduler::new_from_seed(seed, schedules);
        Runner::new(random, config()).run(model.clone());
        let few = PctScheduler::new_from_seed(seed, PREEMPTIONS, schedules / 2);
        Runner::new(few, config()).run(model.clone());
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A cycle counter that every look advances, the same way in every run of a schedule.
pub(crate) fn ticks() -> u64 {
    TICKS.set(TICKS.get() + 1);
    TICKS.get()
}

/// The time. It stands still unless somebody lets it pass.
pub(crate) fn now_ms() -> i64 {
    NOW_MS.get()
}

/// Sets the time, forwards or back.
pub(crate) fn set_now_ms(at_ms: i64) {
    NOW_MS.set(at_ms);
}

/// A command on many keys: `name k0 v k1 v ...`, in ascending or descending order.
pub(crate) fn on_many(name: &str, order: impl Iterator<Item = usize>, value: &str) -> String {
    order.fold(name.to_owned(), |line, at| format!("{line} k{at} {value}"))
}

/// The text of a bulk string; `None` for null.
pub(crate) fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Reply::Null => None,
        other => panic!("not a string: {other:?}"),
    }
}

/// The texts of an array of bulk strings.
pub(crate) fn texts(reply: &Reply) -> Vec<Option<String>> {
    match reply {
        Reply::Array(elements) | Reply::Set(elements) => elements.iter().map(text).collect(),
        other => panic!("not an array: {other:?}"),
    }
}

/// The integer of a reply.
pub(crate) fn int(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(int) => *int,
        other => panic!("not an integer: {other:?}"),
    }
}

/// An element of a kilobyte: a hundred of them are sent in several pieces.
pub(crate) fn padded(at: usize) -> String {
    format!("e{at}.{:.<1000}", "")
}

/// Commands as a stream of effects begins with them.
pub(crate) fn stream_of(lines: &[String]) -> Vec<u8> {
    let mut stream = Vec::new();
    for line in lines {
        resp::write_request(&mut stream, &line.split_whitespace().collect::<Vec<_>>());
    }
    stream
}
