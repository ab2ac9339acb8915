//! A server's clocks, moved by a test: a preloaded library adds the values in a file (`clock_shim.c`).

use super::{shared_object, skipped, Options};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The file of one server; removed when dropped.
pub struct Clocks {
    file: File,
    path: PathBuf,
}

impl Clocks {
    /// Clocks with these numbers, as `clock_shim.c` lists them; `None`, and a message, without a C compiler.
    pub fn new(numbers_us: &[i64]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(shim) = shared_object("clock_shim") else {
            skipped("clocks that move", "there is no C compiler to build the library that moves them");
            return None;
        };
        let path = shim.with_extension(format!("{}.clocks", COUNT.fetch_add(1, Ordering::Relaxed)));
        let clocks = Self { file: File::create(&path).unwrap(), path };
        clocks.set(0, numbers_us);
        Some(clocks)
    }

    /// Adds these clocks to a server's options.
    pub fn of(&self, options: Options) -> Options {
        let shim = shared_object("clock_shim").unwrap();
        options.preload(shim).env("CLOCK_SHIM_FILE", self.path.to_str().unwrap())
    }

    /// Sets the numbers from index `first` on, in one write: the server never sees only part of it.
    pub fn set(&self, first: u64, numbers_us: &[i64]) {
        let bytes: Vec<u8> = numbers_us.iter().flat_map(|us| us.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 8 * first).unwrap();
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
