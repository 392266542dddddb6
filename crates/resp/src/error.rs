//! What a client may do wrong on the wire. After any of these the connection is closed.

use std::fmt;

/// A violation of the protocol; [`ProtocolError::append_to`] writes the reply, after which the
/// connection must be closed: the place where the next request begins is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// No line end within 64 KiB of an inline command.
    TooBigInline,
    /// A quote is not closed, or something other than space follows a closing one.
    UnbalancedQuotes,
    /// The number of arguments is not a number, or above 2^31 - 1.
    InvalidMultibulkLength,
    /// More than 10 arguments before authentication.
    UnauthenticatedMultibulkLength,
    /// No line end within 64 KiB after `*`.
    TooBigMultibulkCount,
    /// An argument begins with this byte.
    ExpectedDollar(u8),
    /// The length of an argument is not a number, negative, or above `proto-max-bulk-len`.
    InvalidBulkLength,
    /// An argument of more than 16384 bytes before authentication.
    UnauthenticatedBulkLength,
    /// No line end within 64 KiB after `$`.
    TooBigBulkCount,
}

impl ProtocolError {
    /// Appends the error reply.
    pub fn append_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-ERR Protocol error: ");
        out.extend_from_slice(self.text().as_bytes());
        if let ProtocolError::ExpectedDollar(got) = self {
            // A line end would end the reply early.
            out.push(if matches!(got, b'\r' | b'\n') { b' ' } else { got });
            out.push(b'\'');
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The text, without the byte and the closing quote of `ExpectedDollar`.
    fn text(self) -> &'static str {
        match self {
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::ExpectedDollar(_) => "expected '$', got '",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Protocol error: {}", self.text())?;
        match self {
            ProtocolError::ExpectedDollar(got) => write!(formatter, "{}'", got.escape_ascii()),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ProtocolError {}
