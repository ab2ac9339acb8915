//! LOCK.* as calls to portable/lock.lua, for a server without the module. Every other client uses its functions, if
//! the server has them; the rest use the script.

use testkit::{project_file, Reply};

/// The arguments that all calls begin with: the setup's margin, and locks without an expiry, which `volatile-lru` does
/// not evict.
const TERMS: [&str; 2] = ["200", "-1"];

pub struct Script {
    library: String,
    /// The script's name on the server, once loaded.
    sha: String,
    uses_functions: bool,
}

impl Script {
    pub fn of(number: u32) -> Self {
        let library = project_file("portable/lock.lua");
        Self { library, sha: "0".repeat(40), uses_functions: number.is_multiple_of(2) }
    }

    /// The words of the call; `None` for a plain server command.
    pub fn words(&self, command: &[&str]) -> Option<Vec<String>> {
        let name = command[0].strip_prefix("LOCK.")?;
        let (function, locks, args) = match command {
            [_, count, rest @ ..] if name.starts_with('M') => {
                let (locks, args) = rest.split_at(count.parse().unwrap());
                (format!("lock_{}_all", name[1..].to_lowercase()), locks, args.to_vec())
            }
            [_, _, id, rest @ ..] if name == "CANCEL" => {
                ("lock_cancel".into(), &command[1..2], [&["ID", id], rest].concat())
            }
            // A call that cannot wait is sent without WAIT.
            [.., "WAIT", _] => (function(name), &command[1..2], command[2..command.len() - 2].to_vec()),
            _ => (function(name), &command[1..2], command[2..].to_vec()),
        };
        let queues: Vec<String> = locks.iter().map(|lock| queue_of(lock)).collect();
        let count = (locks.len() * 2).to_string();
        let head: &[&str] = if self.uses_functions { &["FCALL", &function] } else { &["EVALSHA", &self.sha] };
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        let named: &[&str] = if self.uses_functions { &[] } else { &[&function] };
        let words = [head, &[&count], locks, &queues, named, &TERMS, &args].concat();
        Some(words.into_iter().map(String::from).collect())
    }

    /// The command that loads what this reply reports as missing.
    pub fn load(&mut self, reply: &Reply) -> Option<Vec<String>> {
        let Reply::Error(text) = reply else { return None };
        if text.starts_with("ERR unknown command") && self.uses_functions {
            self.uses_functions = false;
        } else if text.starts_with("ERR Function not found") {
            return Some(vec!["FUNCTION".into(), "LOAD".into(), "REPLACE".into(), self.library.clone()]);
        } else if !text.starts_with("NOSCRIPT") {
            return None;
        }
        let script = self.library.split_once('\n').unwrap().1;
        Some(vec!["SCRIPT".into(), "LOAD".into(), script.into()])
    }

    /// Records the script's current name on the server.
    pub fn loaded(&mut self, reply: &Reply) {
        if let (Reply::Text(sha), false) = (reply, self.uses_functions) {
            self.sha = String::from_utf8(sha.clone()).unwrap();
        }
    }
}

fn function(name: &str) -> String {
    format!("lock_{}", name.to_lowercase())
}

/// The second key of a lock.
pub fn queue_of(lock: &str) -> String {
    if lock.contains('{') {
        format!("{lock}:queue")
    } else {
        format!("{lock}:queue:{{{lock}}}")
    }
}

/// The reply that the command would give.
pub fn reply(reply: Reply) -> Reply {
    match &reply {
        Reply::List(items) if items.first() == Some(&Reply::Text(b"WAITING".to_vec())) => {
            Reply::Status("WAITING".into())
        }
        _ => reply,
    }
}
