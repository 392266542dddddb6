//! The server: workers with their sockets, the two lanes' threads, memory, signals.
//!
//! Suggested reading order: [`run`], `worker` (one turn), `connection`.

mod allocator;
mod connection;
mod cycles;
mod effect_stream;
mod lanes;
mod limits;
mod listener;
mod memory;
mod run;
mod worker;

pub use allocator::CountingAllocator;
pub use engine::keyspace::key::ShardBy;
pub use run::{Options, StartError, run};
