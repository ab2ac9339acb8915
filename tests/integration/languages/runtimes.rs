//! The languages on this machine, and how to start their programs.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::factory::install;

/// A language whose program can be started.
pub struct Language {
    pub name: &'static str,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    /// Versions of RESP that its client library speaks.
    pub protocols: &'static [u8],
}

/// The languages that are installed. Tells once which are, and what the others lack.
pub fn languages() -> &'static [Language] {
    static LANGUAGES: OnceLock<Vec<Language>> = OnceLock::new();
    LANGUAGES.get_or_init(|| {
        let all = [("rust", rust())];
        let mut found = Vec::new();
        for (name, start) in all {
            match start {
                Ok(start) => found.push(Language { name, ..start }),
                Err(why) => say(&format!("languages: {name} is skipped: {why}")),
            }
        }
        let names: Vec<_> = found.iter().map(|language| language.name).collect();
        say(&format!("languages: running {}", names.join(", ")));
        found
    })
}

/// Past the capture of the test runner, which shows nothing of a test that passes.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn started(program: PathBuf, args: Vec<OsString>) -> Language {
    Language { name: "", program, args, env: Vec::new(), protocols: &[2, 3] }
}

fn rust() -> Result<Language, String> {
    install::example("lock-driver").map(|program| started(program, Vec::new()))
}
