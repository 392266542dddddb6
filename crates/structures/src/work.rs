//! Hot path. Counts the work that structures do, so that latch holds have budgets that are counted,
//! not timed.
//!
//! Every structure reports what its operations visited, moved and allocated to counters of the
//! calling thread. Whoever opens a latch hold reads them before and after: the difference is the
//! work of the hold. A unit stands for roughly ten nanoseconds of a cold machine; the weights below
//! are measured orders of magnitude, not exact times.

use std::cell::Cell;

/// Units of visiting one node or entry that is probably not in the cache.
pub const UNITS_PER_NODE: u64 = 8;
/// Units of one call of the allocator, either way.
pub const UNITS_PER_ALLOCATION: u64 = 6;
/// Bytes copied, compared or hashed for one unit.
pub const BYTES_PER_UNIT: u64 = 64;

thread_local! {
    static UNITS: Cell<u64> = const { Cell::new(0) };
}

/// Adds `units` directly, for costs that are none of the kinds below (a wake-up, a push).
#[inline]
pub fn add(units: u64) {
    UNITS.with(|cell| cell.set(cell.get().wrapping_add(units)));
}

/// Reports `count` nodes, segments or entries visited.
#[inline]
pub fn nodes(count: usize) {
    add(count as u64 * UNITS_PER_NODE);
}

/// Reports `count` bytes copied, compared, hashed or zeroed.
#[inline]
pub fn bytes(count: usize) {
    add(count as u64 / BYTES_PER_UNIT);
}

/// Reports `count` allocations or frees.
#[inline]
pub fn allocations(count: usize) {
    add(count as u64 * UNITS_PER_ALLOCATION);
}

/// The units that this thread has counted since it started; only differences mean something.
#[inline]
pub fn counted() -> u64 {
    UNITS.with(Cell::get)
}
