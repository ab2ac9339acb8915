//! A copy of the tree to which mutants are applied: the original is never changed.

use crate::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

/// The folder where everything is copied and built.
#[must_use]
pub fn target() -> PathBuf {
    crate::target().join("mutants")
}

/// A copy of the tree.
pub struct Tree(pub PathBuf);

impl Tree {
    /// Copies the files that git does not ignore, and removes all others. Unchanged files keep their timestamps, so
    /// that they are not rebuilt.
    pub fn copy(folder: PathBuf) -> Result<Self, String> {
        let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listed = output_of(Command::new("git").args(listed).current_dir(root()))?;
        let names: BTreeSet<&str> = listed.split('\0').filter(|name| root().join(name).is_file()).collect();
        let tree = Self(folder);
        tree.remove_others(&tree.0, &names).map_err(|error| format!("{}: {error}", tree.0.display()))?;
        names.iter().try_for_each(|name| tree.take(name))?;
        Ok(tree)
    }

    fn remove_others(&self, folder: &Path, names: &BTreeSet<&str>) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&self.0).ok().and_then(Path::to_str);
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if !name.is_some_and(|name| names.contains(name)) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Copies a file from the original.
    pub fn take(&self, name: &str) -> Result<(), String> {
        let original = fs::read(root().join(name)).map_err(|error| format!("{name}: {error}"))?;
        self.put(name, &original)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.0.join(name);
        if fs::read(&path).is_ok_and(|present| present == bytes) {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, bytes));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The output of a command, if it succeeded.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr)));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
