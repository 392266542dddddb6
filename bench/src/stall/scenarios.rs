//! The scenarios: what the heavy client does.
//!
//! Counts are shares of the elements, so that a small run does the same in small.

use std::time::{Duration, Instant};

use resp::write_request;

use super::load::{BIG, Data, OTHER, keys, text_bytes, unix_ms, wide_name};
use super::probe::CONNECTIONS;
use crate::client::{Client, Reply};
use crate::process::now_ns;

/// Clients that ask for a big part of the list at the same time.
const HERD: usize = 50;
/// Writes to a string that another client reads.
const WRITES: usize = 20;
/// Big replies that a client asks for and does not read.
const UNREAD_REPLIES: usize = 5;
/// How long expired keys may stay before the scenario fails.
const EXPIRY_MAX: Duration = Duration::from_secs(60);
/// The heavy phase begins so long before its keys expire, in milliseconds.
const BEFORE_DEADLINE_MS: u64 = 100;
/// Pause between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(10);

/// Something that a client does.
pub(super) struct Scenario {
    /// Its name in tables and in `--only`.
    pub name: &'static str,
    /// What happens, in a line.
    pub about: &'static str,
    /// What is loaded before.
    pub data: Data,
    /// What the client does.
    pub work: fn(&mut Heavy) -> Result<(), String>,
}

/// The client that does the heavy work.
pub(super) struct Heavy {
    /// Its connection.
    pub client: Client,
    /// Where others connect.
    pub port: u16,
    /// The size of the data.
    pub elements: usize,
    /// How long a client is slow for.
    pub patience: Duration,
    /// When the loaded keys expire, if they do.
    pub deadline_ms: Option<u64>,
    /// When the work began, by [`now_ns`].
    pub begin_ns: Option<u64>,
}

/// All scenarios.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "pop-1-percent",
        about: "RPOP with a count of a hundredth of the list",
        data: Data::List,
        work: |heavy| heavy.pop(100),
    },
    Scenario {
        name: "pop-10-percent",
        about: "RPOP with a count of a tenth of the list",
        data: Data::List,
        work: |heavy| heavy.pop(10),
    },
    Scenario {
        name: "pop-half",
        about: "LPOP with a count of half of the list",
        data: Data::List,
        work: |heavy| heavy.pop(2),
    },
    Scenario {
        name: "lrange-all",
        about: "LRANGE of the whole list",
        data: Data::List,
        work: |heavy| heavy.elements(&["LRANGE", BIG, "0", "-1"]),
    },
    Scenario {
        name: "lrange-herd",
        about: "50 clients ask for a tenth of the list at once",
        data: Data::List,
        work: herd,
    },
    Scenario {
        name: "slow-reader",
        about: "a client asks five times for the whole list and does not read",
        data: Data::List,
        work: slow_reader,
    },
    Scenario {
        name: "lrem-no-match",
        about: "LREM of an element that is not in the list",
        data: Data::List,
        work: |heavy| heavy.number(&["LREM", BIG, "0", "nothing"], 0),
    },
    Scenario {
        name: "ltrim",
        about: "LTRIM to eleven elements",
        data: Data::List,
        work: |heavy| heavy.call(&["LTRIM", BIG, "0", "10"]).map(drop),
    },
    Scenario {
        name: "del-list",
        about: "DEL of the list",
        data: Data::List,
        work: |heavy| heavy.number(&["DEL", BIG], 1),
    },
    Scenario {
        name: "set-over-list",
        about: "SET of a short string over the list",
        data: Data::List,
        work: |heavy| heavy.call(&["SET", BIG, "x"]).map(drop),
    },
    Scenario { name: "expire-list", about: "the list expires", data: Data::List, work: expire_big },
    Scenario {
        name: "smembers",
        about: "SMEMBERS of the set",
        data: Data::Set,
        work: |heavy| heavy.elements(&["SMEMBERS", BIG]),
    },
    Scenario {
        name: "sunionstore",
        about: "SUNIONSTORE of the set and another",
        data: Data::TwoSets,
        work: |heavy| {
            // A quarter of the second set, which is half as large, is not in the first.
            let members = heavy.elements - heavy.elements / 4 + heavy.elements / 2;
            heavy.number(&["SUNIONSTORE", "union", BIG, OTHER], members)
        },
    },
    Scenario {
        name: "del-set",
        about: "DEL of the set",
        data: Data::Set,
        work: |heavy| heavy.number(&["DEL", BIG], 1),
    },
    Scenario {
        name: "set-over-set",
        about: "SET of a short string over the set",
        data: Data::Set,
        work: |heavy| heavy.call(&["SET", BIG, "x"]).map(drop),
    },
    Scenario { name: "expire-set", about: "the set expires", data: Data::Set, work: expire_big },
    Scenario {
        name: "scan-count",
        about: "SCAN with a COUNT of all keys and a pattern that none has",
        data: Data::Keys,
        work: scan,
    },
    Scenario {
        name: "keys",
        about: "KEYS *",
        data: Data::Keys,
        work: |heavy| {
            let names = heavy.call(&["KEYS", "key:*"])?.elements;
            heavy.compare(names, heavy.elements)
        },
    },
    Scenario {
        name: "grow",
        about: "the database grows from nothing, by pipelined SETs",
        data: Data::Nothing,
        work: |heavy| {
            heavy.begin();
            keys(&mut heavy.client, heavy.elements)
        },
    },
    Scenario {
        name: "mass-expiry",
        about: "all keys expire in the same millisecond",
        data: Data::DoomedKeys,
        work: mass_expiry,
    },
    Scenario {
        name: "flushall",
        about: "FLUSHALL",
        data: Data::Keys,
        work: |heavy| heavy.call(&["FLUSHALL"]).map(drop),
    },
    Scenario {
        name: "wide-rpush",
        about: "one RPUSH with half as many arguments as elements",
        data: Data::Nothing,
        work: |heavy| heavy.wide(&["RPUSH", BIG], Value::Absent),
    },
    Scenario {
        name: "wide-sadd",
        about: "one SADD with as many",
        data: Data::Nothing,
        work: |heavy| heavy.wide(&["SADD", BIG], Value::Absent),
    },
    Scenario {
        name: "wide-mset",
        about: "one MSET of as many keys",
        data: Data::Nothing,
        work: |heavy| heavy.wide(&["MSET"], Value::Present),
    },
    Scenario {
        name: "wide-mget",
        about: "one MGET of as many keys",
        data: Data::WideKeys,
        work: |heavy| heavy.wide(&["MGET"], Value::Absent),
    },
    Scenario {
        name: "wide-del",
        about: "one DEL of as many keys",
        data: Data::WideKeys,
        work: |heavy| heavy.wide(&["DEL"], Value::Absent),
    },
    Scenario {
        name: "get-big-string",
        about: "GET of a string of 256 MiB",
        data: Data::Text,
        work: |heavy| {
            let bytes = heavy.call(&["GET", BIG])?.bytes;
            heavy.compare(bytes, text_bytes(heavy.elements))
        },
    },
    Scenario {
        name: "write-while-read",
        about: "APPEND and SETRANGE to the string while a client reads it slowly",
        data: Data::Text,
        work: write_while_read,
    },
    Scenario {
        name: "transaction-big",
        about: "MULTI, LRANGE of all, SMEMBERS, DEL of both, EXEC",
        data: Data::ListAndSet,
        work: transaction,
    },
    Scenario {
        name: "transaction-long",
        about: "MULTI, as many SETs as a tenth of the elements, EXEC",
        data: Data::Nothing,
        work: long_transaction,
    },
];

/// Whether every name in a wide command has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Present,
    Absent,
}

impl Heavy {
    /// The work begins now; what came before, such as making a request, is not a part of it.
    fn begin(&mut self) {
        self.begin_ns.get_or_insert_with(now_ns);
    }

    fn call(&mut self, words: &[&str]) -> Result<Reply, String> {
        self.begin();
        self.client.call(words)
    }

    /// A command that answers a number, which must be `expected`.
    fn number(&mut self, words: &[&str], expected: usize) -> Result<(), String> {
        let number = self.call(words)?.number()?;
        self.compare(number, expected)
    }

    /// A command that must answer all elements.
    fn elements(&mut self, words: &[&str]) -> Result<(), String> {
        let elements = self.call(words)?.elements;
        self.compare(elements, self.elements)
    }

    /// A reply that is cut short is not an answer.
    fn compare(&self, found: u64, expected: usize) -> Result<(), String> {
        if found == expected as u64 {
            return Ok(());
        }
        Err(format!("the reply tells {found} where {expected} was expected"))
    }

    /// Pops one element in `share`.
    fn pop(&mut self, share: usize) -> Result<(), String> {
        let (count, name) = (self.elements / share, if share == 2 { "LPOP" } else { "RPOP" });
        let popped = self.call(&[name, BIG, &count.to_string()])?.elements;
        self.compare(popped, count)
    }

    /// One command with half as many names as there are elements.
    fn wide(&mut self, begin: &[&str], value: Value) -> Result<(), String> {
        let mut words: Vec<String> = begin.iter().map(|word| (*word).to_owned()).collect();
        for number in 0..self.elements / 2 {
            words.push(wide_name(number));
            words.extend((value == Value::Present).then(|| "value".to_owned()));
        }
        let mut request = Vec::new();
        write_request(&mut request, &words);
        drop(words);
        self.begin();
        self.client.send(&request)?;
        let reply = self.client.read()?;
        match begin[0] {
            "MSET" => Ok(()),
            "MGET" => self.compare(reply.elements, self.elements / 2),
            _ => self.compare(reply.number()?, self.elements / 2),
        }
    }

    fn crowd(&self, count: usize) -> Result<Vec<Client>, String> {
        (0..count).map(|_| Client::connect(self.port)).collect()
    }
}

fn herd(heavy: &mut Heavy) -> Result<(), String> {
    let (mut crowd, last) = (heavy.crowd(HERD)?, heavy.elements / 10);
    let mut request = Vec::new();
    write_request(&mut request, &["LRANGE", BIG, "0", &(last - 1).to_string()]);
    heavy.begin();
    crowd.iter_mut().try_for_each(|client| client.send(&request))?;
    crowd.iter_mut().try_for_each(|client| {
        let elements = client.read()?.elements;
        heavy.compare(elements, last)
    })
}

fn slow_reader(heavy: &mut Heavy) -> Result<(), String> {
    let mut reader = Client::connect(heavy.port)?;
    let mut request = Vec::new();
    (0..UNREAD_REPLIES).for_each(|_| write_request(&mut request, &["LRANGE", BIG, "0", "-1"]));
    heavy.begin();
    reader.send(&request)?;
    std::thread::sleep(heavy.patience);
    Ok(())
}

fn expire_big(heavy: &mut Heavy) -> Result<(), String> {
    heavy.number(&["PEXPIRE", BIG, "20"], 1)?;
    let start = Instant::now();
    while heavy.client.call(&["DBSIZE"])?.number()? > CONNECTIONS as u64 {
        if start.elapsed() > EXPIRY_MAX {
            return Err(format!("the key is still there after {} s", EXPIRY_MAX.as_secs()));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn scan(heavy: &mut Heavy) -> Result<(), String> {
    let (count, mut cursor) = (heavy.elements.to_string(), "0".to_owned());
    loop {
        let reply = heavy.call(&["SCAN", &cursor, "MATCH", "none*", "COUNT", &count])?;
        // The cursor is the only element when no name matches.
        heavy.compare(reply.elements, 1)?;
        cursor = reply.text;
        if cursor == "0" {
            return Ok(());
        }
    }
}

fn mass_expiry(heavy: &mut Heavy) -> Result<(), String> {
    let deadline_ms = heavy.deadline_ms.unwrap_or(0);
    let wait_ms = deadline_ms.saturating_sub(unix_ms() + BEFORE_DEADLINE_MS);
    if wait_ms == 0 {
        return Err("the keys expired while they were loaded: the machine is too busy, or use \
                    fewer --elements"
            .to_owned());
    }
    std::thread::sleep(Duration::from_millis(wait_ms));
    heavy.begin();
    let start = Instant::now();
    // The keys of the probe stay.
    while heavy.client.call(&["DBSIZE"])?.number()? > CONNECTIONS as u64 {
        if start.elapsed() > EXPIRY_MAX {
            return Err(format!("expired keys are there after {} s", EXPIRY_MAX.as_secs()));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn write_while_read(heavy: &mut Heavy) -> Result<(), String> {
    let mut reader = Client::connect(heavy.port)?;
    let mut request = Vec::new();
    write_request(&mut request, &["GET", BIG]);
    let (mut bytes, step) = (text_bytes(heavy.elements), text_bytes(heavy.elements) / WRITES);
    heavy.begin();
    reader.send(&request)?;
    std::thread::sleep(heavy.patience / 5);
    for write in 0..WRITES {
        heavy.number(&["SETRANGE", BIG, &(write * step).to_string(), "new"], bytes)?;
        bytes += "tail".len();
        heavy.number(&["APPEND", BIG, "tail"], bytes)?;
    }
    Ok(())
}

fn transaction(heavy: &mut Heavy) -> Result<(), String> {
    heavy.begin();
    for words in
        [&["MULTI"][..], &["LRANGE", BIG, "0", "-1"], &["SMEMBERS", OTHER], &["DEL", BIG, OTHER]]
    {
        heavy.call(words)?;
    }
    let elements = heavy.call(&["EXEC"])?.elements;
    heavy.compare(elements, heavy.elements * 2 + 1)
}

fn long_transaction(heavy: &mut Heavy) -> Result<(), String> {
    let count = heavy.elements / 10;
    heavy.begin();
    heavy.call(&["MULTI"])?;
    keys(&mut heavy.client, count)?;
    let replies = heavy.call(&["EXEC"])?.elements;
    heavy.compare(replies, count)
}
