//! Hot path. Writes replies in the protocol that the client chose.
//!
//! The reply types that only RESP3 has become what Redis sends to a RESP2 client instead:
//!
//! | type | RESP3 | RESP2 |
//! |---|---|---|
//! | null, null array | `_` | `$-1`, `*-1` |
//! | map, set, push | `%n`, `~n`, `>n` | `*2n`, `*n`, `*n` |
//! | double, verbatim, big number | `,1.5`, `=15`, `(123` | bulk |
//! | bool | `#t`, `#f` | `:1`, `:0` |

use crate::double::format_double;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// What a connection begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// Appends replies to `out`.
pub struct Writer<'a> {
    /// Where the bytes go.
    pub out: &'a mut Vec<u8>,
    /// In which form.
    pub protocol: Protocol,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Writer<'a> {
        Writer { out, protocol }
    }

    /// `+text`. The text must not contain line ends.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a line end in a simple string");
        self.line(b'+', text.as_bytes());
    }

    /// `-text`, where `text` begins with the error's code. It may quote what the client sent: line
    /// ends become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let start = self.out.len() + 1;
        self.line(b'-', text.as_ref());
        let end = self.out.len() - 2;
        for byte in &mut self.out[start..end] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    /// `:value`.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match value {
            0..=9 => self.out.extend_from_slice(&[b':', b'0' + value as u8, b'\r', b'\n']),
            _ => self.line(b':', itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 16);
        self.bulk_header(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// Bulk strings that lie in `bytes` side by side, of these `lengths`.
    ///
    /// # Panics
    /// If the lengths sum up to more than there is.
    pub fn bulks(&mut self, mut bytes: &[u8], lengths: impl ExactSizeIterator<Item = usize>) {
        self.out.reserve(bytes.len() + lengths.len() * 16 + COPIED_BYTES);
        let mut joint = Joint::default();
        for length in lengths {
            let (one, rest) = bytes.split_at(length);
            joint.append(self.out, length);
            append_from(self.out, bytes, one.len());
            bytes = rest;
        }
        joint.end(self.out);
    }

    /// The same from the last one to the first.
    ///
    /// # Panics
    /// If the lengths sum up to more than there is.
    pub fn bulks_back(
        &mut self,
        mut bytes: &[u8],
        lengths: impl ExactSizeIterator<Item = usize> + DoubleEndedIterator,
    ) {
        self.out.reserve(bytes.len() + lengths.len() * 16 + COPIED_BYTES);
        let mut joint = Joint::default();
        let all = bytes;
        for length in lengths.rev() {
            let (rest, one) = bytes.split_at(bytes.len() - length);
            joint.append(self.out, length);
            append_from(self.out, &all[rest.len()..], one.len());
            bytes = rest;
        }
        joint.end(self.out);
    }

    /// A bulk string that reads as the decimal of `value`.
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// The header of a bulk string whose `len` bytes follow through [`Writer::raw`] (or another
    /// way), and then [`Writer::end`].
    #[inline]
    pub fn bulk_header(&mut self, len: u64) {
        self.header(b'$', len);
    }

    /// Bytes as they are: a part of a bulk string, or replies that were encoded before.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The end of a bulk string that began with a header.
    #[inline]
    pub fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value, where a bulk string would be.
    #[inline]
    pub fn null(&mut self) {
        self.choose(b"$-1\r\n", b"_\r\n");
    }

    /// No value, where an array would be.
    pub fn null_array(&mut self) {
        self.choose(b"*-1\r\n", b"_\r\n");
    }

    /// The header of an array; `len` replies follow.
    #[inline]
    pub fn array(&mut self, len: u64) {
        self.header(b'*', len);
    }

    /// The header of a map; `len` pairs of replies follow.
    pub fn map(&mut self, len: u64) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len * 2),
            Protocol::Resp3 => self.header(b'%', len),
        }
    }

    /// The header of a set; `len` replies follow.
    pub fn set(&mut self, len: u64) {
        self.aggregate(b'~', len);
    }

    /// The header of a message that answers no request; `len` replies follow.
    pub fn push(&mut self, len: u64) {
        self.aggregate(b'>', len);
    }

    /// A double, in the text of [`format_double`].
    pub fn double(&mut self, value: f64) {
        let mut buffer = [0; 32];
        let text = format_double(value, &mut buffer);
        self.scalar(b',', text);
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) {
        match value {
            true => self.choose(b":1\r\n", b"#t\r\n"),
            false => self.choose(b":0\r\n", b"#f\r\n"),
        }
    }

    /// Text for people; `format` is `txt` or `mkd`.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        self.verbatim_header(format, text.len() as u64);
        self.out.extend_from_slice(text);
        self.end();
    }

    /// The header of a text of `len` bytes that follows in pieces, and then [`Writer::end`].
    pub fn verbatim_header(&mut self, format: &[u8; 3], len: u64) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'$', len),
            Protocol::Resp3 => {
                self.header(b'=', len + 4);
                self.out.extend_from_slice(format);
                self.out.push(b':');
            }
        }
    }

    /// A number of any size, given as its decimal.
    pub fn big_number(&mut self, digits: &str) {
        self.scalar(b'(', digits.as_bytes());
    }

    /// A line in RESP3, a bulk string in RESP2.
    fn scalar(&mut self, marker: u8, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.line(marker, text),
        }
    }

    fn aggregate(&mut self, marker: u8, len: u64) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len),
            Protocol::Resp3 => self.header(marker, len),
        }
    }

    fn choose(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        });
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(marker);
        self.out.extend_from_slice(text);
        self.end();
    }

    #[inline]
    fn header(&mut self, marker: u8, len: u64) {
        write_header(self.out, marker, len);
    }
}

/// Bytes that are copied at once, in a copy without a call: a short string is copied with some of
/// what lies behind it, which is then cut off again.
const COPIED_BYTES: usize = 128;

/// Appends the first `length` of `bytes`.
#[inline]
fn append_from(out: &mut Vec<u8>, bytes: &[u8], length: usize) {
    match bytes.first_chunk::<COPIED_BYTES>() {
        Some(chunk) if length <= COPIED_BYTES => {
            out.extend_from_slice(chunk);
            out.truncate(out.len() - (COPIED_BYTES - length));
        }
        _ => out.extend_from_slice(&bytes[..length]),
    }
}

/// What stands between two bulk strings: the end of the first and the header of the second, made
/// anew only when the length changes.
#[derive(Default)]
struct Joint {
    /// The length in the header, and one more; 0 before the first string.
    length: usize,
    /// `\r\n$`, up to three digits, `\r\n`.
    bytes: [u8; 8],
    /// How many of them are not used.
    unused: usize,
}

impl Joint {
    #[inline]
    fn append(&mut self, out: &mut Vec<u8>, length: usize) {
        if self.length == length + 1 && length < 1000 {
            out.extend_from_slice(&self.bytes);
            out.truncate(out.len() - self.unused);
            return;
        }
        self.end(out);
        write_header(out, b'$', length as u64);
        self.change(length);
    }

    fn change(&mut self, length: usize) {
        self.length = length + 1;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(length.min(999)).as_bytes();
        self.bytes = *b"\r\n$\0\0\0\0\0";
        self.bytes[3..][..digits.len()].copy_from_slice(digits);
        self.bytes[3 + digits.len()..][..2].copy_from_slice(b"\r\n");
        self.unused = 3 - digits.len();
    }

    /// The end of the last string, if there was one.
    #[inline]
    fn end(&self, out: &mut Vec<u8>) {
        if self.length > 0 {
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[inline]
fn write_header(out: &mut Vec<u8>, marker: u8, len: u64) {
    // Arrays of a known length are stored at once, without a call.
    let digit = |divisor: u64| b'0' + (len / divisor % 10) as u8;
    match len {
        0..10 => return out.extend_from_slice(&[marker, digit(1), b'\r', b'\n']),
        10..100 => return out.extend_from_slice(&[marker, digit(10), digit(1), b'\r', b'\n']),
        100..1000 => {
            let header = [marker, digit(100), digit(10), digit(1), b'\r', b'\n'];
            return out.extend_from_slice(&header);
        }
        _ => {}
    }
    out.push(marker);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a request as a client sends it.
pub fn write_request<T: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[T]) {
    write_header(out, b'*', args.len() as u64);
    for arg in args {
        let arg = arg.as_ref();
        write_header(out, b'$', arg.len() as u64);
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Writer<'_>), resp2: &str, resp3: &str) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, protocol));
            assert_eq!(out.escape_ascii().to_string(), expected);
        }
    }

    fn check_both(write: impl Fn(&mut Writer<'_>), expected: &str) {
        check(write, expected, expected);
    }

    #[test]
    fn bulks_are_the_same_as_one_by_one() {
        for length in [0, 1, 9, 10, 99, 100, 127, 128, 129, 999, 1000, 1001, 12_345] {
            let lengths = || vec![length, length, 7, length, length, length].into_iter();
            let bytes: Vec<u8> = (0..lengths().sum()).map(|at: usize| at as u8).collect();
            let (mut parts, mut rest) = (Vec::new(), bytes.as_slice());
            for length in lengths() {
                let (one, behind) = rest.split_at(length);
                parts.push(one);
                rest = behind;
            }
            let write = |write: &dyn Fn(&mut Writer<'_>)| {
                let mut out = b"before".to_vec();
                write(&mut Writer::new(&mut out, Protocol::Resp2));
                out
            };
            let one_by_one = write(&|w| parts.iter().for_each(|part| w.bulk(part)));
            assert!(write(&|w| w.bulks(&bytes, lengths())) == one_by_one, "{length}");
            let backwards = write(&|w| parts.iter().rev().for_each(|part| w.bulk(part)));
            assert!(write(&|w| w.bulks_back(&bytes, lengths())) == backwards, "{length}");
        }
    }

    #[test]
    fn replies_that_are_the_same_in_both_protocols() {
        check_both(|w| w.simple("OK"), r"+OK\r\n");
        check_both(|w| w.error("ERR unknown\r\nthing"), r"-ERR unknown  thing\r\n");
        check_both(|w| w.int(0), r":0\r\n");
        check_both(|w| w.int(10), r":10\r\n");
        check_both(|w| w.int(-1), r":-1\r\n");
        check_both(|w| w.int(i64::MIN), r":-9223372036854775808\r\n");
        check_both(|w| w.bulk(b""), r"$0\r\n\r\n");
        check_both(|w| w.bulk(b"0123456789"), r"$10\r\n0123456789\r\n");
        check_both(|w| w.bulk_int(-42), r"$3\r\n-42\r\n");
        check_both(|w| w.array(0), r"*0\r\n");
        check_both(|w| w.array(4_294_967_296), r"*4294967296\r\n");
        let lengths = || vec![1, 0, 12, 2].into_iter();
        let side_by_side = r"$1\r\na\r\n$0\r\n\r\n$12\r\n0123456789ab\r\n$2\r\nyz\r\n";
        check_both(|w| w.bulks(b"a0123456789abyz", lengths()), side_by_side);
        let reversed = r"$2\r\nyz\r\n$12\r\n0123456789ab\r\n$0\r\n\r\n$1\r\na\r\n";
        check_both(|w| w.bulks_back(b"a0123456789abyz", lengths()), reversed);
        check_both(|w| w.array(987), r"*987\r\n");
        let streamed = |w: &mut Writer<'_>| {
            w.bulk_header(4);
            w.raw(b"ab");
            w.raw(b"cd");
            w.end();
        };
        check_both(streamed, r"$4\r\nabcd\r\n");
    }

    #[test]
    fn replies_that_differ() {
        check(|w| w.null(), r"$-1\r\n", r"_\r\n");
        check(|w| w.null_array(), r"*-1\r\n", r"_\r\n");
        check(|w| w.map(6), r"*12\r\n", r"%6\r\n");
        check(|w| w.set(2), r"*2\r\n", r"~2\r\n");
        check(|w| w.push(3), r"*3\r\n", r">3\r\n");
        check(|w| w.double(1.5), r"$3\r\n1.5\r\n", r",1.5\r\n");
        check(|w| w.double(f64::NEG_INFINITY), r"$4\r\n-inf\r\n", r",-inf\r\n");
        check(|w| w.bool(true), r":1\r\n", r"#t\r\n");
        check(|w| w.bool(false), r":0\r\n", r"#f\r\n");
        check(|w| w.verbatim(b"txt", b"hello"), r"$5\r\nhello\r\n", r"=9\r\ntxt:hello\r\n");
        check(|w| w.big_number("123"), r"$3\r\n123\r\n", r"(123\r\n");
    }
}
