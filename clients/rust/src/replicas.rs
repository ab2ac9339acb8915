//! Checks after a grant that enough replicas have it, or wrote it to disk.

use redis::{Cmd, Value};

use crate::attempt::Attempt;
use crate::clock::milliseconds;
use crate::error::Kind;
use crate::failures::{Failure, number};

impl Attempt {
    /// Fails unless enough replicas, or disks, have the grant.
    pub(crate) async fn confirm(&mut self) -> Result<(), Failure> {
        let settings = self.request.settings.clone();
        let replicas = i64::from(settings.replicas);
        if replicas > 0 {
            let reply = self.confirmed(&["WAIT"], settings.replicas).await?;
            let have = number(&reply).unwrap_or(0);
            if have < replicas {
                let reason = format!("{have} of {replicas} replicas have the grant; the lock was released");
                return Err(self.error(Kind::Unavailable, reason));
            }
        }
        if settings.fsync {
            let reply = self.confirmed(&["WAITAOF", "1"], settings.replicas).await?;
            let have = match &reply {
                Value::Array(counts) => counts.iter().filter_map(number).fold(0, i64::saturating_add),
                _ => 0,
            };
            let want = replicas.saturating_add(1);
            if have < want {
                let reason = format!("{have} of {want} servers wrote the grant to disk; the lock was released");
                return Err(self.error(Kind::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// A server that cannot confirm, because it lacks WAITAOF or an AOF, is of no use for this lock.
    async fn confirmed(&mut self, words: &[&str], replicas: u32) -> Result<Value, Failure> {
        let Some(connection) = self.connection.clone() else {
            return Err(Failure::broken("the connection that got the grant has closed"));
        };
        let within = self.request.settings.within;
        let mut cmd = Cmd::new();
        cmd.arg(words).arg(replicas).arg(milliseconds(within));
        let timeout = within.saturating_add(self.resources.reach.timeout);
        self.call_own(connection, cmd, timeout).await.map_err(|failure| match failure.code() {
            Some("ERR") => self.error(Kind::Unavailable, format!("the grant cannot be confirmed: {}", failure.text())),
            _ => failure,
        })
    }
}
