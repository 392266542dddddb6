//! Hot path. The keyed hash that every table of the process uses.
//!
//! One seed for the process, set once before the first table is filled. Different structures use
//! different bits of the 64 (see the drawing in each file), so a segment never sees keys whose
//! remaining bits are all equal.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;

/// The process-wide seed. Zero until [`set_seed`]: tests are then reproducible.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Sets the seed of [`hash`]. Call it once, before any table holds an entry: an entry hashed with
/// another seed is never found again.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// The 64-bit hash of a key or member. All 64 bits are well mixed.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(SEED.load(Ordering::Relaxed)).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}
