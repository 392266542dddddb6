//! The server: workers with their sockets, the two lanes' threads, memory, signals.
//!
//! The modules are listed in the order in which to read them.

mod run;
mod worker;
mod activity;
mod connection;
mod limits;
mod lanes;
mod pacer;
mod effect_stream;
mod listener;
mod cycles;
mod allocator;
mod memory;

pub use allocator::CountingAllocator;
pub use engine::keyspace::key::ShardBy;
pub use run::{Options, StartError, run};
