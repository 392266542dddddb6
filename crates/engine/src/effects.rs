//! The one outlet for effects: every change of data leaves the engine here, in one order.
//!
//! A write takes its sequence number while it holds the latches of its keys, so two writes to one
//! key are numbered in the order in which they happened. The record itself may be put into the
//! worker's part of the outlet a little later; [`Merger`] waits until the numbers are gap-free. While
//! nobody listens, effects are only counted, by each worker for itself.
//!
//! A transaction of several steps is one record, numbered at its last step: [`collected`].

pub mod collected;

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;
use resp::{Args, Protocol, Request, Writer};

use self::collected::Collected;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a record does, as one or several commands that a Redis server understands.
pub enum Body {
    /// One command, encoded.
    Command(Box<[u8]>),
    /// Commands that apply together.
    Transaction(Collected),
    /// The first words of the client's command and others, too long to be copied.
    Request {
        /// What the client sent.
        request: Request,
        /// Which of its words count.
        words: Words,
        /// The words behind them.
        more: Vec<Box<[u8]>>,
    },
    /// The first words of the client's command and others; replaced by one of the above before it
    /// is published.
    Sent {
        /// Which of its words count.
        words: Words,
        /// The words behind them.
        more: Vec<Box<[u8]>>,
    },
}

/// Which words of a client's command an effect begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The first ones, this many.
    pub count: usize,
    /// But not this one.
    pub without: Option<usize>,
    /// And with this name instead of the client's.
    pub name: Option<&'static str>,
}

impl From<usize> for Words {
    fn from(count: usize) -> Words {
        Words { count, without: None, name: None }
    }
}

/// Requests above this size are moved into their effect, not copied.
const COPIED_BYTES: usize = 16 * 1024;

impl Body {
    /// Replaces a reference to the words of a client's command by a copy of them.
    #[inline]
    pub(crate) fn copy(&mut self, args: Args<'_>) {
        if let Body::Sent { words, more } = self {
            let mut bytes = Vec::new();
            encode_args(args, *words, more, &mut bytes);
            *self = Body::Command(bytes.into_boxed_slice());
        }
    }

    /// The same; a long request moves.
    pub(crate) fn take(&mut self, request: &mut Option<Request>) {
        let Body::Sent { words, more } = self else { return };
        let Some(sent) = request.take() else { return };
        if sent.args().total_bytes() > COPIED_BYTES {
            let more = std::mem::take(more);
            *self = Body::Request { request: sent, words: *words, more };
        } else {
            self.copy(sent.args());
            *request = Some(sent);
        }
    }
}

/// One numbered effect.
pub struct Record {
    /// The place in the order. Starts at 1, without gaps.
    pub sequence: u64,
    /// The index of the database that the command ran in.
    pub database: u8,
    /// What to apply.
    pub body: Body,
}

/// Numbers effects and hands them over from the workers to the merger.
pub struct Outlet {
    /// The newest number that was given to an effect while somebody listened.
    sequence: CachePadded<AtomicU64>,
    attached: AtomicBool,
    workers: Box<[CachePadded<WorkerOutlet>]>,
}

/// One worker's part of the outlet.
#[derive(Default)]
struct WorkerOutlet {
    records: Mutex<Vec<Record>>,
    /// Its effects while nobody listens: counted, because nobody needs their order.
    unheard: AtomicU64,
}

impl Outlet {
    /// An outlet for `workers` workers, with nobody listening.
    pub fn new(workers: usize) -> Outlet {
        Outlet {
            sequence: CachePadded::new(AtomicU64::new(0)),
            attached: AtomicBool::new(false),
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Whether records must be built.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// The number of the newest effect: exact when nobody writes.
    pub fn sequence(&self) -> u64 {
        let unheard = self.workers.iter().map(|one| one.unheard.load(Ordering::Relaxed));
        self.sequence.load(Ordering::Relaxed) + unheard.sum::<u64>()
    }

    /// The next number. The caller holds the latches of what it changed, or the gate. It means
    /// nothing while nobody listens: then the effect is only counted.
    #[inline]
    pub(crate) fn next(&self, worker: usize) -> u64 {
        if !self.is_attached() {
            // Nobody else writes it.
            let unheard = &self.workers[worker].unheard;
            unheard.store(unheard.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return 0;
        }
        #[cfg(not(all(shuttle, planted_bug = "effects")))]
        return self.take_number();
        #[cfg(all(shuttle, planted_bug = "effects"))]
        return 0;
    }

    fn take_number(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Hands numbered records over.
    pub(crate) fn publish(&self, worker: usize, records: &mut Vec<Record>) {
        #[cfg(all(shuttle, planted_bug = "effects"))]
        records.iter_mut().for_each(|record| record.sequence = self.take_number());
        self.workers[worker].records.lock().append(records);
    }

    /// Starts to listen. Called before the first command, or under the gate: no number may have
    /// been taken whose record will be missing.
    pub fn attach(&self) -> Merger {
        self.sequence.store(self.sequence(), Ordering::Relaxed);
        self.workers.iter().for_each(|one| one.unheard.store(0, Ordering::Relaxed));
        self.attached.store(true, Ordering::Relaxed);
        Merger { next: self.sequence() + 1, waiting: BTreeMap::new(), selected: None }
    }
}

/// Puts records into their order and encodes them as one stream of commands.
pub struct Merger {
    next: u64,
    waiting: BTreeMap<u64, Record>,
    selected: Option<u8>,
}

impl Merger {
    /// Appends to `out` what can be ordered now. Returns the number of records that it appended.
    pub fn drain(&mut self, outlet: &Outlet, out: &mut Vec<u8>) -> usize {
        for one in &outlet.workers {
            let records = std::mem::take(&mut *one.records.lock());
            self.waiting.extend(records.into_iter().map(|record| (record.sequence, record)));
        }
        let mut appended = 0;
        while let Some(record) = self.waiting.remove(&self.next) {
            self.encode(&record, out);
            self.next += 1;
            appended += 1;
        }
        appended
    }

    /// Records that wait for one with a smaller number. Zero when the server is idle.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn encode(&mut self, record: &Record, out: &mut Vec<u8>) {
        match &record.body {
            Body::Transaction(commands) => self.encode_transaction(commands, out),
            body => self.encode_command(record.database, body, out),
        }
    }

    fn encode_command(&mut self, database: u8, body: &Body, out: &mut Vec<u8>) {
        self.select(database, out);
        match body {
            Body::Command(bytes) => out.extend_from_slice(bytes),
            Body::Request { request, words, more } => {
                encode_args(request.args(), *words, more, out);
            }
            Body::Transaction(_) => unreachable!("a transaction is not part of another"),
            Body::Sent { .. } => unreachable!("replaced before it was published"),
        }
    }

    fn encode_transaction(&mut self, commands: &Collected, out: &mut Vec<u8>) {
        if let Some(only) = commands.only() {
            return self.encode_command(only.database, &only.body, out);
        }
        let Some(first) = commands.parts().next() else { return };
        self.select(first.database, out);
        out.extend_from_slice(&command(&[b"MULTI"]));
        for part in commands.parts() {
            self.encode_command(part.database, &part.body, out);
        }
        out.extend_from_slice(&command(&[b"EXEC"]));
    }

    fn select(&mut self, database: u8, out: &mut Vec<u8>) {
        if self.selected != Some(database) {
            self.selected = Some(database);
            let mut digits = itoa::Buffer::new();
            out.extend_from_slice(&command(&[b"SELECT", digits.format(database).as_bytes()]));
        }
    }
}

/// A command in the form in which records keep it.
pub fn command(words: &[&[u8]]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(16 + words.iter().map(|word| word.len() + 16).sum::<usize>());
    let mut writer = Writer::new(&mut out, Protocol::Resp2);
    writer.array(words.len() as u64);
    for word in words {
        writer.bulk(word);
    }
    out.into_boxed_slice()
}

/// Appends words of a client's command, and `more` behind them, to `out`.
pub fn encode_args(args: Args<'_>, words: Words, more: &[Box<[u8]>], out: &mut Vec<u8>) {
    let count = words.count - usize::from(words.without.is_some()) + more.len();
    Writer::new(out, Protocol::Resp2).array(count as u64);
    for index in (0..words.count).filter(|&index| words.without != Some(index)) {
        match (words.name.filter(|_| index == 0), args.chunked(index)) {
            (Some(name), _) => Writer::new(out, Protocol::Resp2).bulk(name.as_bytes()),
            (None, None) => Writer::new(out, Protocol::Resp2).bulk(args.get(index)),
            (None, Some(chunked)) => {
                Writer::new(out, Protocol::Resp2).bulk_header(chunked.len() as u64);
                for chunk in chunked.chunks() {
                    out.extend_from_slice(chunk);
                }
                out.extend_from_slice(b"\r\n");
            }
        }
    }
    for word in more {
        Writer::new(out, Protocol::Resp2).bulk(word);
    }
}
