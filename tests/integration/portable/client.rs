//! How a client calls the portable lock: what it loads, and how it sends a command.

use testkit::{project_file, Conn, Reply};

/// The file as it is loaded as a library.
pub fn library() -> String {
    project_file("portable/lock.lua")
}

/// The file as it is loaded as a script: without its first line.
pub fn script() -> String {
    let library = library();
    library.split_once('\n').expect("more than one line").1.to_string()
}

/// The library function that implements a command.
fn function(command: &str) -> String {
    command.to_lowercase().replace('.', "_")
}

/// A lock's second key, in the same slot.
fn queue_of(lock: &str) -> String {
    if lock.contains('{') {
        format!("{lock}:queue")
    } else {
        format!("{lock}:queue:{{{lock}}}")
    }
}

/// A way to call the lock.
#[derive(Clone, Debug)]
pub enum Way {
    /// FCALL.
    Function,
    /// EVALSHA, with the script's SHA-1 digest.
    Script(String),
}

/// Loads the portable lock in all ways that the server supports.
pub fn load(conn: &mut Conn) -> Vec<Way> {
    let mut ways = vec![Way::Script(conn.text(&["SCRIPT", "LOAD", &script()]))];
    match conn.execute(&["FUNCTION", "LOAD", "REPLACE", &library()]) {
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
    /// A call to a function with these keys, followed by arguments.
    fn with_keys(&self, name: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
        let count = keys.len().to_string();
        let head = match self {
            Self::Function => vec!["FCALL", name, &count],
            Self::Script(sha) => vec!["EVALSHA", sha, &count],
        };
        let named: &[&str] = if matches!(self, Self::Script(_)) { &[name] } else { &[] };
        [&head, keys, named, args].concat().into_iter().map(String::from).collect()
    }

    /// Like `with_keys`, with the usual margin and retention before the arguments.
    pub fn raw(&self, name: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
        self.with_keys(name, keys, &[&["1000", "60000"], args].concat())
    }

    /// `LOCK.ACQUIRE key PX 30000` as sent in this way, with this margin and retention.
    pub fn args<T: AsRef<str>>(&self, command: &[T], margin: &str, retention: &str) -> Vec<String> {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let (keys, rest) = if words.len() > 1 { (&words[1..2], &words[2..]) } else { (&words[1..], &words[1..]) };
        self.with_keys(&function(words[0]), keys, &[&[margin, retention], rest].concat())
    }

    /// Like `args`, with the lock's queue as the second key.
    pub fn queued_args<T: AsRef<str>>(&self, command: &[T], margin: &str, retention: &str) -> Vec<String> {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let keys = [words[1], &queue_of(words[1])];
        self.with_keys(&function(words[0]), &keys, &[&[margin, retention], &words[2..]].concat())
    }

    /// A command, split at single spaces, with its lock's queue as the second key.
    pub fn queued(&self, command: &str) -> Vec<String> {
        self.queued_args(&command.split(' ').collect::<Vec<_>>(), "1000", "60000")
    }

    /// `lock_acquire_all` and the like for several locks, with their queues.
    pub fn all(&self, name: &str, locks: &[&str], rest: &str) -> Vec<String> {
        let queues: Vec<String> = locks.iter().map(|lock| queue_of(lock)).collect();
        let keys: Vec<&str> = locks.iter().copied().chain(queues.iter().map(String::as_str)).collect();
        self.raw(&format!("lock_{}_all", name.to_lowercase()), &keys, &rest.split(' ').collect::<Vec<_>>())
    }

    /// A command with the usual margin and retention.
    pub fn usual<T: AsRef<str>>(&self, command: &[T]) -> Vec<String> {
        self.args(command, "1000", "60000")
    }

    /// Sends a command, split at single spaces, with the usual margin and retention.
    pub fn execute(&self, conn: &mut Conn, command: &str) -> Reply {
        conn.execute(&self.usual(&command.split(' ').collect::<Vec<_>>()))
    }
}
