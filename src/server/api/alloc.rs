//! Memory comes from the server, so that its `used_memory` and limits include it.
//!
//! Outside a server (in tests of the pure core) the server's allocator is missing, and the system's is used. In a
//! server the first allocation happens after the API is available, so the two never mix.
//!
//! The server aligns its blocks to a word, and not always to more: if it was built without jemalloc against musl, it
//! puts a word of its own before each block of the C library. Rust reads hash tables 16 bytes at a time, which crashes
//! at other addresses.

use redis_module::alloc::RedisAlloc;
use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

const WORD: usize = size_of::<usize>();

fn in_server() -> bool {
    // SAFETY: the pointer is written once, when the module is loaded, before anything else runs.
    unsafe { (&raw const raw::RedisModule_Alloc).read().is_some() }
}

/// The server's block in which one of this layout fits at any start, with a word before it.
fn larger(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().checked_add(layout.align())?, WORD).ok()
}

/// The word before a block, in which its start is noted.
#[allow(clippy::cast_ptr_alignment, reason = "only for blocks that are aligned to more than a word")]
const fn word_before(block: *mut u8) -> *mut *mut u8 {
    block.cast::<*mut u8>().wrapping_sub(1)
}

/// The distance from an address that is aligned to a word to the next one that is aligned to more: at least a word.
fn distance(start: usize, align: usize) -> usize {
    align.wrapping_sub(start & align.wrapping_sub(1))
}

// SAFETY: both allocators keep the contract, and one process uses only one of them for a block:
// the API pointer is set before the first allocation of a loaded module and never cleared.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !in_server() {
            // SAFETY: the caller's promise about `layout` is passed on.
            return unsafe { System.alloc(layout) };
        }
        if layout.align() <= WORD {
            // SAFETY: as above.
            return unsafe { RedisAlloc.alloc(layout) };
        }
        let Some(larger) = larger(layout) else { return ptr::null_mut() };
        // SAFETY: `larger` is not empty, because the alignment counts towards its size.
        let start = unsafe { RedisAlloc.alloc(larger) };
        if start.is_null() {
            return start;
        }
        // SAFETY: the distance is at most the alignment, so the block ends inside the larger one; it is at least a
        // word, so `start` fits before the block, where it is aligned.
        unsafe {
            let block = start.add(distance(start.addr(), layout.align()));
            word_before(block).write(start);
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !in_server() {
            // SAFETY: `block` came from `alloc` above, in the same process, so from this allocator.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: as above; with this alignment, `alloc` wrote the start of the server's block before it.
        let start = if layout.align() <= WORD { block } else { unsafe { word_before(block).read() } };
        // SAFETY: the server's block starts there. RedisAlloc does not read the layout.
        unsafe { RedisAlloc.dealloc(start, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_aligned_and_has_a_word_before_it() {
        for align in [16, 32, 4096] {
            for start in (65536..65536 + 2 * align).step_by(WORD) {
                let distance = distance(start, align);
                assert_eq!((start + distance) % align, 0, "{start} {align}");
                assert!((WORD..=align).contains(&distance), "{start} {align}: {distance}");
            }
        }
    }

    #[test]
    fn a_layout_that_cannot_grow_is_refused() {
        let largest = Layout::from_size_align(isize::MAX.unsigned_abs() - 15, 16).unwrap();
        assert_eq!(larger(largest), None);
        assert_eq!(larger(Layout::from_size_align(100, 16).unwrap()).unwrap().size(), 116);
    }
}
