//! A server that is started from a configuration file, and can rewrite it.

use super::{server_binary, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Listens on a socket in its folder, so that no port has to be free; killed when dropped.
pub struct Configured {
    dir: PathBuf,
    child: Option<Child>,
}

impl Configured {
    /// Writes the configuration; [`Self::start`] starts it.
    pub fn new(dir: &Path, more: &str) -> Self {
        let at = dir.display();
        let text = format!("port 0\nunixsocket {at}/socket\ndir {at}\nlogfile {at}/log\nsave \"\"\n{more}");
        fs::write(dir.join("redis.conf"), text).unwrap();
        Configured { dir: dir.to_path_buf(), child: None }
    }

    pub fn conf(&self) -> PathBuf {
        self.dir.join("redis.conf")
    }

    pub fn text(&self) -> String {
        fs::read_to_string(self.conf()).unwrap()
    }

    pub fn start(&mut self) {
        let silent = || Stdio::null();
        let mut child = Command::new(server_binary())
            .arg(self.conf())
            .stdin(silent())
            .stdout(silent())
            .stderr(silent())
            .spawn()
            .expect("the server binary can be run");
        let answers = until("the server answers, or ends", || {
            if child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            self.try_call::<String>(&["PING"]).is_ok().then_some(true)
        });
        self.child = Some(child);
        assert!(answers, "{}\n{}", self.text(), fs::read_to_string(self.dir.join("log")).unwrap_or_default());
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.dir.join("socket"));
    }

    /// Whether it is a Redis 6, which has no CONFIG of modules.
    pub fn is_6(&self) -> bool {
        self.call::<String>(&["INFO", "server"]).contains("redis_version:6.")
    }

    pub fn try_call<T: redis::FromRedisValue>(&self, args: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis+unix://{}", self.dir.join("socket").display()))?;
        let mut command = redis::Cmd::new();
        command.arg(args);
        command.query(&mut client.get_connection()?)
    }

    pub fn call<T: redis::FromRedisValue>(&self, args: &[&str]) -> T {
        self.try_call(args).unwrap()
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        self.stop();
    }
}
