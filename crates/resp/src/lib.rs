//! The wire protocol RESP2 and RESP3: parse requests, write replies. Pure: no I/O.
//!
//! A server keeps one [`Parser`] per connection and one [`Scratch`] per worker. It hands the
//! connection's unconsumed bytes to [`Parser::parse`]; a command that lies in them whole is read
//! in place as [`Args`], a large one is moved into a [`Request`] piece by piece as it arrives, so
//! the read buffer stays small. Replies go through a [`Writer`]. The client's side of the
//! protocol, for tools and tests, is [`reply`].
//!
//! The modules are listed in the order in which to read them.

mod args;
mod request;
mod segmented;
mod chunked;
mod parser;
mod inline;
mod error;
mod writer;
mod double;
pub mod reply;
#[cfg(any(test, fuzzing))]
mod drive;
#[cfg(test)]
mod tests;

pub use args::{Args, Scratch};
pub use chunked::{CHUNK_BYTES, Chunked};
pub use double::{DoubleBuffer, format_double};
#[cfg(any(test, fuzzing))]
pub use drive::drive;
pub use error::ProtocolError;
pub use parser::{INPUT_BYTES_MAX, LINE_BYTES_MAX, Limits, Parser, Progress};
pub use request::{CONTIGUOUS_BYTES_MAX, Request};
pub use writer::{Protocol, Writer, write_request};
