//! The allocator: jemalloc, with what is allocated counted per thread, and a reserve of touched
//! pages for nodes of 4 KiB.
//!
//! jemalloc was chosen because its size classes are exact for the layouts of `structures` and its
//! background thread returns memory to the system, so that no worker ever does. The counters sum
//! size classes, not requests: used memory is then what the process really takes.
//!
//! It is told to cut nodes of 4 KiB out of runs of eight pages: by itself it keeps a record of 128
//! bytes for each of them, 3 % of a list.
//!
//! The reserve exists because the first touch of a page is a fault of a microsecond or, on a busy
//! host, a hundred: a worker refills it between turns, and a node that is allocated under a latch
//! comes from it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use tikv_jemallocator::Jemalloc;

/// jemalloc's configuration, under the name by which it finds it: a pointer to a C string.
#[used]
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 23] = b"slab_sizes:4096-4096:8\0";

/// Counters; threads beyond share them.
const COUNTERS: usize = 64;

/// The size of a node that comes from the reserve.
const NODE_BYTES: usize = 4096;

/// Smaller requests than this are of another size class.
const NODE_BYTES_MIN: usize = 3584 + 1;

/// Nodes of a full reserve: more than a connection's batch of requests, or a step, uses up.
const RESERVE_NODES: usize = 128;

#[repr(align(128))]
struct Counter(AtomicI64);

static ALLOCATED: [Counter; COUNTERS] = [const { Counter(AtomicI64::new(0)) }; COUNTERS];
static NEXT_COUNTER: AtomicUsize = AtomicUsize::new(0);

/// Nodes whose pages have been touched.
struct Reserve {
    nodes: [*mut u8; RESERVE_NODES],
    count: usize,
}

thread_local! {
    static COUNTER: Cell<usize> = const { Cell::new(usize::MAX) };
    static RESERVE: UnsafeCell<Reserve> =
        const { UnsafeCell::new(Reserve { nodes: [std::ptr::null_mut(); RESERVE_NODES], count: 0 }) };
}

/// The process's allocator; the binary declares it with `#[global_allocator]`.
pub struct CountingAllocator;

/// Bytes allocated now, by size class.
pub(crate) fn allocated_bytes() -> u64 {
    let sum: i64 = ALLOCATED.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
    sum.max(0) as u64
}

/// The same as [`refill_reserve`] when half of it is used up.
#[inline]
pub(crate) fn top_up_reserve() {
    // SAFETY: only this thread reaches the cell, and nothing is called while the reference lives.
    let count = RESERVE.with(|reserve| unsafe { (*reserve.get()).count });
    if count < RESERVE_NODES / 2 {
        refill_reserve();
    }
}

/// Fills the calling thread's reserve with touched nodes. Called outside of latches.
pub(crate) fn refill_reserve() {
    let Ok(layout) = Layout::from_size_align(NODE_BYTES, NODE_BYTES) else { return };
    RESERVE.with(|reserve| {
        // SAFETY: only this thread reaches the cell, and nothing below comes back to it: the
        // allocation goes to jemalloc directly.
        let reserve = unsafe { &mut *reserve.get() };
        while reserve.count < RESERVE_NODES {
            // SAFETY: the layout has a size; the node is ours to write to.
            let node = unsafe {
                let node = Jemalloc.alloc(layout);
                if node.is_null() {
                    return;
                }
                node.write_volatile(0);
                node
            };
            reserve.nodes[reserve.count] = node;
            reserve.count += 1;
        }
    });
}

fn from_reserve() -> *mut u8 {
    RESERVE.with(|reserve| {
        // SAFETY: as above; nothing is called while the reference lives.
        let reserve = unsafe { &mut *reserve.get() };
        if reserve.count == 0 {
            return std::ptr::null_mut();
        }
        reserve.count -= 1;
        reserve.nodes[reserve.count]
    })
}

#[inline]
fn count(bytes: i64) {
    let mut index = COUNTER.get();
    if index == usize::MAX {
        index = NEXT_COUNTER.fetch_add(1, Ordering::Relaxed);
        COUNTER.set(index);
    }
    let counter = &ALLOCATED[index % COUNTERS].0;
    if index < COUNTERS {
        counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    } else {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The size class of jemalloc: steps of 16 bytes up to 128, then four per doubling.
#[inline]
fn size_class(bytes: usize) -> i64 {
    if bytes <= 128 {
        return ((bytes + 15) & !15) as i64;
    }
    let step = 1usize << (usize::BITS - (bytes - 1).leading_zeros() - 3);
    ((bytes + step - 1) & !(step - 1)) as i64
}

// SAFETY: every call goes to jemalloc with the same layout, or gives out a node of the reserve,
// which jemalloc allocated with at least the size and alignment that are asked for and of the same
// size class, so that freeing it with the caller's layout is what jemalloc expects.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size_class(layout.size()));
        if (NODE_BYTES_MIN..=NODE_BYTES).contains(&layout.size()) && layout.align() <= NODE_BYTES {
            let node = from_reserve();
            if !node.is_null() {
                return node;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { Jemalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size_class(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size_class(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(size_class(new_size) - size_class(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { Jemalloc.realloc(pointer, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        for (bytes, class) in [
            (1, 16),
            (16, 16),
            (17, 32),
            (48, 48),
            (128, 128),
            (129, 160),
            (160, 160),
            (161, 192),
            (257, 320),
            (1024, 1024),
            (1025, 1280),
            (3585, 4096),
            (4096, 4096),
            (4097, 5120),
            (20_000, 20_480),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, (1 << 20) + (1 << 18)),
        ] {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }
}
