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
        let all = [("php", php())];
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

/// phpredis 5 speaks RESP2 only. Without threads, its program calls `check` while it waits for orders.
fn php() -> Result<Language, String> {
    let args = vec!["-d".into(), "display_errors=stderr".into(), install::sources().join("driver.php").into()];
    Ok(Language { protocols: &[2], ..started(install::php()?, args) })
}
