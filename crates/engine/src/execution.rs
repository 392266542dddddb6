//! How commands are executed: sessions, rows, workers, and the steps of long commands.
//!
//! Suggested reading order: `command` (what a command is), `session`, `worker` (a command that
//! finishes at once), `batch` (the next ones of a pipeline), `task` (one that does not finish at
//! once), `unfinished` (what barriers wait for), `expiry`, `engine` (what workers share).

pub mod command;
pub mod session;
pub mod worker;
pub mod batch;
pub mod task;
pub mod unfinished;
pub mod expiry;
pub mod engine;
