//! The data structures, and the only `unsafe` code of the project besides the server's allocator
//! wrapper and cycle counter.
//!
//! Suggested reading order: [`work`] (how the cost of an operation is counted), [`hash`], then one
//! file per structure.

pub mod big_string;
pub mod hash;
pub mod list;
pub mod members;
pub mod object;
pub mod packed;
pub mod table;
pub mod tree;
pub mod work;
