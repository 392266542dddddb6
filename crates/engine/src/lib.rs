//! The database: shards, types, commands, sessions, effects. No socket, file, clock or thread of
//! its own: time, randomness and bytes come in, effects go out.
//!
//! Suggested reading order: [`keyspace`], [`command`], [`worker`], [`task`], then any family in
//! `commands`.

pub mod command;
pub mod commands;
pub mod control;
pub mod effects;
pub mod engine;
pub mod errors;
pub mod expiry;
pub mod glob;
pub mod keyspace;
pub mod lanes;
pub mod observe;
pub mod output;
pub mod session;
pub mod settings;
pub mod sync;
pub mod task;
pub mod types;
pub mod worker;
