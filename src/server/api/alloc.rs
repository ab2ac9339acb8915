//! Memory comes from the server, so that its `used_memory` and limits include it.
//!
//! Outside a server (in tests of the pure core) the server's allocator is missing, and the system's is used. In a
//! server the first allocation happens after the API is available, so the two never mix.

use redis_module::alloc::RedisAlloc;
use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};

struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

fn in_server() -> bool {
    // SAFETY: the pointer is written once, when the module is loaded, before anything else runs.
    unsafe { (&raw const raw::RedisModule_Alloc).read().is_some() }
}

// SAFETY: both allocators keep the contract, and one process uses only one of them for a block:
// the API pointer is set before the first allocation of a loaded module and never cleared.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if in_server() {
            // SAFETY: the caller's promise about `layout` is passed on.
            unsafe { RedisAlloc.alloc(layout) }
        } else {
            // SAFETY: as above.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if in_server() {
            // SAFETY: `block` came from `alloc` above, in the same process, so from this allocator.
            unsafe { RedisAlloc.dealloc(block, layout) }
        } else {
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) }
        }
    }
}
