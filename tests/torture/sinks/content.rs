//! A server's complete content, to compare it with another server: every key with its value and its expiry, and the
//! server's own digest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use testkit::{until, Conn, Reply, Server};

/// The databases that the clients use.
const DATABASES: [&str; 2] = ["0", "1"];

/// A server's content.
#[derive(Debug, PartialEq)]
pub struct Content {
    /// By database and key: the value, and its expiry.
    keys: BTreeMap<(String, String), (Reply, i64)>,
    digest: String,
}

impl Content {
    pub fn of(server: &Server) -> Self {
        let mut conn = server.conn();
        let mut keys = BTreeMap::new();
        for db in DATABASES {
            conn.ok(&["SELECT", db]);
            for key in conn.execute(&["KEYS", "*"]).list() {
                let key = key.text();
                let value = match conn.text(&["TYPE", &key]).as_str() {
                    "zset" => conn.execute(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                    _ => conn.execute(&["GET", &key]),
                };
                let end = conn.int(&["PEXPIRETIME", &key]);
                keys.insert((db.to_string(), key), (value, end));
            }
        }
        Self { keys, digest: conn.text(&["DEBUG", "DIGEST"]) }
    }

    /// Reads the content once nothing changes, after the remaining waits and sessions have ended.
    pub fn at_rest(server: &Server) -> Self {
        let mut last = Self::of(server);
        until("the server is at rest", || {
            std::thread::sleep(std::time::Duration::from_millis(40));
            let now = Self::of(server);
            let is_at_rest = now == last && server.conn().info("lock", "lock_waiters")? == "0";
            last = now;
            is_at_rest.then_some(())
        });
        last
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The differences from another server: a few lines, or none.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let all: std::collections::BTreeSet<_> = self.keys.keys().chain(other.keys.keys()).collect();
        let mut found: Vec<String> = all
            .into_iter()
            .filter(|key| self.keys.get(key) != other.keys.get(key))
            .map(|key| format!("{key:?}: {:?} is not {:?}", self.keys.get(key), other.keys.get(key)))
            .collect();
        if found.is_empty() && self.digest != other.digest {
            found.push(format!("digest {} is not {}", self.digest, other.digest));
        }
        found
    }
}

/// Everything on a server must also be on the one that it replicates to, and no LOCK.* command may have reached that
/// one.
pub fn assert_same(what: &str, master: &Content, other: &Server) {
    let differences = master.differences(&Content::of(other));
    let shown = differences.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{what}: {} differences\n{shown}\n{}", differences.len(), other.log_tail(10));
    let refused = other.conn().info("lock", "lock_replicated_refused").unwrap();
    assert_eq!(refused, "0", "{what}: LOCK.* commands were replicated\n{}", other.log_tail(10));
}

/// A server that has loaded a copy of another server's AOF.
pub fn reloaded(aof: &Path) -> Server {
    let dir = testkit::temp_dir();
    fs::create_dir(dir.join("appendonlydir")).unwrap();
    for file in fs::read_dir(aof.join("appendonlydir")).unwrap() {
        let file = file.unwrap();
        let bytes = fs::read(file.path()).unwrap();
        let has_lock = bytes.windows(7).any(|window| window.eq_ignore_ascii_case(b"\r\nLOCK."));
        assert!(!has_lock, "{} has a LOCK.* command", file.path().display());
        fs::write(dir.join("appendonlydir").join(file.file_name()), bytes).unwrap();
    }
    let server = super::server(&[]).args(&["--appendonly", "yes"]).dir(&dir).start();
    server.conn().ok(&["CONFIG", "SET", "appendonly", "no"]);
    // The files have been read; what is open stays until the server ends.
    fs::remove_dir_all(&dir).unwrap();
    server
}

/// Waits until no child runs and the AOF, if there is one, is complete.
pub fn until_aof_is_complete(conn: &mut Conn) {
    until("the AOF is complete", || {
        let info = conn.execute(&["INFO", "persistence"]);
        let fields = ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress"];
        fields.iter().all(|name| info.line(name).as_deref() == Some("0")).then_some(())
    });
}
