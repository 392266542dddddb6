//! The data of the scenarios.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resp::write_request;

use super::measure::Plan;
use crate::client::Client;

/// The key of the big value.
pub(super) const BIG: &str = "big";
/// The key of a second one.
pub(super) const OTHER: &str = "other";
/// Bytes of a list element.
const ELEMENT_BYTES: usize = 100;
/// Elements or members that one command adds.
const BATCH: usize = 100;
/// Bytes of the big string when there are a million elements.
const TEXT_BYTES_PER_MILLION: usize = 256 << 20;
/// What a deadline leaves for everything between loading and the heavy phase.
const SLACK: Duration = Duration::from_secs(3);

/// What a scenario needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    /// An empty server.
    Nothing,
    /// A list of all elements.
    List,
    /// A set of all elements.
    Set,
    /// Two sets that share half of the second one, which has half of the elements.
    TwoSets,
    /// A list and a set.
    ListAndSet,
    /// As many keys as elements.
    Keys,
    /// As many keys as elements, which all expire in the same millisecond.
    DoomedKeys,
    /// Half as many keys, named by [`wide_name`].
    WideKeys,
    /// One string of 256 MiB for a million elements.
    Text,
}

/// Loads the data of a scenario. Returns when its keys expire, if they do: Unix time in
/// milliseconds.
pub(super) fn load(data: Data, client: &mut Client, plan: &Plan) -> Result<Option<u64>, String> {
    let count = plan.elements;
    match data {
        Data::Nothing => {}
        Data::List => list(client, count)?,
        Data::Set => set(client, BIG, 0, count)?,
        Data::TwoSets => {
            set(client, BIG, 0, count)?;
            set(client, OTHER, count - count / 4, count / 2)?;
        }
        Data::ListAndSet => {
            list(client, count)?;
            set(client, OTHER, 0, count)?;
        }
        Data::Keys => keys(client, count)?,
        Data::DoomedKeys => return doomed(client, plan).map(Some),
        Data::WideKeys => client.pipeline(count / 2, |number, out| {
            write_request(out, &["SET", &wide_name(number), "value"]);
        })?,
        Data::Text => {
            let last = text_bytes(count) - 1;
            client.call(&["SETRANGE", BIG, &last.to_string(), "x"])?;
        }
    }
    Ok(None)
}

/// Bytes of the big string.
pub(super) fn text_bytes(elements: usize) -> usize {
    (TEXT_BYTES_PER_MILLION as u64 * elements as u64 / 1_000_000) as usize
}

/// The name of a key, member or element in a command with very many arguments.
pub(super) fn wide_name(number: usize) -> String {
    format!("wide:{number:015}")
}

/// As many small keys as elements.
pub(super) fn keys(client: &mut Client, count: usize) -> Result<(), String> {
    client.pipeline(count, |number, out| {
        write_request(out, &["SET", &format!("key:{number}"), &format!("value:{number}")]);
    })
}

fn list(client: &mut Client, count: usize) -> Result<(), String> {
    batches(client, "RPUSH", BIG, 0, count, |number| format!("{number:>0ELEMENT_BYTES$}"))
}

fn set(client: &mut Client, key: &str, first: usize, count: usize) -> Result<(), String> {
    batches(client, "SADD", key, first, count, |number| format!("member:{number}"))
}

fn batches(
    client: &mut Client,
    command: &str,
    key: &str,
    first: usize,
    count: usize,
    make: impl Fn(usize) -> String,
) -> Result<(), String> {
    client.pipeline(count.div_ceil(BATCH), |batch, out| {
        let numbers = first + batch * BATCH..first + count.min((batch + 1) * BATCH);
        let words = [command, key].map(str::to_owned).into_iter().chain(numbers.map(&make));
        write_request(out, &words.collect::<Vec<String>>());
    })
}

/// The deadline must be after the loading, of which nobody knows how long it takes: the keys are
/// written without one first, which takes about as long as giving them one.
fn doomed(client: &mut Client, plan: &Plan) -> Result<u64, String> {
    let start = Instant::now();
    keys(client, plan.elements)?;
    let left = start.elapsed() * 2 + plan.phase * 2 + SLACK;
    let deadline_ms = (unix_ms() + left.as_millis() as u64).to_string();
    client.pipeline(plan.elements, |number, out| {
        write_request(out, &["PEXPIREAT", &format!("key:{number}"), &deadline_ms]);
    })?;
    deadline_ms.parse().map_err(|error| format!("the clock is wrong: {error}"))
}

/// Unix time in milliseconds.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
