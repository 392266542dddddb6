//! Hot path. A worker's thread: one turn after another.
//!
//! A turn is bounded as a whole. Its parts have shares, in microseconds, and what does not fit into a part's share waits at the end of that part's queue for the next turn:
//!
//! 1. messages from other workers
//! 2. new connections
//! 3. commands
//! 4. replies that the sockets did not take at once, or that are encoded from snapshots
//! 5. steps of long commands
//! 6. expiry
//! 7. closing
//!
//! Then the garbage is handed over and the reserve of nodes refilled.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use arrayvec::ArrayVec;
use engine::control::Message;
use engine::execution::batch::LOOK_AHEAD;
use engine::execution::engine::Engine;
use engine::execution::expiry::Round;
use engine::execution::session::Session;
use engine::execution::session::registry::ClientInfo;
use engine::execution::task::Advanced;
use engine::execution::worker::{Incoming, Worker};
use engine::keyspace::locks::Address;
use engine::settings::OutputLimit;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use resp::{INPUT_BYTES_MAX, Limits, Parser, Progress, Scratch};
use rustix::thread::set_current_timer_slack;
use slab::Slab;

use crate::activity::{Activity, NAP};
use crate::allocator;
use crate::connection::{Connection, ReadOutcome};
use crate::limits::{self, SoftLimits, Verdict};
use crate::pacer::Pacers;

/// Microseconds of a turn's parts. They are measured, not counted: what a call of the operating
/// system or the first touch of a page costs, no count of work knows. What is counted, and asserted,
/// is each hold and each step.
mod share {
    /// Commands that clients have sent.
    pub(super) const COMMANDS: u64 = 120;
    /// Commands of one connection before the next one is served.
    pub(super) const ONE_CONNECTION: u64 = 60;
    /// Replies beyond what a socket took at once.
    pub(super) const REPLIES: u64 = 60;
    /// Steps of long commands.
    pub(super) const TASKS: u64 = 80;
    /// Steps of one long command.
    pub(super) const ONE_TASK: u64 = 30;
    /// Expired keys.
    pub(super) const EXPIRY: u64 = 40;
}

/// Messages that a turn takes.
const MESSAGES: usize = 256;

/// Sockets that a turn closes because another client asks for it.
const KILLS: usize = 8;

/// Connections that a turn accepts, and closes.
const CONNECTIONS: usize = 16;

/// Bytes that one read asks for.
const READ_BYTES: usize = 16 * 1024;

/// Arguments of a long command that one call of the parser takes.
const ARGUMENTS_AT_ONCE: usize = 1024;

/// How long a worker sleeps when nothing happens: active expiry looks this often.
const IDLE: Duration = Duration::from_millis(10);

/// How long a single worker stays awake when it has nothing to do, microseconds.
const AWAKE_US: u64 = 4;

/// The shortest sleep: what the system's call counts in.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// Connections whose replies wait for each other, at most.
const SERVED: usize = 16;

/// Bytes beyond which a connection's replies are written at once: buffers in use are kept small.
const SERVED_BYTES: u64 = 8 * 1024;

/// How long a reply may wait for others to be written together, microseconds.
const SERVED_US: u64 = 50;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

/// Connections on their way to the worker that will serve them.
#[derive(Default)]
pub(crate) struct Inbox {
    sockets: std::sync::Mutex<Vec<(TcpStream, Arc<ClientInfo>)>>,
    /// Connections that the worker has or will have.
    load: AtomicUsize,
}

/// The ranges of the requests that are parsed ahead.
type Scratches = [Scratch; LOOK_AHEAD];

/// A worker's thread and its connections.
pub(crate) struct Loop {
    worker: Worker,
    poll: Poll,
    listeners: Vec<TcpListener>,
    inboxes: Arc<[Inbox]>,
    pacers: Pacers,
    connections: Slab<Connection>,
    by_session: HashMap<u64, usize>,
    commands: VecDeque<usize>,
    replies: VecDeque<usize>,
    tasks: VecDeque<usize>,
    closing: VecDeque<usize>,
    soft_limits: SoftLimits,
    scratch: Scratches,
    input: Box<[u8]>,
    /// Lent to connections that have replies and no buffer of their own.
    spare: Vec<Vec<u8>>,
    /// Connections whose replies will be written together.
    served: ArrayVec<usize, SERVED>,
    /// When the first of them will have waited long enough, ticks.
    served_until: u64,
    activity: Activity,
    round: Round,
    expiring: bool,
    /// There may be more messages than a turn takes.
    receiving: bool,
    accepting: bool,
    /// Something in this turn was longer than its share.
    long: bool,
    ending: bool,
}

impl Loop {
    /// The loop of worker `id`. The first worker has the listening sockets.
    ///
    /// # Errors
    /// The system refuses to poll the listeners.
    pub(crate) fn new(
        engine: Arc<Engine>,
        id: usize,
        poll: Poll,
        mut listeners: Vec<TcpListener>,
        inboxes: Arc<[Inbox]>,
        pacers: Pacers,
    ) -> io::Result<Loop> {
        for listener in &mut listeners {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(Loop {
            worker: Worker::new(engine, id),
            poll,
            accepting: !listeners.is_empty(),
            listeners,
            inboxes,
            pacers,
            connections: Slab::new(),
            by_session: HashMap::new(),
            commands: VecDeque::new(),
            replies: VecDeque::new(),
            tasks: VecDeque::new(),
            closing: VecDeque::new(),
            soft_limits: SoftLimits::default(),
            scratch: std::array::from_fn(|_| Scratch::new()),
            input: vec![0; INPUT_BYTES_MAX + READ_BYTES].into_boxed_slice(),
            spare: Vec::with_capacity(SERVED),
            served: ArrayVec::new(),
            served_until: 0,
            activity: Activity::default(),
            round: Round::default(),
            expiring: false,
            receiving: false,
            long: false,
            ending: false,
        })
    }

    /// The token of a worker's waker.
    pub(crate) const WAKER: Token = WAKER;

    /// Serves until it is told to end.
    pub(crate) fn run(mut self) {
        // Naps would otherwise end up to 50 us late. A failure costs no more than that.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Events::with_capacity(1024);
        while !self.ending {
            if let Err(error) = self.wait(&mut events) {
                eprintln!("a worker cannot poll its sockets and stops: {error}");
                return;
            }
            self.worker.begin_turn();
            for event in &events {
                self.notice(event);
            }
            self.turn();
            self.worker.end_turn();
            if std::mem::take(&mut self.long) {
                self.pacers.note_long_work();
            }
            allocator::refill_reserve();
        }
    }

    /// Waits for events, awake for a moment and then asleep: a client that sends during that moment
    /// is spared the work of waking this thread.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let deadline = self.deadline(AWAKE_US);
        // Several workers share the requests: each of them has much less of a chance.
        let stays_awake = self.inboxes.len() == 1 || self.has_work();
        let mut timeout = if stays_awake { Duration::ZERO } else { self.rest() };
        loop {
            match self.poll.poll(events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ if !events.is_empty() || self.has_work() || !timeout.is_zero() => return Ok(()),
                _ if self.is_past(deadline) => timeout = self.rest(),
                _ => {}
            }
        }
    }

    /// There is nothing to do: takes a nap, or returns how long to wait for an event.
    fn rest(&mut self) -> Duration {
        if self.activity.idle() {
            thread::sleep(NAP);
            return Duration::ZERO;
        }
        self.sleep().max(SLEEP_MIN)
    }

    fn has_work(&self) -> bool {
        !(self.commands.is_empty()
            && self.replies.is_empty()
            && self.tasks.is_empty()
            && self.closing.is_empty())
            || self.receiving
            || self.accepting
            || self.expiring
    }

    fn sleep(&self) -> Duration {
        let due_ms = self.worker.next_due_ms().map_or(i64::MAX, |at| at - self.worker.now_ms);
        IDLE.min(Duration::from_millis(due_ms.max(0) as u64))
    }

    fn notice(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accepting = true,
            WAKER => {}
            Token(token) => {
                let at = token - FIRST_CONNECTION;
                let Some(connection) = self.connections.get_mut(at) else { return };
                connection.readable |= event.is_readable() || event.is_read_closed();
                connection.writable |= event.is_writable();
                self.enqueue(at);
            }
        }
    }

    /// Puts a connection into the queues of whatever it can do now.
    fn enqueue(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.can_execute() && !connection.queued.commands {
            connection.queued.commands = true;
            self.commands.push_back(at);
        }
        if connection.can_flush() && !connection.queued.replies {
            connection.queued.replies = true;
            self.replies.push_back(at);
        }
        let session = &connection.session;
        let is_done = session.running.is_none()
            && (connection.socket.is_none() || (session.closing && session.output.is_empty()));
        if is_done && !connection.queued.closing {
            connection.queued.closing = true;
            self.closing.push_back(at);
        }
    }

    fn turn(&mut self) {
        self.receive();
        self.accept();
        self.execute();
        self.reply();
        self.advance();
        self.disconnect_overdue();
        self.expiring = self.worker.expire_some(&mut self.round, share::EXPIRY);
        self.long |= self.expiring;
        self.close();
    }

    fn receive(&mut self) {
        let mut killed = 0;
        self.receiving = true;
        for _ in 0..MESSAGES {
            let Some(message) = self.worker.engine.mailboxes.receive(self.worker.id) else {
                self.receiving = false;
                break;
            };
            match message {
                Message::Resume(session) => self.resume(session),
                Message::Kill(session) => {
                    self.kill(session);
                    killed += 1;
                    if killed == KILLS {
                        break;
                    }
                }
                Message::Barrier(barrier) => self.worker.acknowledge(barrier),
                Message::Shutdown => self.ending = true,
            }
        }
        while let Some(session) = self.worker.due() {
            self.resume(session);
        }
    }

    fn resume(&mut self, session: u64) {
        let Some(&at) = self.by_session.get(&session) else { return };
        self.enqueue_task(at);
    }

    fn enqueue_task(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.session.running.is_some() && !connection.queued.tasks {
            connection.queued.tasks = true;
            self.tasks.push_back(at);
        }
    }

    fn kill(&mut self, session: u64) {
        if let Some(&at) = self.by_session.get(&session) {
            self.lose(at);
        }
    }

    /// The client is gone: its socket closes now, the rest when its command is finished.
    fn lose(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Some(mut socket) = connection.socket.take() else { return };
        // It fails only for a socket that is not registered.
        let _ = self.poll.registry().deregister(&mut socket);
        // Before the client can see that it is closed: then nobody finds it any more.
        self.worker.engine.registry.disconnect(connection.session.info.id);
        connection.unparsed = Vec::new();
        connection.unfinished = false;
        if let Some(request) = connection.parser.abandon() {
            self.worker.free_request(request);
        }
        self.worker.abandon(&mut connection.session);
        self.enqueue_task(at);
        self.enqueue(at);
    }

    fn accept(&mut self) {
        for _ in 0..CONNECTIONS {
            if !self.accepting {
                break;
            }
            match self.accept_one() {
                Some(socket) => self.distribute(socket),
                None => self.accepting = false,
            }
        }
        let inbox = &self.inboxes[self.worker.id];
        let mut sockets = match inbox.sockets.lock() {
            Ok(mut sockets) => std::mem::take(&mut *sockets),
            Err(_) => return,
        };
        sockets.drain(..).for_each(|(socket, info)| self.adopt(socket, info));
    }

    fn accept_one(&mut self) -> Option<TcpStream> {
        self.listeners.iter().find_map(|listener| match listener.accept() {
            Ok((socket, _)) => Some(socket),
            Err(_) => None,
        })
    }

    /// Numbers a connection, in the order in which they came, and gives it to the worker that has
    /// the fewest.
    fn distribute(&mut self, socket: TcpStream) {
        let load = |inbox: &Inbox| inbox.load.load(Ordering::Relaxed);
        let least = (0..self.inboxes.len()).min_by_key(|&id| load(&self.inboxes[id])).unwrap_or(0);
        self.inboxes[least].load.fetch_add(1, Ordering::Relaxed);
        let (peer, local) = (socket.peer_addr().ok(), socket.local_addr().ok());
        let registry = &self.worker.engine.registry;
        let info = registry.connect(least, peer, local, self.worker.now_ms);
        if least == self.worker.id {
            return self.adopt(socket, info);
        }
        if let Ok(mut sockets) = self.inboxes[least].sockets.lock() {
            sockets.push((socket, info));
        }
        // Any message wakes it; this one means nothing to a session that does not exist.
        self.worker.engine.mailboxes.send(least, Message::Resume(0));
    }

    fn adopt(&mut self, socket: TcpStream, info: Arc<ClientInfo>) {
        // Replies are written whole; waiting for more would only delay them.
        let _ = socket.set_nodelay(true);
        let (worker, id) = (self.worker.id, info.id);
        let is_killed = info.killed.load(Ordering::Relaxed);
        let session = Session::new(Address { worker, session: id }, info);
        let at = self.connections.insert(Connection::new(socket, session));
        self.by_session.insert(id, at);
        self.worker.stats().accepted.add(1);
        self.worker.stats().connections.add(1);
        if is_killed || self.register(at).is_err() {
            return self.lose(at);
        }
        self.enqueue(at);
    }

    fn register(&mut self, at: usize) -> io::Result<()> {
        let registry: &Registry = self.poll.registry();
        let Some(socket) = self.connections[at].socket.as_mut() else { return Ok(()) };
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(socket, Token(at + FIRST_CONNECTION), interest)
    }

    fn execute(&mut self) {
        let deadline = self.deadline(share::COMMANDS);
        for _ in 0..self.commands.len() {
            let Some(at) = self.commands.pop_front() else { break };
            self.connections[at].queued.commands = false;
            self.serve(at);
            if self.is_past(deadline) {
                break;
            }
        }
        self.flush_served();
    }

    /// Reads, parses and executes one connection's share, and writes the replies.
    fn serve(&mut self, at: usize) {
        let deadline = self.deadline(share::ONE_CONNECTION);
        let Loop { worker, connections, scratch, input, spare, .. } = self;
        let connection = &mut connections[at];
        if !connection.can_execute() {
            return;
        }
        let mut end = connection.unparsed.len();
        input[..end].copy_from_slice(&connection.unparsed);
        connection.unparsed.clear();
        if !connection.unfinished {
            match connection.read(&mut input[end..end + READ_BYTES]) {
                ReadOutcome::Bytes(count) => {
                    worker.stats().bytes_in.add(count as u64);
                    end += count;
                }
                ReadOutcome::Nothing => {
                    connection.unparsed.extend_from_slice(&input[..end]);
                    return;
                }
                ReadOutcome::Gone => return self.lose(at),
            }
        }
        worker.skip_time();
        connection.session.output.lend_tail(spare);
        let began = worker.last_ticks();
        self.activity.note(end, &mut connection.seen_ms, worker.now_ms);
        let consumed = parse_and_execute(worker, connection, scratch, &input[..end], deadline);
        // A read that was filled up has left more behind. Small pipelines are nothing long, even
        // where the system interrupts one of them.
        self.long |= connection.readable || connection.parser.is_arriving();
        connection.unparsed.extend_from_slice(&input[consumed..end]);
        if connection.unparsed.is_empty() {
            connection.unparsed = Vec::new();
        }
        self.enqueue_task(at);
        self.flush_later(at, began);
    }

    /// Flushes connections that were served one after the other together: what the kernel does in
    /// a write, and what a command does, each finds its code and data in the caches.
    fn flush_later(&mut self, at: usize, began: u64) {
        if self.connections[at].session.output.pending_bytes() > SERVED_BYTES {
            self.flush(at);
            return self.enqueue(at);
        }
        if self.served.is_empty() {
            let clock = &self.worker.engine.clock;
            self.served_until = began.wrapping_add(clock.ticks_of_us(SERVED_US));
        }
        self.served.push(at);
        let is_late = self.worker.last_ticks().wrapping_sub(self.served_until) as i64 >= 0;
        if self.served.is_full() || is_late {
            self.flush_served();
        }
    }

    fn flush_served(&mut self) {
        for at in std::mem::take(&mut self.served) {
            self.flush(at);
            self.enqueue(at);
        }
    }

    fn flush(&mut self, at: usize) {
        let Loop { worker, connections, spare, .. } = self;
        let connection = &mut connections[at];
        if connection.session.output.is_empty() {
            connection.overdue_ms = None;
            return connection.session.output.take_tail(spare);
        }
        match connection.flush(&mut worker.garbage) {
            Ok(written) => {
                worker.stats().bytes_out.add(written as u64);
                connection.session.output.take_tail(spare);
                self.limit_output(at);
            }
            Err(_) => self.lose(at),
        }
    }

    /// Disconnects a client for whom too much waits, at once or when that has lasted.
    #[inline]
    fn limit_output(&mut self, at: usize) {
        let limit = self.worker.engine.settings.output_limit();
        if limits::is_set(&limit) {
            self.apply_limit(at, &limit);
        }
    }

    #[cold]
    fn apply_limit(&mut self, at: usize, limit: &OutputLimit) {
        let connection = &mut self.connections[at];
        let session = &connection.session;
        match limits::judge(session.output.pending_bytes(), limit) {
            Verdict::Within => connection.overdue_ms = None,
            Verdict::Hard => self.lose(at),
            Verdict::Soft if connection.overdue_ms.is_none() => {
                let due_ms = self.worker.now_ms + limit.soft_seconds as i64 * 1000;
                connection.overdue_ms = Some(due_ms);
                self.soft_limits.add(at, session.address.session, due_ms);
            }
            Verdict::Soft => {}
        }
    }

    fn disconnect_overdue(&mut self) {
        while let Some((at, number)) = self.soft_limits.due(self.worker.now_ms) {
            let limit = self.worker.engine.settings.output_limit();
            let is_overdue = |connection: &&Connection| {
                let session = &connection.session;
                session.address.session == number
                    && connection.overdue_ms.is_some_and(|due_ms| due_ms <= self.worker.now_ms)
                    && limits::judge(session.output.pending_bytes(), &limit) != Verdict::Within
            };
            if self.connections.get(at).filter(is_overdue).is_some() {
                self.lose(at);
            }
        }
    }

    fn deadline(&self, us: u64) -> u64 {
        self.worker.ticks().wrapping_add(self.worker.engine.clock.ticks_of_us(us))
    }

    fn is_past(&self, deadline: u64) -> bool {
        self.worker.ticks().wrapping_sub(deadline) as i64 >= 0
    }

    fn reply(&mut self) {
        let deadline = self.deadline(share::REPLIES);
        for _ in 0..self.replies.len() {
            let Some(at) = self.replies.pop_front() else { break };
            self.connections[at].queued.replies = false;
            if self.connections[at].can_flush() {
                self.long |= self.connections[at].session.output.is_streaming();
                self.flush(at);
                self.enqueue(at);
            }
            if self.is_past(deadline) {
                break;
            }
        }
    }

    fn advance(&mut self) {
        let deadline = self.deadline(share::TASKS);
        for _ in 0..self.tasks.len() {
            let Some(at) = self.tasks.pop_front() else { break };
            let connection = &mut self.connections[at];
            connection.queued.tasks = false;
            let advanced = self.worker.advance(&mut connection.session, share::ONE_TASK);
            allocator::top_up_reserve();
            if connection.socket.is_none() {
                connection.session.output.clear(&mut self.worker.garbage);
            }
            if advanced == Advanced::Again {
                self.long = true;
                self.enqueue_task(at);
            }
            self.limit_output(at);
            self.enqueue(at);
            if self.is_past(deadline) {
                break;
            }
        }
    }

    fn close(&mut self) {
        for _ in 0..CONNECTIONS.min(self.closing.len()) {
            let Some(at) = self.closing.pop_front() else { break };
            self.lose(at);
            let queued = &self.connections[at].queued;
            // The other queues still name it; they let it go when its turn comes.
            let is_named = queued.commands || queued.replies || queued.tasks;
            if !self.worker.end_some_watches(&mut self.connections[at].session) || is_named {
                self.closing.push_back(at);
                continue;
            }
            let connection = self.connections.remove(at);
            let id = connection.session.address.session;
            self.by_session.remove(&id);
            self.worker.stats().connections.add(u64::MAX);
            self.inboxes[self.worker.id].load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Executes the commands in `input` until the connection's share is used up, a command does not
/// finish at once, or more bytes are needed. Returns the bytes that were consumed.
fn parse_and_execute(
    worker: &mut Worker,
    connection: &mut Connection,
    scratch: &mut Scratches,
    input: &[u8],
    deadline: u64,
) -> usize {
    let bulk_bytes_max = worker.engine.settings.bulk_bytes_max();
    let limits = Limits { bulk_bytes_max, unauthenticated: false };
    let mut consumed = 0;
    loop {
        let batch =
            execute_batch(worker, connection, scratch, &input[consumed..], &limits, deadline);
        consumed += batch;
        allocator::top_up_reserve();
        if batch == 0 {
            let rest = &input[consumed..];
            let (count, progress) =
                connection.parser.parse(rest, &mut scratch[0], &limits, ARGUMENTS_AT_ONCE);
            consumed += count;
            if matches!(progress, Progress::NeedInput) {
                connection.unfinished = false;
                return consumed;
            }
            match progress {
                // Behind empty requests, which looking ahead does not skip.
                Progress::Request => {
                    let args = scratch[0].args(rest);
                    worker.execute(&mut connection.session, Incoming::Borrowed(args));
                }
                progress => conclude(worker, &mut connection.session, progress),
            }
        }
        let session = &connection.session;
        let stops = session.running.is_some() || session.closing;
        if stops || worker.last_ticks().wrapping_sub(deadline) as i64 >= 0 {
            connection.unfinished = consumed < input.len() || connection.parser.is_arriving();
            return consumed;
        }
    }
}

/// Executes the small requests that lie whole at the beginning of `input`, up to [`LOOK_AHEAD`],
/// until `deadline`.
/// Returns the bytes that were consumed. They are parsed before the first one runs, so that the
/// cache misses of their keys overlap.
fn execute_batch(
    worker: &mut Worker,
    connection: &mut Connection,
    scratch: &mut Scratches,
    input: &[u8],
    limits: &Limits,
    deadline: u64,
) -> usize {
    if connection.parser.is_arriving() {
        return 0;
    }
    // Looking ahead must leave no trace in the connection's parser: what comes behind the batch is
    // parsed again when its turn has come.
    let mut ahead = Parser::new();
    let mut starts = ArrayVec::<usize, { LOOK_AHEAD + 1 }>::new();
    starts.push(0);
    for scratch in scratch.iter_mut() {
        let start = starts[starts.len() - 1];
        match ahead.parse(&input[start..], scratch, limits, 1) {
            (count, Progress::Request) => starts.push(start + count),
            _ => break,
        }
    }
    let count = starts.len() - 1;
    if count == 0 {
        return 0;
    }
    let requests = (0..count).map(|at| scratch[at].args(&input[starts[at]..]));
    let begun = worker.execute_batch(&mut connection.session, requests, deadline);
    connection.parser = Parser::new();
    starts[begun]
}

/// Does what a request that is not small, or no request at all, asks for.
fn conclude(worker: &mut Worker, session: &mut Session, progress: Progress) {
    match progress {
        Progress::LargeRequest(request) => worker.execute(session, Incoming::Owned(request)),
        Progress::Error(error) => {
            let mut text = Vec::new();
            error.append_to(&mut text);
            session.output.push_bytes(text);
            session.closing = true;
        }
        Progress::Request | Progress::NeedInput | Progress::Again => worker.skip_time(),
    }
}
