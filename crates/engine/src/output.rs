//! Hot path. The replies of one connection: a queue of segments, bytes or snapshots to be encoded.
//!
//! Executing never waits for the socket, only encoding does: a reply of any size is queued as a
//! [`Stream`] over a snapshot and turned into bytes piece by piece as the client reads. Later
//! commands of the same connection execute meanwhile, and their replies queue behind it.

use std::collections::VecDeque;

use resp::{Protocol, Writer};

use crate::lanes::Discard;

/// Bytes that are encoded ahead of a client that does not read.
pub const ENCODED_AHEAD_BYTES: usize = 64 * 1024;

/// Room for the last element of a piece, which may go beyond that.
const PIECE_SPARE_BYTES: usize = 8 * 1024;

/// Bytes of a new buffer for small replies.
const TAIL_BYTES: usize = 16 * 1024;

/// A finished segment of small replies is cut at this size, so that no buffer is ever copied whole
/// because it had to grow.
const SEGMENT_BYTES: usize = 64 * 1024;

/// A reply that is encoded while it is sent.
pub trait Stream: Discard {
    /// Appends about `bytes` more bytes of the reply. Returns true when the reply is complete.
    fn encode(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool;

    /// Memory that only this reply may be keeping alive.
    fn pinned_bytes(&self) -> u64;
}

enum Segment {
    Bytes(Vec<u8>),
    Stream(Box<dyn Stream>),
}

/// The queue of replies of one connection.
#[derive(Default)]
pub struct Output {
    queue: VecDeque<Segment>,
    /// The newest bytes, behind everything in the queue.
    tail: Vec<u8>,
    /// Bytes of the front segment that the socket has taken.
    sent: usize,
    queued_bytes: usize,
    pinned_bytes: u64,
    /// The buffer of the last piece of a stream, for the next piece.
    piece: Vec<u8>,
}

impl Output {
    /// Whether everything has been handed to the socket.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    /// Bytes that wait for the client, encoded or pinned by a snapshot.
    pub fn pending_bytes(&self) -> u64 {
        (self.queued_bytes + self.tail.len()) as u64 + self.pinned_bytes
    }

    /// Writes replies of `protocol` at the end.
    #[inline]
    pub fn reply(&mut self, protocol: Protocol) -> Reply<'_> {
        Reply { output: self, protocol }
    }

    /// The next bytes for the socket, encoding if there are none. Empty when all is sent.
    pub fn front(&mut self, garbage: &mut Vec<Box<dyn Discard>>) -> &[u8] {
        while let Some(front) = self.queue.front_mut() {
            match front {
                Segment::Bytes(bytes) if self.sent < bytes.len() => break,
                Segment::Bytes(_) => {
                    self.sent = 0;
                    self.queue.pop_front();
                }
                Segment::Stream(stream) => {
                    let mut bytes = std::mem::take(&mut self.piece);
                    bytes.reserve(ENCODED_AHEAD_BYTES + PIECE_SPARE_BYTES);
                    if stream.encode(&mut bytes, ENCODED_AHEAD_BYTES) {
                        self.pinned_bytes -= stream.pinned_bytes();
                        if let Some(Segment::Stream(stream)) = self.queue.pop_front() {
                            garbage.push(stream);
                        }
                    }
                    self.queued_bytes += bytes.len();
                    self.queue.push_front(Segment::Bytes(bytes));
                }
            }
        }
        match self.queue.front() {
            Some(Segment::Bytes(bytes)) => &bytes[self.sent..],
            _ => &self.tail[self.sent..],
        }
    }

    /// The socket took `count` bytes of what [`Output::front`] gave.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        match self.queue.front() {
            Some(Segment::Bytes(bytes)) => {
                self.queued_bytes -= count;
                if self.sent == bytes.len() {
                    self.sent = 0;
                    let sent = self.queue.pop_front();
                    if let (Some(Segment::Bytes(mut sent)), true) = (sent, self.front_is_stream()) {
                        sent.clear();
                        self.piece = sent;
                    }
                }
            }
            _ => {
                if self.sent == self.tail.len() {
                    self.sent = 0;
                    self.tail.clear();
                }
            }
        }
    }

    /// Whether the bytes at the front must be encoded first: work beyond a copy to the socket.
    pub fn front_is_stream(&self) -> bool {
        matches!(self.queue.front(), Some(Segment::Stream(_)))
    }

    /// Whether a stream is under way: what waits to be sent is a piece of it, or it is the next.
    pub fn is_streaming(&self) -> bool {
        self.queue.iter().take(2).any(|segment| matches!(segment, Segment::Stream(_)))
    }

    /// Lends a buffer for small replies, one of `buffers` or a new one; [`Output::take_tail`] gives
    /// it back. An idle connection keeps none.
    pub fn lend_tail(&mut self, buffers: &mut Vec<Vec<u8>>) {
        if self.tail.capacity() == 0 {
            self.tail = buffers.pop().unwrap_or_else(|| Vec::with_capacity(TAIL_BYTES));
        }
    }

    /// Takes the buffer back if it is empty. `buffers` keeps as many as it has room for.
    pub fn take_tail(&mut self, buffers: &mut Vec<Vec<u8>>) {
        if self.tail.is_empty() && self.tail.capacity() > 0 && buffers.len() < buffers.capacity() {
            buffers.push(std::mem::take(&mut self.tail));
        }
    }

    /// Gives up all that is queued: the client is gone.
    pub fn clear(&mut self, garbage: &mut Vec<Box<dyn Discard>>) {
        for segment in self.queue.drain(..) {
            if let Segment::Stream(stream) = segment {
                garbage.push(stream);
            }
        }
        (self.tail, self.piece) = (Vec::new(), Vec::new());
        (self.sent, self.queued_bytes, self.pinned_bytes) = (0, 0, 0);
    }

    /// Queues a finished segment behind everything written so far.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.cut_tail();
        self.queued_bytes += bytes.len();
        self.queue.push_back(Segment::Bytes(bytes));
    }

    fn push_stream(&mut self, stream: Box<dyn Stream>) {
        self.cut_tail();
        self.pinned_bytes += stream.pinned_bytes();
        self.queue.push_back(Segment::Stream(stream));
    }

    fn cut_tail(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let tail = std::mem::take(&mut self.tail);
        // While the queue is empty `sent` counts in the tail, which is the front segment from now.
        self.queued_bytes += tail.len() - if self.queue.is_empty() { self.sent } else { 0 };
        self.queue.push_back(Segment::Bytes(tail));
    }
}

/// Writes one command's reply.
pub struct Reply<'a> {
    output: &'a mut Output,
    protocol: Protocol,
}

impl Reply<'_> {
    /// The protocol that the client speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether the client speaks RESP3.
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// The encoder of single values, at the end of the output.
    #[inline]
    pub fn writer(&mut self) -> Writer<'_> {
        if self.output.tail.len() >= SEGMENT_BYTES {
            self.output.cut_tail();
        }
        Writer { out: &mut self.output.tail, protocol: self.protocol }
    }

    /// The reply, or the next part of it, is encoded later from a snapshot.
    pub fn stream(&mut self, stream: Box<dyn Stream>) {
        self.output.push_stream(stream);
    }

    /// The next part of the reply has been encoded elsewhere.
    pub fn bytes(&mut self, bytes: Vec<u8>) {
        self.output.push_bytes(bytes);
    }
}
