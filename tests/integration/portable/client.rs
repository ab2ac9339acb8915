//! How a client calls the portable lock: what it loads, and how it sends a command.

use crate::support::{project_file, Conn, Reply};

/// The file as it is loaded as a library.
pub fn library() -> String {
    project_file("portable/lock.lua")
}

/// The file as it is loaded as a script: without its first line.
pub fn script() -> String {
    let library = library();
    library.split_once('\n').expect("more than one line").1.to_string()
}

/// A way to call it.
#[derive(Clone, Debug)]
pub enum Way {
    /// FCALL.
    Function,
    /// EVALSHA, with this name of the script.
    Script(String),
}

/// Loads it in all ways that the server has.
pub fn load(conn: &mut Conn) -> Vec<Way> {
    let mut ways = vec![Way::Script(conn.text(&["SCRIPT", "LOAD", &script()]))];
    match conn.call(&["FUNCTION", "LOAD", "REPLACE", &library()]) {
        Reply::Text(name) => {
            assert_eq!(name, b"redis_lock");
            ways.push(Way::Function);
        }
        Reply::Error(text) => assert!(text.contains("unknown command"), "{text}"),
        other => panic!("{other:?}"),
    }
    ways
}

impl Way {
    /// `LOCK.ACQUIRE key PX 30000` as it is sent in this way, with this margin and retention.
    pub fn args<T: AsRef<str>>(&self, command: &[T], margin: &str, retention: &str) -> Vec<String> {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let name = words[0].to_lowercase().replace('.', "_");
        let (keys, rest) = if words.len() > 1 { (&words[1..2], &words[2..]) } else { (&words[1..], &words[1..]) };
        let (count, terms) = (keys.len().to_string(), [margin, retention]);
        let head = match self {
            Self::Function => vec!["FCALL", &name, &count],
            Self::Script(sha) => vec!["EVALSHA", sha, &count],
        };
        let named: &[&str] = if matches!(self, Self::Script(_)) { &[&name] } else { &[] };
        [&head, keys, named, &terms, rest].concat().into_iter().map(String::from).collect()
    }

    /// A command with the usual margin and retention.
    pub fn usual<T: AsRef<str>>(&self, command: &[T]) -> Vec<String> {
        self.args(command, "1000", "60000")
    }

    /// Sends a command, cut at single spaces, with the usual margin and retention.
    pub fn call(&self, conn: &mut Conn, command: &str) -> Reply {
        conn.call(&self.usual(&command.split(' ').collect::<Vec<_>>()))
    }
}
