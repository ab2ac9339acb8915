//! The library that moves the clocks of a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `clock_shim.c`, compiled on first use; nothing without a C compiler.
pub fn shim() -> Option<&'static Path> {
    static SHIM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/clock_shim.c");
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock_shim-{}.so", std::process::id()));
        let args = ["-std=gnu11", "-shared", "-fPIC", "-O2", "-o"];
        let status = Command::new("cc").args(args).arg(&made).arg(source).status().ok()?;
        assert!(status.success(), "the clock shim does not compile");
        Some(made)
    };
    SHIM.get_or_init(compile).as_deref()
}
