//! A worker's loop without sockets: it makes the calls of the server's loop in the server's order.
//!
//! One turn: messages, at most one new command of each client, a piece of each reply, steps of long
//! commands, closing. Then it sleeps unless there is work, as the server's loop does in its poll.

use std::collections::VecDeque;

use engine::control::Message;
use engine::execution::engine::Engine;
use engine::execution::expiry::Round;
use engine::execution::session::Session;
use engine::execution::task::Advanced;
use engine::execution::worker::{Incoming, Worker};
use engine::keyspace::locks::Address;
use resp::reply::Reply;
use resp::{Args, Limits, Parser, Progress, Scratch};
use shuttle::rand::Rng;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use super::world::{Named, Signal};
use super::{now_ms, set_now_ms};

/// Microseconds that a long command gets in a turn: as many steps as looks at the clock fit.
const TASK_US: u64 = 30;

/// Microseconds of a turn for expired keys.
const EXPIRY_US: u64 = 40;

/// Requests that a client sends at a time, at most.
const PIPELINED_MAX: usize = 3;

/// Arguments that one call of the parser takes: all.
const ARGUMENTS_AT_ONCE: usize = 1 << 20;

const LIMITS: Limits = Limits { bulk_bytes_max: u64::MAX, unauthenticated: false };

/// What one client has received.
pub(crate) type Replies = Vec<Reply>;

/// What a client does next.
enum Action {
    /// Sends a command and waits for nothing.
    Send(Vec<Vec<u8>>),
    /// Goes away, whatever is running for it.
    Leave,
    /// Lets time pass, in milliseconds.
    Pass(i64),
}

/// A client: what it will do, and what it has received.
#[derive(Default)]
pub(crate) struct Client {
    actions: VecDeque<Action>,
}

impl Client {
    /// A client that sends commands, one a line, the next when the last is finished.
    pub(crate) fn new<L: AsRef<str>>(lines: &[L]) -> Client {
        lines.iter().fold(Client::default(), |client, line| client.then(line.as_ref()))
    }

    /// A client that sends what a stream of commands says.
    pub(crate) fn of_stream(stream: &[u8]) -> Client {
        let mut client = Client::default();
        let (mut parser, mut scratch, mut rest) = (Parser::new(), Scratch::new(), stream);
        while !rest.is_empty() {
            let (count, progress) = parser.parse(rest, &mut scratch, &LIMITS, ARGUMENTS_AT_ONCE);
            let words = match progress {
                Progress::Request => all_words(scratch.args(rest)),
                Progress::LargeRequest(request) => all_words(request.args()),
                other => panic!("{other:?}"),
            };
            client.actions.push_back(Action::Send(words));
            rest = &rest[count..];
        }
        client
    }

    /// Then it sends a command.
    pub(crate) fn then(mut self, line: &str) -> Client {
        let words = line.split_whitespace().map(|word| word.as_bytes().to_vec());
        self.actions.push_back(Action::Send(words.collect()));
        self
    }

    /// Then it lets time pass, for everybody.
    pub(crate) fn passes(mut self, ms: i64) -> Client {
        self.actions.push_back(Action::Pass(ms));
        self
    }

    /// A request, and as many behind it as the client sends without waiting.
    fn pipelined(&mut self, first: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
        let count = shuttle::rand::thread_rng().gen_range(1..=PIPELINED_MAX);
        let mut requests = vec![first];
        while requests.len() < count
            && let Some(Action::Send(_)) = self.actions.front()
            && let Some(Action::Send(words)) = self.actions.pop_front()
        {
            requests.push(words);
        }
        requests
    }

    /// Then it goes away at once, while its last command may be parked or half done.
    pub(crate) fn leaves(mut self) -> Client {
        self.actions.push_back(Action::Leave);
        self
    }
}

/// A connection without a socket.
struct Connection {
    session: Session,
    client: Client,
    received: Vec<u8>,
    /// The client has not left.
    present: bool,
    /// It is in the queue of tasks.
    queued: bool,
    closed: bool,
}

impl Connection {
    fn next_is_due(&self) -> bool {
        let is_idle = self.session.running.is_none();
        match self.client.actions.front() {
            None => false,
            Some(Action::Leave) => true,
            Some(Action::Send(_) | Action::Pass(_)) => is_idle,
        }
    }

    fn replies(&self) -> Replies {
        let (mut replies, mut rest) = (Vec::new(), &self.received[..]);
        while let Some((reply, used)) = Reply::parse(rest).unwrap() {
            replies.push(reply);
            rest = &rest[used..];
        }
        assert!(rest.is_empty() || !self.present, "a reply is incomplete");
        replies
    }

    fn is_done(&self) -> bool {
        let has_said_all = !self.present || self.client.actions.is_empty();
        has_said_all && self.session.running.is_none() && self.session.output.is_empty()
    }
}

/// A worker and its clients.
pub(crate) struct Node {
    worker: Worker,
    signal: Signal,
    named: Named,
    connections: Vec<Connection>,
    tasks: VecDeque<usize>,
    round: Round,
    /// It has no clients any more, and has said so.
    is_idle: bool,
    /// Workers with clients, and how to wake all.
    among: Option<(Arc<AtomicUsize>, Box<[Signal]>)>,
}

impl Node {
    /// Worker `id` with one connection for each client.
    pub(crate) fn new(
        engine: Arc<Engine>,
        id: usize,
        signal: Signal,
        named: Named,
        clients: Vec<Client>,
    ) -> Node {
        let connect = |client| {
            let info = engine.registry.connect(id, None, None, now_ms());
            let address = Address { worker: id, session: info.id };
            let session = Session::new(address, info);
            let received = Vec::new();
            Connection { session, client, received, present: true, queued: false, closed: false }
        };
        let connections = clients.into_iter().map(connect).collect();
        let worker = Worker::new(engine, id);
        let (tasks, round) = (VecDeque::new(), Round::default());
        Node { worker, signal, named, connections, tasks, round, is_idle: false, among: None }
    }

    /// The same; it receives messages until no other worker has clients any more either.
    pub(crate) fn among(self, busy: Arc<AtomicUsize>, all: Box<[Signal]>) -> Node {
        Node { among: Some((busy, all)), ..self }
    }

    /// Turns until every client is finished. Returns what each has received.
    pub(crate) fn run(mut self) -> Vec<Replies> {
        loop {
            self.worker.begin_turn();
            self.receive();
            (0..self.connections.len()).for_each(|at| self.serve(at));
            (0..self.connections.len()).for_each(|at| self.flush(at));
            self.advance();
            let expiring = self.worker.expire_some(&mut self.round, EXPIRY_US);
            (0..self.connections.len()).for_each(|at| self.close(at));
            self.worker.end_turn();
            if self.is_finished() {
                break;
            }
            if self.worker.next_due_ms().is_some() {
                // It would sleep for a time.
                set_now_ms(now_ms() + 1);
                thread::yield_now();
            } else if !self.has_work() && !expiring {
                self.signal.wait();
            }
        }
        self.connections.iter().map(Connection::replies).collect()
    }

    fn is_finished(&mut self) -> bool {
        if !self.connections.iter().all(|connection| connection.closed) {
            return false;
        }
        let Some((busy, all)) = &self.among else { return true };
        if !std::mem::replace(&mut self.is_idle, true) && busy.fetch_sub(1, Ordering::SeqCst) == 1 {
            all.iter().for_each(Signal::set);
        }
        busy.load(Ordering::SeqCst) == 0
    }

    fn has_work(&self) -> bool {
        !self.tasks.is_empty()
            || self.connections.iter().any(|connection| {
                !connection.closed
                    && (connection.next_is_due()
                        || !connection.session.output.is_empty()
                        || connection.is_done())
            })
    }

    fn receive(&mut self) {
        while let Some(message) = self.worker.engine.mailboxes.receive(self.worker.id) {
            match message {
                Message::Resume(session) => self.resume(session),
                Message::Kill(session) => self.kill(session),
                Message::Barrier(barrier) => self.worker.acknowledge(barrier),
                Message::Shutdown => panic!("no model uses it"),
            }
        }
        while let Some(session) = self.worker.due() {
            self.resume(session);
        }
    }

    fn find(&self, session: u64) -> Option<usize> {
        self.connections.iter().position(|one| one.session.address.session == session)
    }

    fn resume(&mut self, session: u64) {
        if let Some(at) = self.find(session) {
            self.enqueue_task(at);
        }
    }

    fn kill(&mut self, session: u64) {
        if let Some(at) = self.find(session) {
            self.lose(at);
        }
    }

    /// The client is gone.
    fn lose(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if std::mem::replace(&mut connection.present, false) {
            self.worker.abandon(&mut connection.session);
            self.enqueue_task(at);
        }
    }

    fn enqueue_task(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if connection.session.running.is_some() && !connection.queued {
            connection.queued = true;
            self.tasks.push_back(at);
        }
    }

    fn serve(&mut self, at: usize) {
        let Node { worker, named, connections, .. } = self;
        let connection = &mut connections[at];
        if !connection.present || !connection.next_is_due() {
            return;
        }
        match connection.client.actions.pop_front() {
            Some(Action::Send(words)) => {
                let requests = connection.client.pipelined(words);
                let shard = |word: &Vec<u8>| worker.engine.keyspace.key(word).shard;
                named.lock().unwrap().extend(requests.iter().flatten().map(shard));
                let begun = execute(worker, &mut connection.session, &requests);
                let rest = requests.into_iter().skip(begun).map(Action::Send);
                rest.rev().for_each(|action| connection.client.actions.push_front(action));
            }
            // A turn sooner or later: the schedule decides.
            Some(Action::Leave) if shuttle::rand::thread_rng().gen_bool(0.5) => {
                connection.client.actions.push_front(Action::Leave);
            }
            Some(Action::Leave) => return self.lose(at),
            Some(Action::Pass(ms)) => set_now_ms(now_ms() + ms),
            None => {}
        }
        self.enqueue_task(at);
    }

    /// Moves one piece of the replies to the client.
    fn flush(&mut self, at: usize) {
        let Connection { session, received, .. } = &mut self.connections[at];
        let bytes = session.output.front(&mut self.worker.garbage);
        received.extend_from_slice(bytes);
        let count = bytes.len();
        if count > 0 {
            session.output.advance(count);
        }
    }

    fn advance(&mut self) {
        for _ in 0..self.tasks.len() {
            let Some(at) = self.tasks.pop_front() else { break };
            let connection = &mut self.connections[at];
            connection.queued = false;
            let advanced = self.worker.advance(&mut connection.session, TASK_US);
            if !connection.present {
                connection.session.output.clear(&mut self.worker.garbage);
            }
            if advanced == Advanced::Again {
                self.enqueue_task(at);
            }
        }
    }

    fn close(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if connection.closed || connection.queued || !connection.is_done() {
            return;
        }
        self.worker.abandon(&mut connection.session);
        if self.worker.end_some_watches(&mut connection.session) {
            connection.closed = true;
            self.worker.engine.registry.disconnect(connection.session.address.session);
        }
    }
}

/// Sends requests through the parser, as the server does. Returns how many were begun.
fn execute(worker: &mut Worker, session: &mut Session, requests: &[Vec<Vec<u8>>]) -> usize {
    let mut scratches = requests.iter().map(|_| Scratch::new()).collect::<Vec<_>>();
    let mut parsed = Vec::new();
    for (words, scratch) in requests.iter().zip(&mut scratches) {
        let mut bytes = Vec::new();
        resp::write_request(&mut bytes, words);
        let (count, progress) = Parser::new().parse(&bytes, scratch, &LIMITS, ARGUMENTS_AT_ONCE);
        assert_eq!(count, bytes.len(), "one request");
        match progress {
            Progress::Request => parsed.push(bytes),
            Progress::LargeRequest(request) if parsed.is_empty() => {
                worker.execute(session, Incoming::Owned(request));
                return 1;
            }
            Progress::LargeRequest(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let args = parsed.iter().zip(&scratches).map(|(bytes, scratch)| scratch.args(bytes));
    let deadline = worker.last_ticks().wrapping_add(i64::MAX as u64);
    worker.execute_batch(session, args, deadline)
}

fn all_words(args: Args<'_>) -> Vec<Vec<u8>> {
    let word = |index| match args.chunked(index) {
        None => args.get(index).to_vec(),
        Some(chunked) => chunked.chunks().collect::<Vec<_>>().concat(),
    };
    (0..args.len()).map(word).collect()
}
