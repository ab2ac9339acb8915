//! A mutant, as described by a file in `tests/mutants`: the bug, the edits that put it into the product, and the tests
//! that must find it. It is applied to a copy of the tree, never to the product itself.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

/// The folder of the files.
pub const FOLDER: &str = "tests/mutants";
/// The prefix of the names of the model's tests.
const MODEL: &str = "model/";

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// The bug, in one line.
    pub what: String,
    /// Each of them must fail.
    pub tests: Vec<Test>,
    /// For a memory mutant: what the sanitizer must report when the tests run. The tests need not fail.
    pub report: Option<String>,
    /// The edits that create it.
    #[serde(rename = "edit")]
    pub edits: Vec<Edit>,
}

/// A change to a file of the product.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The file, relative to the root.
    pub file: String,
    /// A text that occurs once.
    pub find: String,
    /// The replacement.
    pub replace: String,
}

/// Where a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// `tests/integration`: tests of the module on a server.
    Integration,
    /// `core/tests/model`: tests of the core on a fake server.
    Model,
}

/// A test, by its full name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Test {
    /// The test binary.
    pub suite: Suite,
    /// Its name within the binary.
    pub name: String,
}

impl From<String> for Test {
    fn from(text: String) -> Self {
        match text.strip_prefix(MODEL) {
            Some(name) => Self { suite: Suite::Model, name: name.into() },
            None => Self { suite: Suite::Integration, name: text },
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.suite == Suite::Model { MODEL } else { "" };
        write!(out, "{prefix}{}", self.name)
    }
}

impl Mutant {
    /// Parses one file.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mutant: Self = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { name: name.into(), ..mutant })
    }

    /// Reads all files, in the order of their names.
    ///
    /// # Errors
    /// Says what is wrong with the first file that cannot be read.
    pub fn all(root: &Path) -> Result<Vec<Self>, String> {
        let folder = root.join(FOLDER);
        let entries = fs::read_dir(&folder).map_err(|error| format!("{FOLDER}: {error}"))?;
        let mut mutants = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| format!("{FOLDER}: {error}"))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(name) = name.strip_suffix(".toml") else {
                return Err(format!("{FOLDER}/{name}: it is not a .toml"));
            };
            let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
            mutants.push(Self::parse(name, &text)?);
        }
        mutants.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(mutants)
    }

    /// The changed files with the mutant applied. `read` returns the original text of a file.
    ///
    /// # Errors
    /// Names the edit that no longer fits.
    pub fn changed(&self, read: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<&str, String>, String> {
        let mut changed = BTreeMap::new();
        for Edit { file, find, replace } in &self.edits {
            let wrong = |what: &str| format!("{}: {file}: {what}: {find:?}", self.name);
            let text =
                changed.remove(file.as_str()).or_else(|| read(file)).ok_or_else(|| wrong("there is no such file"))?;
            match text.matches(find.as_str()).count() {
                _ if find == replace => return Err(wrong("replaced by the same")),
                _ if find.trim().is_empty() => return Err(wrong("nothing to find")),
                1 => changed.insert(file.as_str(), text.replace(find.as_str(), replace)),
                0 => return Err(wrong("not found")),
                count => return Err(wrong(&format!("found {count} times"))),
            };
        }
        Ok(changed)
    }
}
