//! One connection. A reply is counted while it is read, not kept, so that a client can take
//! replies of any size quickly and without memory.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use resp::write_request;

/// How long a server may keep a client waiting before the bench gives up.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Bytes asked of the socket at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of requests sent before their replies are read.
const PIPELINE_BYTES: usize = 128 * 1024;
/// Bytes kept of the first text in a reply: enough for INFO.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A connection to a server of this machine.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    /// Requests that are not sent yet.
    requests: Vec<u8>,
    /// The line that is being read.
    line: Vec<u8>,
}

/// What is known of a reply.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reply {
    /// The first text or number in it.
    pub text: String,
    /// How many texts, numbers and nulls are in it, at any depth.
    pub elements: u64,
    /// Bytes of the texts in it.
    pub bytes: u64,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(port: u16) -> Result<Client, String> {
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            stream.set_write_timeout(Some(SILENCE_MAX))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: std::io::Error| {
            format!("cannot connect to port {port}: {error}: does a server listen there?")
        })?;
        let reader = BufReader::with_capacity(READ_BYTES, stream);
        Ok(Client { reader, requests: Vec::new(), line: Vec::new() })
    }

    /// Sends one command and reads its reply; the error is also what the server refused.
    pub(crate) fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<Reply, String> {
        write_request(&mut self.requests, words);
        self.flush()?;
        self.read()
    }

    /// Sends bytes that are one or more requests.
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), String> {
        self.reader.get_mut().write_all(requests).map_err(|error| lost(&error))
    }

    /// Executes `count` requests that `write` appends, many at a time. None may be refused.
    pub(crate) fn pipeline(
        &mut self,
        count: usize,
        mut write: impl FnMut(usize, &mut Vec<u8>),
    ) -> Result<(), String> {
        let mut waiting = 0;
        for number in 0..count {
            write(number, &mut self.requests);
            waiting += 1;
            if self.requests.len() >= PIPELINE_BYTES || number + 1 == count {
                self.flush()?;
                (0..std::mem::take(&mut waiting)).try_for_each(|_| self.read().map(drop))?;
            }
        }
        Ok(())
    }

    /// Reads one reply.
    pub(crate) fn read(&mut self) -> Result<Reply, String> {
        let (mut reply, mut refused, mut missing) = (Reply::default(), None, 1_u64);
        while missing > 0 {
            self.read_line()?;
            missing -= 1;
            let line = String::from_utf8_lossy(&self.line);
            let Some(kind) = line.chars().next().filter(char::is_ascii) else {
                return Err("the server sent an empty line instead of a reply".to_owned());
            };
            let rest = &line[1..];
            match kind {
                '+' | ':' | ',' | '#' | '(' | '_' => reply.add_text(rest),
                '-' => refused = refused.or(Some(rest.to_owned())),
                '$' | '=' | '*' | '~' | '>' | '%' => {
                    let Ok(length) = rest.parse::<i64>() else {
                        return Err(format!("the server sent `{line}`, which is no reply"));
                    };
                    match (kind, u64::try_from(length)) {
                        (_, Err(_)) => reply.add_text(""),
                        ('$' | '=', Ok(bytes)) => self.read_text(bytes, &mut reply)?,
                        ('%', Ok(pairs)) => missing += pairs * 2,
                        (_, Ok(elements)) => missing += elements,
                    }
                }
                _ => return Err(format!("the server sent `{line}`, which is no reply")),
            }
        }
        match refused {
            None => Ok(reply),
            Some(text) => Err(format!("the server refused: {text}")),
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let sent = self.reader.get_mut().write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| lost(&error))
    }

    /// Reads into `line`, without the line's end.
    fn read_line(&mut self) -> Result<(), String> {
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line).map_err(|error| lost(&error))?;
        if !self.line.ends_with(b"\r\n") {
            return Err(lost(&ErrorKind::UnexpectedEof.into()));
        }
        self.line.truncate(self.line.len() - 2);
        Ok(())
    }

    /// Reads a text and the line's end behind it; keeps it when it is the first one.
    fn read_text(&mut self, bytes: u64, reply: &mut Reply) -> Result<(), String> {
        let (mut left, mut kept) = (bytes + 2, Vec::new());
        while left > 0 {
            let there = self.reader.fill_buf().map_err(|error| lost(&error))?;
            if there.is_empty() {
                return Err(lost(&ErrorKind::UnexpectedEof.into()));
            }
            let taken = there.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if reply.elements == 0 {
                let room = TEXT_BYTES_MAX.saturating_sub(kept.len());
                kept.extend_from_slice(&there[..taken.min(room)]);
            }
            self.reader.consume(taken);
            left -= taken as u64;
        }
        kept.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        reply.add_text(&String::from_utf8_lossy(&kept));
        reply.bytes += bytes;
        Ok(())
    }
}

impl Reply {
    fn add_text(&mut self, text: &str) {
        if self.elements == 0 {
            self.text.push_str(text);
        }
        self.elements += 1;
    }

    /// The number that the reply is.
    pub(crate) fn number(&self) -> Result<u64, String> {
        self.text.parse().map_err(|_| format!("the server sent `{}`, not a number", self.text))
    }

    /// The value of a line `name:value` of INFO.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }
}

fn lost(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("the server did nothing for {} s", SILENCE_MAX.as_secs())
        }
        _ => format!("the connection to the server is lost: {error}: has the server ended?"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Reads one reply of a server that sends `bytes` and closes.
    fn read(bytes: &'static [u8]) -> Result<Reply, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has ports");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client connects");
            stream.write_all(bytes).expect("the client reads");
        });
        let reply = Client::connect(port).and_then(|mut client| client.read());
        server.join().expect("the server does not fail");
        reply
    }

    fn counts(bytes: &'static [u8]) -> (String, u64, u64) {
        read(bytes).map(|reply| (reply.text, reply.elements, reply.bytes)).expect("it is a reply")
    }

    #[test]
    fn replies_are_counted() {
        assert_eq!(counts(b"+OK\r\n"), ("OK".to_owned(), 1, 0));
        assert_eq!(counts(b"$2\r\nab\r\n"), ("ab".to_owned(), 1, 2));
        assert_eq!(counts(b"$-1\r\n"), (String::new(), 1, 0));
        assert_eq!(counts(b"*0\r\n"), (String::new(), 0, 0));
        let nested = b"*2\r\n$1\r\n0\r\n*2\r\n$3\r\nabc\r\n:7\r\n";
        assert_eq!(counts(nested), ("0".to_owned(), 3, 4));
    }

    #[test]
    fn what_is_refused_cut_short_or_no_reply_is_an_error() {
        for (bytes, expected) in [
            (&b"-ERR no\r\n"[..], "the server refused: ERR no"),
            (b"*2\r\n:1\r\n-EXECABORT\r\n", "the server refused: EXECABORT"),
            (b"$5\r\nab", "the connection to the server is lost"),
            (b":1", "the connection to the server is lost"),
            (b"hello\r\n", "the server sent `hello`, which is no reply"),
            (b"*x\r\n", "the server sent `*x`, which is no reply"),
            (b"\r\n", "the server sent an empty line"),
        ] {
            let text = read(bytes).expect_err("it is no reply");
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn fields_of_info() {
        let text = "# Server\r\nprocess_id:42\r\nprocess:1\r\n".to_owned();
        let reply = Reply { text, ..Reply::default() };
        assert_eq!(reply.field("process_id"), Some("42"));
        assert_eq!(reply.field("process"), Some("1"));
        assert_eq!(reply.field("proc"), None);
    }
}
