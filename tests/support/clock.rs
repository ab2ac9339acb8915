//! The library that moves the clocks of a server.

use crate::support::shared_object;
use std::path::Path;

/// `clock_shim.c`, compiled on first use; nothing without a C compiler.
pub fn shim() -> Option<&'static Path> {
    shared_object("clock_shim")
}
