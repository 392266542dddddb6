//! A raw client: it sends exactly the bytes it is told and keeps the type bytes of what it reads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::reply::Reply;

/// How long a read or write may take before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes asked of the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// One connection.
pub struct Client {
    stream: TcpStream,
    /// Bytes read from the socket and not yet parsed, from `parsed` on.
    buffer: Vec<u8>,
    parsed: usize,
}

impl Client {
    /// Connects, with [`TIMEOUT`] for every read and write.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream, buffer: Vec::new(), parsed: 0 })
    }

    /// The socket, for tests that do something rude with it.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends one command and reads its reply. Panics when the connection fails: a test that
    /// expects that uses [`Client::try_call`].
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        match self.try_call(arguments) {
            Ok(reply) => reply,
            Err(error) => panic!("{}: {error}", show(arguments)),
        }
    }

    /// [`Client::call`] of words without blanks, for the readability of tests.
    pub fn line(&mut self, command: &str) -> Reply {
        self.call(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends one command and reads its reply.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.send(&encode(arguments))?;
        self.read()
    }

    /// Sends raw bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one reply; an error of kind `UnexpectedEof` when the server closed the connection.
    pub fn read(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let Some((&kind, rest)) = line.split_first() else {
            return Err(malformed("an empty line"));
        };
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => Ok(Reply::Line(kind, rest.to_vec())),
            b'$' | b'=' | b'!' => match length(rest)? {
                None => Ok(Reply::Missing(kind)),
                Some(size) => Ok(Reply::Bulk(kind, self.read_bulk(size)?)),
            },
            b'*' | b'~' | b'>' | b'%' => match length(rest)? {
                None => Ok(Reply::Missing(kind)),
                Some(size) => {
                    let count = if kind == b'%' { size * 2 } else { size };
                    let elements = (0..count).map(|_| self.read()).collect::<io::Result<_>>()?;
                    Ok(Reply::Many(kind, elements))
                }
            },
            _ => Err(malformed(&format!("a reply that begins with byte {kind}"))),
        }
    }

    /// Whatever bytes arrive until the server closes (then true) or `idle` passes without one.
    pub fn read_until_idle(&mut self, idle: Duration) -> io::Result<(Vec<u8>, bool)> {
        self.stream.set_read_timeout(Some(idle))?;
        let closed = loop {
            match self.fill() {
                Ok(()) => {}
                Err(error) if is_timeout(&error) => break false,
                Err(_) => break true,
            }
        };
        self.stream.set_read_timeout(Some(TIMEOUT))?;
        let bytes = self.buffer.split_off(self.parsed);
        Ok((bytes, closed))
    }

    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = self.parsed;
        loop {
            if let Some(at) = self.buffer[searched..].windows(2).position(|pair| pair == b"\r\n") {
                let end = searched + at;
                let line = self.buffer[self.parsed..end].to_vec();
                self.parsed = end + 2;
                return Ok(line);
            }
            let unparsed = self.buffer.len() - self.parsed;
            self.fill()?;
            // The last byte may be the `\r` of a line end that was cut.
            searched = self.parsed + unparsed.saturating_sub(1);
        }
    }

    fn read_bulk(&mut self, size: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() - self.parsed < size + 2 {
            self.fill()?;
        }
        let end = self.parsed + size;
        if &self.buffer[end..end + 2] != b"\r\n" {
            return Err(malformed("a bulk string without its line end"));
        }
        let bytes = self.buffer[self.parsed..end].to_vec();
        self.parsed = end + 2;
        Ok(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.parsed > READ_BYTES || self.parsed == self.buffer.len() {
            self.buffer.drain(..self.parsed);
            self.parsed = 0;
        }
        let start = self.buffer.len();
        self.buffer.resize(start + READ_BYTES, 0);
        let result = self.stream.read(&mut self.buffer[start..]);
        self.buffer.truncate(start + *result.as_ref().unwrap_or(&0));
        match result? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A command as a RESP array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command as a person would type it, long arguments shortened.
pub fn show<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    const ARGUMENTS_MAX: usize = 40;
    let mut words: Vec<String> =
        arguments.iter().take(ARGUMENTS_MAX).map(|argument| word(argument.as_ref())).collect();
    if arguments.len() > ARGUMENTS_MAX {
        words.push(format!("...({} arguments)", arguments.len()));
    }
    words.join(" ")
}

fn word(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    if bytes.len() > SHOWN_MAX {
        return format!("{}...({} bytes)", crate::reply::quote(&bytes[..20]), bytes.len());
    }
    let plain = !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_graphic());
    if plain && !bytes.contains(&b'"') && !bytes.contains(&b'\\') {
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        crate::reply::quote(bytes)
    }
}

fn length(text: &[u8]) -> io::Result<Option<usize>> {
    if text == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| malformed("a length that is no text"))?;
    text.parse().map(Some).map_err(|_| malformed(&format!("the length {text:?}")))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"))
}

/// True when a socket operation ended because its time-out passed.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
