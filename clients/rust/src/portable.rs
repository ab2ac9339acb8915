//! The same lock where the module is not loaded: the scripts, sent by hash. Keys, values, replies and errors are those
//! of the commands, for one key with one holder.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redis::Cmd;

use crate::clock::{milliseconds, now};
use crate::failures::{Failure, Reply, text};
use crate::request::{Form, Request};
use crate::sync::locked;

const MARGIN: i64 = 1000;
const RETENTION: i64 = 60_000;
/// How long a reply about the eviction policy counts: after a failover the server is another.
const POLICY_COUNTS: Duration = Duration::from_secs(60);

/// The script is the function library without its first line.
static SCRIPT: LazyLock<(&str, String)> = LazyLock::new(|| {
    let library = include_str!("lock.lua");
    let script = library.split_once('\n').map_or(library, |(_, script)| script);
    (script, sha1_smol::Sha1::from(script).digest().to_string())
});

/// The CHECK of the scripts, before one command of the user's.
pub(crate) const FENCED: &str = "
local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
if not ends or tonumber(ends) - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}";

pub(crate) struct Portable {
    state: Mutex<State>,
}

struct State {
    is_loaded: bool,
    retention: i64,
    /// When the policy was asked for.
    asked: Option<Duration>,
}

impl Portable {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { is_loaded: false, retention: -1, asked: None }) }
    }

    fn words(&self, request: &Request, function: &str) -> Cmd {
        let state = locked(&self.state);
        let (script, digest) = &*SCRIPT;
        let mut cmd = Cmd::new();
        if state.is_loaded {
            cmd.arg("EVALSHA").arg(digest);
        } else {
            cmd.arg("EVAL").arg(*script);
        }
        cmd.arg(1).arg(request.key()).arg(function).arg(MARGIN).arg(state.retention);
        cmd
    }

    pub(crate) fn acquire(&self, request: &Request, id: u64) -> Cmd {
        let is_recovery = request.form == Form::Recovery;
        let mut cmd = self.words(request, if is_recovery { "lock_recover" } else { "lock_acquire" });
        cmd.arg("PX").arg(milliseconds(request.lease)).arg("ID").arg(id);
        if let Some(owner) = &request.settings.owner {
            cmd.arg("OWNER").arg(owner);
        }
        if request.settings.details && !is_recovery {
            cmd.arg("DETAILS");
        }
        cmd
    }

    pub(crate) fn extend(&self, request: &Request, token: i64, lease: Duration) -> Cmd {
        let mut cmd = self.words(request, "lock_extend");
        cmd.arg(token).arg("PX").arg(milliseconds(lease));
        cmd
    }

    pub(crate) fn release(&self, request: &Request, token: i64) -> Cmd {
        let mut cmd = self.words(request, "lock_release");
        cmd.arg(token);
        cmd
    }

    pub(crate) fn check(&self, request: &Request, token: i64) -> Cmd {
        let mut cmd = self.words(request, "lock_check");
        cmd.arg(token);
        cmd
    }

    /// The shortest lease, under the ID of an attempt: the reply is its token if it was granted.
    pub(crate) fn probe(&self, request: &Request, id: u64) -> Cmd {
        let mut cmd = self.words(request, "lock_acquire");
        cmd.arg("PX").arg(1).arg("ID").arg(id);
        cmd
    }

    /// The server has lost the script.
    pub(crate) fn missed(&self) {
        locked(&self.state).is_loaded = false;
    }

    pub(crate) fn loaded(&self) {
        locked(&self.state).is_loaded = true;
    }

    pub(crate) fn knows_policy(&self) -> bool {
        locked(&self.state).asked.is_some_and(|asked| now() < asked.saturating_add(POLICY_COUNTS))
    }

    /// Under a volatile policy a key with an expiry could be evicted, so locks get none; nor do they if the policy is
    /// unknown.
    pub(crate) fn learn_policy(&self, reply: Reply) -> Result<(), Failure> {
        let info = match reply {
            Ok(info) => text(&info),
            Err(Failure::Reply(_)) => String::new(),
            Err(failure) => return Err(failure),
        };
        let policy = info.split_once("maxmemory_policy:").map(|(_, policy)| policy);
        let mut state = locked(&self.state);
        state.asked = Some(now());
        state.retention = if policy.is_some_and(|it| !it.starts_with("volatile")) { RETENTION } else { -1 };
        Ok(())
    }
}

pub(crate) fn info_memory() -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("INFO").arg("memory");
    cmd
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn locks_get_an_expiry_only_where_none_is_evicted_for_it() {
        let portable = Portable::new();
        let learn = |info: &str| {
            assert!(portable.learn_policy(Ok(Value::BulkString(info.into()))).is_ok());
            locked(&portable.state).retention
        };
        assert_eq!(learn("a:1\r\nmaxmemory_policy:noeviction\r\n"), 60_000);
        assert_eq!(learn("maxmemory_policy:volatile-lru\r\n"), -1);
        assert_eq!(learn("used_memory:1\r\n"), -1);
        assert!(portable.knows_policy());
        assert!(SCRIPT.0.starts_with("--") || !SCRIPT.0.starts_with("#!"));
    }
}
