//! A Sentinel group and a cluster switch to another module file, one server at a time, under load, and then back to the
//! first, as docs/UPGRADING.md says: no lock has two holders, and commands are refused only in the steps that it names.
//!
//! `LOCK_UPGRADE_FROM` names the file to start from; `scripts/upgrade-test.sh` builds it from an earlier commit. By
//! default it is another copy of the file under test.

mod cluster;
mod group;
mod removal;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use testkit::{module, temp_dir};

/// The file that servers load, which is replaced the way an installation does it: by another file of the same name.
pub struct ModuleFile {
    dir: PathBuf,
}

/// The two builds.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    Old,
    New,
}

impl ModuleFile {
    pub fn new() -> Self {
        let file = Self { dir: temp_dir() };
        file.install(Build::Old);
        file
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("libredis_lock.so")
    }

    /// Running servers keep the file that they loaded.
    pub fn install(&self, build: Build) {
        let from = match build {
            Build::Old => std::env::var_os("LOCK_UPGRADE_FROM").map_or_else(|| module().to_path_buf(), PathBuf::from),
            Build::New => module().to_path_buf(),
        };
        let beside = self.dir.join("new.so");
        fs::copy(&from, &beside).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&beside, self.path()).unwrap();
    }

    /// Whether the process runs the currently installed file.
    pub fn is_run_by(&self, pid: &str) -> bool {
        let inode = format!(" {} ", fs::metadata(self.path()).unwrap().ino());
        let maps = fs::read_to_string(Path::new("/proc").join(pid).join("maps")).unwrap_or_default();
        maps.lines().any(|line| line.contains("libredis_lock.so") && line.contains(&inode))
    }
}

impl Drop for ModuleFile {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
