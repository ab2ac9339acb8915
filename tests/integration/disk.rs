//! A disk that fails: it is full, or cannot sync, while the server appends to its AOF or writes a snapshot. No client
//! gets a grant that the server forgets while `appendfsync always` is set, a server that refuses writes changes no lock
//! and keeps its queues, and after a torn write each lock is as before that write or as after it.

mod always;
mod backup;
mod refusing;
mod torn;

use std::fs;
use std::path::{Path, PathBuf};
use testkit::temp_dir;

/// A directory that several servers use in turn.
struct Data(PathBuf);

impl Data {
    fn new() -> Self {
        Data(temp_dir())
    }

    /// The AOF that the server appends to; before 7.0 its only file.
    fn aof(&self) -> PathBuf {
        let files = fs::read_dir(self.0.join("appendonlydir")).ok();
        let mut files = files.into_iter().flatten().map(|file| file.unwrap().path());
        let appended = files.find(|file| file.to_string_lossy().contains(".incr."));
        appended.unwrap_or_else(|| self.0.join("appendonly.aof"))
    }

    /// A copy of all files, in which the AOF has only its first `length` bytes.
    fn cut(&self, length: u64) -> Self {
        let copy = Self::new();
        copy_all(&self.0, &copy.0);
        fs::File::options().write(true).open(copy.aof()).unwrap().set_len(length).unwrap();
        copy
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy_all(&file.path(), &target);
        } else {
            fs::copy(file.path(), target).unwrap();
        }
    }
}
