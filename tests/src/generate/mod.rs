//! Random commands of every family, from a small pool of keys so that types collide, with wrong
//! arities, wrong types, bad numbers and options that exclude each other among them.
//!
//! A run follows from its seed alone, except for absolute deadlines, which are relative to the
//! clock at the start.

mod connection;
mod keys;
mod lists;
mod many;
mod sets;
mod strings;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::judge::Judge;
use crate::random::Random;

/// A command and how the replies of two servers to it are compared.
#[derive(Clone, Debug)]
pub struct Command {
    /// Name and arguments.
    pub arguments: Vec<Vec<u8>>,
    /// What may differ.
    pub judge: Judge,
}

impl Command {
    /// True when this is the named command.
    pub fn is(&self, name: &str) -> bool {
        self.arguments[0].eq_ignore_ascii_case(name.as_bytes())
    }
}

/// What a random client does next.
#[derive(Clone, Debug)]
pub enum Action {
    /// One command.
    Command(Command),
    /// A whole iteration with SCAN: the arguments after the cursor.
    Scan(Vec<Vec<u8>>),
    /// A deadline that passes before the next action: the key, and the command that sets it.
    ExpireSoon(Vec<u8>, Command),
}

/// Which actions a test can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Profile {
    /// Everything that gives the same replies on two servers that are asked one after the other.
    Compared,
    /// Writes for concurrent clients, deadlines of a few milliseconds included; replies are not
    /// compared.
    Effects,
    /// As [`Profile::Effects`], without deadlines that can pass while the test runs.
    LastingEffects,
}

/// Databases that the generated clients use.
pub const DATABASES: u64 = 4;
/// Keys per family in the pool.
const KEYS_PER_FAMILY: u64 = 4;
/// Milliseconds until a deadline that [`Action::ExpireSoon`] waits for.
pub const SOON_MS: u64 = 4;

/// The families that a key's name leans to; nine out of ten uses respect it.
const FAMILIES: [&str; 3] = ["string", "list", "set"];

/// A source of random actions.
pub struct Generator {
    /// Where randomness comes from; tests may use it for their own choices.
    pub random: Random,
    profile: Profile,
    /// Milliseconds since 1970 at the start of the run.
    start_ms: i64,
}

/// A maker of one family's actions, and how often it is asked.
type Family = (u64, fn(&mut Generator) -> Action);

/// The families by weight.
const WEIGHTS: &[Family] = &[
    (35, strings::action),
    (30, lists::action),
    (14, sets::action),
    (14, keys::action),
    (12, connection::action),
    (1, many::action),
];

impl Generator {
    /// A generator whose actions follow from `seed`.
    pub fn new(seed: u64, profile: Profile) -> Generator {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
        Generator { random: Random::new(seed), profile, start_ms: now as i64 }
    }

    /// The next action.
    pub fn action(&mut self) -> Action {
        let total: u64 = WEIGHTS.iter().map(|(weight, _)| weight).sum();
        let mut ticket = self.random.below(total);
        for (weight, make) in WEIGHTS {
            if ticket < *weight {
                let action = make(self);
                return self.spoil(action);
            }
            ticket -= weight;
        }
        unreachable!("the ticket is below the sum of all weights")
    }

    /// Now and then gives a command a wrong number of arguments or an unusual case.
    fn spoil(&mut self, action: Action) -> Action {
        let Action::Command(mut command) = action else { return action };
        let name = command.arguments[0].to_ascii_uppercase();
        // Shortened, a SCAN would answer in an order of its own.
        let kept: [&[u8]; 5] = [b"SCAN", b"HELLO", b"FLUSHALL", b"SWAPDB", b"QUIT"];
        // Shortened, they would tell what differs between servers by nature.
        let of_the_server: [&[u8]; 4] = [b"CLIENT", b"COMMAND", b"CONFIG", b"DEBUG"];
        let name = name.as_slice();
        if !kept.contains(&name) && !of_the_server.contains(&name) {
            if self.random.one_in(60) {
                let length = 1 + self.random.below(command.arguments.len() as u64) as usize;
                command.arguments.truncate(length);
            } else if self.random.one_in(80) {
                let extra = self.small_value();
                command.arguments.push(extra);
            }
        }
        if self.random.one_in(10) {
            let random = &mut self.random;
            for byte in &mut command.arguments[0] {
                if random.one_in(2) {
                    *byte = byte.to_ascii_lowercase();
                }
            }
        }
        Action::Command(command)
    }

    /// A key whose name leans to `family`; one in ten is of any family, one in fifty is odd.
    fn key(&mut self, family: &str) -> Vec<u8> {
        if self.random.one_in(50) {
            return self.random.pick(&[&b""[..], b"\x00\xff\r\n", b"never written"]).to_vec();
        }
        if self.random.one_in(1000) {
            // Longer than what is received in one piece.
            return vec![b'k'; self.random.pick(&[1_000, 17_000])];
        }
        let family = if self.random.one_in(10) { self.random.pick(&FAMILIES) } else { family };
        format!("{family}:{}", self.random.below(KEYS_PER_FAMILY)).into_bytes()
    }

    /// Any key of the pool.
    fn any_key(&mut self) -> Vec<u8> {
        let family = self.random.pick(&FAMILIES);
        self.key(family)
    }

    /// A short value: a number, a word, nothing, or a few arbitrary bytes.
    fn small_value(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0..4 => self.random.between(-50, 200).to_string().into_bytes(),
            4 => self
                .random
                .pick(&[
                    "9223372036854775807",
                    "-9223372036854775808",
                    "9223372036854775808",
                    "007",
                    " 1",
                    "+1",
                    "-0",
                    "1.5",
                ])
                .as_bytes()
                .to_vec(),
            5 => Vec::new(),
            6 => {
                let length = self.random.below(12) as usize;
                self.random.bytes(length)
            }
            _ => format!("value-{}", self.random.below(40)).into_bytes(),
        }
    }

    /// A value: mostly short, sometimes of the size where representations change.
    fn value(&mut self) -> Vec<u8> {
        if self.random.one_in(300) {
            // The same bytes again and again, so that LREM and SADD find them.
            let lengths = [300, 600, 1_017, 3_000, 8_192, 8_193, 16_385, 40_000, 1_000_000];
            let length = if self.random.one_in(40) { 8 } else { self.random.below(8) as usize };
            return vec![b'L'; lengths[length]];
        }
        let length = match self.random.below(300) {
            0 => 100_000 + self.random.below(200) as usize,
            1..4 => 20_000 + self.random.below(200) as usize,
            4..6 => self.random.between(4_000, 4_200) as usize,
            6..8 => self.random.between(8_100, 8_300) as usize,
            8..14 => self.random.between(40, 140) as usize,
            _ => return self.small_value(),
        };
        let pattern = self.random.bytes(7);
        pattern.iter().copied().cycle().take(length).collect()
    }

    /// A number as text: mostly in `low..=high`, one in thirty no number at all.
    fn number(&mut self, low: i64, high: i64) -> Vec<u8> {
        if self.random.one_in(30) {
            let bad =
                ["abc", "", "1.5", "9223372036854775808", " 1", "1e3", "-9223372036854775808"];
            return self.random.pick(&bad).as_bytes().to_vec();
        }
        self.random.between(low, high).to_string().into_bytes()
    }

    /// A number of list or set elements to add: mostly few, sometimes hundreds.
    fn element_count(&mut self) -> u64 {
        match self.random.below(60) {
            0 => 300 + self.random.below(300),
            1..3 => 100 + self.random.below(60),
            _ => 1 + self.random.below(5),
        }
    }

    /// True when short deadlines may be set without waiting for them.
    fn may_expire_any_time(&self) -> bool {
        self.profile == Profile::Effects
    }
}

/// An action of one exactly compared command: words and byte strings.
fn exact(arguments: Vec<Vec<u8>>) -> Action {
    judged(arguments, Judge::Exact)
}

/// An action of one command.
fn judged(arguments: Vec<Vec<u8>>, judge: Judge) -> Action {
    Action::Command(Command { arguments, judge })
}

/// The bytes of a word.
fn word(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_actions() {
        let texts = || {
            let mut generator = Generator::new(5, Profile::Compared);
            generator.start_ms = 0;
            (0..500).map(|_| format!("{:?}", generator.action())).collect::<Vec<_>>()
        };
        assert_eq!(texts(), texts());
    }

    #[test]
    fn lasting_effects_set_no_deadline_that_passes() {
        let mut generator = Generator::new(6, Profile::LastingEffects);
        for _ in 0..20_000 {
            assert!(!matches!(generator.action(), Action::ExpireSoon(..)));
        }
    }
}
