//! Black-box tests: a harness that starts the server (and redis-server as the oracle), speaks the
//! protocol over real sockets, and makes random but reproducible commands.
//!
//! The tests themselves are in `tests/`, one file per subject. They run the server's binary, so
//! they need one: `cargo xtask test` builds it and runs them. Variables that change a run:
//!
//! | variable | meaning |
//! |---|---|
//! | `EVENKEEL_BIN` | the binary; without it `target/quick/evenkeel` |
//! | `EVENKEEL_COMMAND` | another server's whole command, such as `redis-server --enable-debug-command yes` |
//! | `EVENKEEL_SEED` | the first random number; a failure prints the one it used |
//! | `EVENKEEL_COMMANDS` | random commands per protocol in the differential test |
//! | `EVENKEEL_HISTORY` | commands that the differential test shows before a difference |
//! | `EVENKEEL_EFFECTS` | random commands in the effect stream test |
//! | `EVENKEEL_TEST_SECONDS` | seconds of random bytes |
//! | `EVENKEEL_PIPELINE_MB` | megabytes of requests sent before the first reply is read |
//! | `EVENKEEL_LARGE` | elements of the large collections |
//! | `EVENKEEL_PYTHON` | a python that has redis-py |
//!
//! Suggested reading order: the modules as listed.

pub mod settings;

pub mod reply;

pub mod client;

pub mod server;

pub mod transcript;

pub mod random;

pub mod generate;

pub mod judge;

pub mod differential;

pub mod dataset;

pub mod probe;
