//! DEL, UNLINK, EXISTS, TOUCH, TYPE, EXPIRE, TTL and their relatives, PERSIST, SCAN, KEYS, DBSIZE, FLUSHALL, SWAPDB.

use super::{Action, Command, DATABASES, Generator, Profile, SOON_MS, exact, judged, word};
use crate::judge::Judge;

pub(super) fn action(generator: &mut Generator) -> Action {
    match generator.random.below(120) {
        100..106 => count(generator),
        106..111 => exact(vec![word("PERSIST"), generator.any_key()]),
        111..115 => judged(vec![word("EXPIRETIME"), generator.any_key()], Judge::Seconds),
        115..120 => judged(vec![word("PEXPIRETIME"), generator.any_key()], Judge::Milliseconds),
        0..16 => delete(generator),
        16..24 => exact(vec![word("TYPE"), generator.any_key()]),
        24..44 => expire(generator),
        44..54 => judged(vec![word("TTL"), generator.any_key()], Judge::Seconds),
        54..62 => judged(vec![word("PTTL"), generator.any_key()], Judge::Milliseconds),
        62..68 => Action::Scan(scan_options(generator)),
        68..74 => bad_scan(generator),
        74..80 => judged(vec![word("KEYS"), pattern(generator)], Judge::Unordered),
        80..86 => exact(vec![word("DBSIZE")]),
        86..92 => expire_soon(generator),
        92..94 => flush_all(generator),
        _ => swap(generator),
    }
}

fn delete(generator: &mut Generator) -> Action {
    let mut arguments = vec![word(if generator.random.one_in(3) { "UNLINK" } else { "DEL" })];
    for _ in 0..=generator.random.below(3) {
        arguments.push(generator.any_key());
    }
    exact(arguments)
}

fn count(generator: &mut Generator) -> Action {
    let mut arguments = vec![word(generator.random.pick(&["EXISTS", "TOUCH"]))];
    let count = if generator.random.one_in(30) { 100 } else { 1 + generator.random.below(4) };
    for _ in 0..count {
        arguments.push(generator.any_key());
    }
    exact(arguments)
}

fn expire(generator: &mut Generator) -> Action {
    let (name, time) = match generator.random.below(4) {
        0 => ("EXPIRE", generator.seconds_ahead()),
        1 => ("PEXPIRE", generator.milliseconds_ahead()),
        2 => ("EXPIREAT", generator.seconds_since_1970()),
        _ => ("PEXPIREAT", generator.milliseconds_since_1970()),
    };
    let mut arguments = vec![word(name), generator.any_key(), time];
    let options = match generator.random.below(10) {
        0..5 => 0,
        5..9 => 1,
        _ => 2,
    };
    for _ in 0..options {
        arguments.push(word(generator.random.pick(&["NX", "xx", "GT", "LT", "BOGUS"])));
    }
    exact(arguments)
}

/// A deadline that the test waits for, so that both servers agree that it has passed.
fn expire_soon(generator: &mut Generator) -> Action {
    let key = generator.any_key();
    if generator.profile != Profile::Compared {
        return exact(vec![word("TYPE"), key]);
    }
    let soon = SOON_MS.to_string().into_bytes();
    let arguments = if generator.random.one_in(2) {
        vec![word("PEXPIRE"), key.clone(), soon]
    } else {
        vec![word("SET"), key.clone(), generator.value(), word("PX"), soon]
    };
    Action::ExpireSoon(key, Command { arguments, judge: Judge::Exact })
}

fn scan_options(generator: &mut Generator) -> Vec<Vec<u8>> {
    let mut options = Vec::new();
    if generator.random.one_in(2) {
        options.push(word("COUNT"));
        options.push(generator.random.between(1, 30).to_string().into_bytes());
    }
    if generator.random.one_in(3) {
        options.push(word("match"));
        options.push(pattern(generator));
    }
    if generator.random.one_in(3) {
        options.push(word("TYPE"));
        options.push(word(generator.random.pick(&["string", "list", "SET", "hash"])));
    }
    options
}

fn bad_scan(generator: &mut Generator) -> Action {
    let choices: &[&[&str]] = &[
        &["SCAN", "abc"],
        &["SCAN", "18446744073709551616"],
        &["SCAN", "0", "COUNT", "0"],
        &["SCAN", "0", "COUNT", "x"],
        &["SCAN", "0", "COUNT"],
        &["SCAN", "0", "MATCH"],
        &["SCAN", "0", "BOGUS", "1"],
        &["SCAN", "0", "COUNT", "-1", "MATCH", "a"],
    ];
    exact(generator.random.pick(choices).iter().map(|text| word(text)).collect())
}

fn pattern(generator: &mut Generator) -> Vec<u8> {
    let patterns = [
        "*", "string:*", "list:?", "s*:[0-1]", "s*:[^2]", "none*", "*:3", "l\\ist:*", "[a-m]*",
        "*t*:*", "string:1", "",
    ];
    word(generator.random.pick(&patterns))
}

fn flush_all(generator: &mut Generator) -> Action {
    match generator.random.below(8) {
        0 => exact(vec![word("FLUSHALL"), word("ASYNC")]),
        1 => exact(vec![word("FLUSHALL"), word("sync")]),
        2 => exact(vec![word("FLUSHALL"), word("BOGUS")]),
        3 => exact(vec![word("FLUSHALL")]),
        // Rarely, so that collections have time to grow.
        _ => exact(vec![word("DBSIZE")]),
    }
}

fn swap(generator: &mut Generator) -> Action {
    let database = |generator: &mut Generator| match generator.random.below(30) {
        0 => word("16"),
        1 => word("-1"),
        2 => word("abc"),
        _ => generator.random.below(DATABASES).to_string().into_bytes(),
    };
    exact(vec![word("SWAPDB"), database(generator), database(generator)])
}

/// Seconds of a lasting deadline, in a range so wide that two are never equal by chance.
const LASTING_SECONDS: (i64, i64) = (1_000, 100_000_000);

impl Generator {
    /// Seconds from now: lasting, or refused, or in the past.
    pub(super) fn seconds_ahead(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => word(self.random.pick(&["0", "-1", "-100", "-9223372036854775808"])),
            1 => word(self.random.pick(&["9223372036854775807", "9223372036854775", "1.5"])),
            _ => self.number(LASTING_SECONDS.0, LASTING_SECONDS.1),
        }
    }

    /// Milliseconds from now; a few in profiles where nothing is compared.
    pub(super) fn milliseconds_ahead(&mut self) -> Vec<u8> {
        if self.may_expire_any_time() && self.random.one_in(2) {
            return self.number(1, 40);
        }
        match self.random.below(12) {
            0 => word(self.random.pick(&["0", "-1", "-100", "-9223372036854775808"])),
            1 => word(self.random.pick(&["9223372036854775807", "9223372036854775800", "x"])),
            _ => self.number(LASTING_SECONDS.0 * 1000, LASTING_SECONDS.1 * 1000),
        }
    }

    /// Seconds since 1970: lasting, or in the past, or refused.
    pub(super) fn seconds_since_1970(&mut self) -> Vec<u8> {
        let now = self.start_ms / 1000;
        match self.random.below(12) {
            0 => word(self.random.pick(&["0", "-1", "1", "1000000000"])),
            1 => word(self.random.pick(&["9223372036854775807", "9223372036854776"])),
            _ => self.number(now + LASTING_SECONDS.0, now + LASTING_SECONDS.1),
        }
    }

    /// Milliseconds since 1970: lasting, or in the past, or refused.
    pub(super) fn milliseconds_since_1970(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => word(self.random.pick(&["0", "-1", "1", "1000000000000"])),
            1 => word(self.random.pick(&["9223372036854775808", "x"])),
            _ => {
                let low = self.start_ms + LASTING_SECONDS.0 * 1000;
                self.number(low, low + LASTING_SECONDS.1 * 1000)
            }
        }
    }
}
