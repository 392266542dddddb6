//! How commands are executed: sessions, rows, workers, and the steps of long commands.
//!
//! Suggested reading order: `command` (what a command is), `worker` (one that finishes at once),
//! `task` (one that does not), `session`, `engine` (what workers share), `expiry`.

pub mod command;

pub mod session;

pub mod worker;

pub mod task;

pub mod expiry;

pub mod engine;
