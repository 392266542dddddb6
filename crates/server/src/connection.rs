//! Hot path. One connection: a socket, a parser, a session, and in which queues of its worker it is.

use std::io::{self, ErrorKind, Read, Write};

use engine::execution::session::Session;
use engine::lanes::Discard;
use mio::net::TcpStream;
use resp::Parser;
use socket2::SockRef;

/// Bytes after which a flush ends: its share of a turn.
const FLUSH_BYTES: usize = 64 * 1024;

/// Bytes of one write. What is encoded at a time has about the bytes of a flush, and its end must
/// not become a write, and a turn, of its own.
const WRITE_BYTES: usize = 96 * 1024;

/// A client, or what is left of one whose command must still complete.
pub(crate) struct Connection {
    /// `None` when the client is gone.
    pub(crate) socket: Option<TcpStream>,
    /// What the engine knows of it.
    pub(crate) session: Session,
    /// Where in a command the bytes stand.
    pub(crate) parser: Parser,
    /// Bytes that were read and not parsed yet.
    pub(crate) unparsed: Vec<u8>,
    /// There may be a whole command among them, or in the parser.
    pub(crate) unfinished: bool,
    /// The socket may have bytes for us.
    pub(crate) readable: bool,
    /// The socket may take bytes.
    pub(crate) writable: bool,
    /// Since it is beyond the soft limit of waiting replies: when that will have lasted too long,
    /// Unix milliseconds.
    pub(crate) overdue_ms: Option<i64>,
    /// When it was last served, Unix milliseconds.
    pub(crate) seen_ms: i64,
    /// In which queues it is.
    pub(crate) queued: Queued,
    /// The kernel may hold packets back, as the system's congestion control wants it.
    paced: bool,
}

/// Membership of the worker's queues, so that nobody is in one twice.
#[derive(Default)]
pub(crate) struct Queued {
    pub(crate) commands: bool,
    pub(crate) replies: bool,
    pub(crate) tasks: bool,
    pub(crate) closing: bool,
}

/// What reading has brought.
pub(crate) enum ReadOutcome {
    /// This many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The client is gone.
    Gone,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session) -> Connection {
        Connection {
            socket: Some(socket),
            session,
            parser: Parser::new(),
            unparsed: Vec::new(),
            unfinished: false,
            readable: true,
            writable: true,
            overdue_ms: None,
            seen_ms: 0,
            queued: Queued::default(),
            paced: true,
        }
    }

    /// Reads once into `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        let Some(socket) = &mut self.socket else { return ReadOutcome::Gone };
        loop {
            match socket.read(buffer) {
                Ok(0) => return ReadOutcome::Gone,
                Ok(count) => {
                    // A short read has emptied the socket: the next byte brings a new event.
                    self.readable = count == buffer.len();
                    return ReadOutcome::Bytes(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return ReadOutcome::Nothing;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ReadOutcome::Gone,
            }
        }
    }

    /// Writes a share of what is queued. Returns the bytes written.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) fn flush(&mut self, garbage: &mut Vec<Box<dyn Discard>>) -> io::Result<usize> {
        if self.paced && self.session.output.front_is_stream() {
            self.stop_pacing();
        }
        let Some(socket) = &mut self.socket else { return Ok(0) };
        let mut written = 0;
        while self.writable && written < FLUSH_BYTES {
            let bytes = self.session.output.front(garbage);
            if bytes.is_empty() {
                break;
            }
            let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
            match socket.write(bytes) {
                Ok(count) => {
                    self.writable = count == bytes.len();
                    self.session.output.advance(count);
                    written += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// For a long reply to a client on this machine, chooses the congestion control that holds
    /// nothing back: there is no wire to be shared. BBR, the default of many systems, measures a
    /// loopback connection at a fraction of what it can do, and paces it to that.
    fn stop_pacing(&mut self) {
        self.paced = false;
        let is_local = self.session.info.peer.is_some_and(|peer| peer.ip().is_loopback());
        if let Some(socket) = self.socket.as_ref().filter(|_| is_local) {
            // Every Linux has it and allows it to everybody. Elsewhere the reply is only slower.
            let _ = SockRef::from(socket).set_tcp_congestion(b"reno");
        }
    }

    /// Whether there are replies and the socket takes them.
    pub(crate) fn can_flush(&self) -> bool {
        self.writable && self.socket.is_some() && !self.session.output.is_empty()
    }

    /// Whether there are bytes to be parsed and nothing keeps them waiting.
    pub(crate) fn can_execute(&self) -> bool {
        self.session.running.is_none()
            && !self.session.closing
            && (self.readable || self.unfinished)
    }
}
