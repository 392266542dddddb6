//! The data structures, and the only `unsafe` code of the project besides the server's allocator
//! wrapper, cycle counter and pacers.
//!
//! The modules are listed in the order in which to read them: [`work`] (how the cost of an operation
//! is counted), [`hash`], then one file per structure.

pub mod work;
mod cache;
pub mod hash;
pub mod table;
pub mod object;
pub mod packed;
pub mod tree;
pub mod list;
pub mod members;
pub mod big_string;
