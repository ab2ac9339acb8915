//! A server's disk, which fails when a test says so: a preloaded library makes calls on certain files fail
//! (`disk_shim.c`). It needs no root and no file system of its own.

use super::{shared_object, skipped, Options};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The numbers in the file, as `disk_shim.c` lists them.
const FAULT: u64 = 0;
const AFTER: u64 = 1;
const FAILED: u64 = 2;
const NUMBERS: u64 = 4;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: a write fails with ENOSPC.
    Full = 1,
    /// The disk gets full in the middle of a write: half of it is written.
    FullHalfway = 2,
    /// The same, and the half cannot be removed from the file.
    Torn = 3,
    /// A write succeeds, and fsync fails with EIO.
    Sync = 4,
}

/// The part of a path by which an AOF is known.
pub const AOF: &str = ".aof";
/// The part of a path by which a snapshot is known while it is being written.
pub const SNAPSHOT: &str = "/temp-";

/// The disk of one server; its file is removed when dropped.
pub struct Disk {
    file: File,
    path: PathBuf,
    part: &'static str,
}

impl Disk {
    /// A disk that works, and can fail for files whose path contains `part`; `None`, and a message, without a C
    /// compiler.
    pub fn new(part: &'static str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(shim) = shared_object("disk_shim") else {
            skipped("a disk that fails", "there is no C compiler to build the library that makes it fail");
            return None;
        };
        let path = shim.with_extension(format!("{}.disk", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(8 * NUMBERS).unwrap();
        Some(Self { file, path, part })
    }

    /// Adds this disk to a server's options.
    pub fn of(&self, options: Options) -> Options {
        let shim = shared_object("disk_shim").unwrap();
        options.preload(shim).env("DISK_SHIM_FILE", self.path.to_str().unwrap()).env("DISK_SHIM_PART", self.part)
    }

    /// Each such call fails from now on.
    pub fn fail(&self, fault: Fault) {
        self.fail_after(fault, 0);
    }

    /// Each such call fails, except the first `calls`.
    pub fn fail_after(&self, fault: Fault, calls: u64) {
        self.set(AFTER, calls);
        self.set(FAULT, fault as u64);
    }

    /// The disk works again.
    pub fn mend(&self) {
        self.set(FAULT, 0);
    }

    /// How many calls have failed.
    pub fn failed(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 8 * FAILED).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, number: u64, to: u64) {
        self.file.write_all_at(&to.to_ne_bytes(), 8 * number).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
