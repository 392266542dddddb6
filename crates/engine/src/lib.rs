//! The database: shards, types, commands, sessions, effects. No socket, file, clock or thread of
//! its own: time, randomness and bytes come in, effects go out.
//!
//! The modules are listed in their order of dependence: each uses only those before it.

pub mod sync;
pub mod errors;
pub mod parse;
pub mod glob;
pub mod lanes;
pub mod observe;
pub mod output;
pub mod effects;
pub mod keyspace;
pub mod control;
pub mod settings;
pub mod types;
pub mod execution;
pub mod commands;
