//! The data structures, and the only `unsafe` code of the project besides the server's allocator
//! wrapper and cycle counter.
//!
//! The modules are listed in the order in which to read them: [`work`] (how the cost of an operation
//! is counted), [`hash`], then one file per structure.

pub mod work;
pub mod hash;
pub mod table;
pub mod object;
pub mod packed;
pub mod tree;
pub mod list;
pub mod members;
pub mod big_string;
