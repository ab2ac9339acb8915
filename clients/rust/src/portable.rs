//! The same lock without the module: calls the script by its hash. Keys, values, replies and errors are the same as
//! with the commands. Each lock has its queue as a second key.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redis::Cmd;

use crate::clock::Clock;
use crate::command::Command;
use crate::failures::{Failure, Reply, text};
use crate::request::{Form, Request};
use crate::sync::locked;

const MARGIN: i64 = 1000;
const RETENTION: i64 = 60_000;
/// How long a reply about the eviction policy stays valid. After a failover, the new server's policy may differ.
const POLICY_VALID_FOR: Duration = Duration::from_secs(60);
/// How long calls do without queues before one checks again whether the user may use them.
const REMEMBERS_DENIAL: Duration = Duration::from_secs(60);

/// The script is the function library without its first line.
static SCRIPT: LazyLock<(&str, String)> = LazyLock::new(|| {
    let library = include_str!("lock.lua");
    let script = library.split_once('\n').map_or(library, |(_, script)| script);
    (script, sha1_smol::Sha1::from(script).digest().to_string())
});

/// Checks the lock as the script's CHECK does, then runs one of the user's commands.
pub(crate) const FENCED: &str = "
local time, token = redis.call('TIME'), ('%016.0f'):format(ARGV[1])
local value, ends = redis.pcall('GET', KEYS[1]), nil
if value and value.err then -- a sorted set; otherwise ZRANGE fails for the same reason
  local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #holders, 2 do
    if holders[i]:sub(1, 16) == token then ends = holders[i + 1] end
  end
else
  ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. token)
end
if not ends or ends - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}";

pub(crate) struct Portable {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    is_loaded: bool,
    retention: i64,
    /// When the server was asked for the policy.
    asked: Option<Duration>,
    /// Until then, the user is treated as not allowed to use queues.
    denied_until: Duration,
}

/// A command being sent to the module or the script. It is sent again with the script's text if the server does not
/// have the script, and without the queue if the user may not use the queue, or its slot is moving.
pub(crate) struct Sending<'a> {
    /// `None` if the command goes to the module.
    portable: Option<&'a Portable>,
    request: &'a Request,
    command: Command<'a>,
    is_alone: bool,
    is_again: bool,
    was_denied: bool,
}

impl<'a> Sending<'a> {
    pub(crate) fn to_module(request: &'a Request, command: Command<'a>) -> Self {
        Self { portable: None, request, command, is_alone: false, is_again: false, was_denied: false }
    }

    pub(crate) fn to_script(portable: &'a Portable, request: &'a Request, command: Command<'a>) -> Self {
        let mut sending = Self { portable: Some(portable), ..Self::to_module(request, command) };
        let is_probe = matches!(command, Command::Probe { .. });
        if is_probe || !request.queues().iter().all(Option::is_some) || portable.is_denied() {
            sending.leave_queue();
        }
        sending
    }

    /// Continues without the queue; returns whether that is new.
    pub(crate) fn leave_queue(&mut self) -> bool {
        let is_new = !self.is_alone && self.request.works_alone() && !matches!(self.command, Command::Cancel { .. });
        self.is_alone |= is_new;
        is_new
    }

    pub(crate) fn is_script(&self) -> bool {
        self.portable.is_some()
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        self.command.key(self.request)
    }

    pub(crate) fn cmd(&self) -> Cmd {
        let Some(portable) = self.portable else { return self.command.words(self.request) };
        let mut cmd = Cmd::new();
        let state = locked(&portable.state);
        let (script, digest) = &*SCRIPT;
        if state.is_loaded {
            cmd.arg("EVALSHA").arg(digest);
        } else {
            cmd.arg("EVAL").arg(*script);
        }
        self.command.call(self.request, self.is_alone, [MARGIN, state.retention], &mut cmd);
        cmd
    }

    /// Returns the reply, or `None` if the command must be sent again.
    pub(crate) fn read(&mut self, reply: Reply) -> Option<Reply> {
        let Some(portable) = self.portable else { return Some(reply) };
        match &reply {
            Ok(_) => {
                let mut state = locked(&portable.state);
                state.is_loaded = true;
                if self.was_denied {
                    state.denied_until = portable.clock.now().saturating_add(REMEMBERS_DENIAL);
                }
            }
            Err(failure) if failure.code() == Some("NOSCRIPT") && !self.is_again => {
                locked(&portable.state).is_loaded = false;
                self.is_again = true;
                return None;
            }
            Err(failure) if failure.refuses_queue() && self.leave_queue() => {
                self.was_denied = failure.code() == Some("NOPERM");
                self.is_again = false;
                return None;
            }
            Err(_) => {}
        }
        Some(reply)
    }
}

impl Portable {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State { is_loaded: false, retention: -1, asked: None, denied_until: Duration::ZERO };
        Self { clock, state: Mutex::new(state) }
    }

    /// Whether attempts for this lock can wait in a queue.
    pub(crate) fn has_queue(&self, request: &Request) -> bool {
        request.form != Form::Many
            && request.queues().iter().all(Option::is_some)
            && !(request.works_alone() && self.is_denied())
    }

    fn is_denied(&self) -> bool {
        self.clock.now() < locked(&self.state).denied_until
    }

    pub(crate) fn has_asked(&self) -> bool {
        locked(&self.state).asked.is_some()
    }

    pub(crate) fn knows_policy(&self) -> bool {
        locked(&self.state).asked.is_some_and(|asked| self.clock.now() < asked.saturating_add(POLICY_VALID_FOR))
    }

    /// Under a volatile policy, a key with an expiry could be evicted. In that case, or if the policy is unknown, locks
    /// have no expiry.
    pub(crate) fn learn_policy(&self, reply: Reply) -> Result<(), Failure> {
        let info = match reply {
            Ok(info) => text(&info),
            Err(Failure::Reply(_)) => String::new(),
            Err(failure) => return Err(failure),
        };
        let policy = info.split_once("maxmemory_policy:").map(|(_, policy)| policy);
        let mut state = locked(&self.state);
        state.asked = Some(self.clock.now());
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
    use crate::command::shown;
    use crate::failures::ReplyError;
    use crate::request::Sharing;

    const RELEASE: Command = Command::Release { token: 5, result: None };
    const WAITS: Command = Command::Acquire { id: 7, wait: Duration::from_secs(30), channel: Some("c") };

    fn request(key: &str, sharing: Sharing) -> Request {
        let mut request = Request::new(vec![key.into()], Duration::from_secs(30), Form::One, sharing);
        request.settings.owner = crate::label::Label::Off;
        request
    }

    fn refused(code: &str) -> Reply {
        Err(Failure::Reply(ReplyError { code: code.into(), text: code.into() }))
    }

    /// The words of a call without the script or its hash.
    fn call(sending: &Sending) -> String {
        let words = shown(&sending.cmd());
        let after = if words.starts_with("EVALSHA") { &SCRIPT.1 } else { SCRIPT.0 };
        let (by, call) = words.split_once(after).unwrap();
        format!("{by}{}", call.trim_start())
    }

    #[test]
    fn without_permission_for_the_queue_calls_name_only_the_lock() {
        let (portable, report, page) =
            (Portable::new(Clock::default()), request("a", Sharing::Alone), request("a", Sharing::Shared));
        let mut sending = Sending::to_script(&portable, &report, WAITS);
        assert_eq!(call(&sending), "EVAL 2 a a:queue:{a} lock_acquire 1000 -1 PX 30000 WAIT 30000 ID 7 NOTIFY c");
        assert!(sending.read(refused("NOPERM")).is_none() && portable.has_queue(&report));
        assert_eq!(call(&sending), "EVAL 1 a lock_acquire 1000 -1 PX 30000 ID 7");
        assert!(sending.read(refused("NOPERM")).is_some() && portable.has_queue(&report), "the user may do nothing");
        let mut sending = Sending::to_script(&portable, &report, WAITS);
        assert!(sending.read(refused("NOPERM")).is_none() && sending.read(Ok(Value::Nil)).is_some());
        assert!(!portable.has_queue(&report), "for a while");
        let again = Sending::to_script(&portable, &report, RELEASE);
        assert_eq!(call(&again), "EVALSHA 1 a lock_release 1000 -1 5");
        let mut shared = Sending::to_script(&portable, &page, WAITS);
        assert!(portable.has_queue(&page) && call(&shared).starts_with("EVALSHA 2 a "));
        assert!(shared.read(refused("NOPERM")).is_some());
        locked(&portable.state).denied_until = portable.clock.now();
        assert!(call(&Sending::to_script(&portable, &report, WAITS)).starts_with("EVALSHA 2 a "));
    }

    #[test]
    fn while_a_slot_moves_calls_name_only_the_lock() {
        let (portable, report) = (Portable::new(Clock::default()), request("a", Sharing::Alone));
        let mut sending = Sending::to_script(&portable, &report, RELEASE);
        assert!(sending.read(refused("TRYAGAIN")).is_none());
        assert_eq!(call(&sending), "EVAL 1 a lock_release 1000 -1 5");
        assert!(sending.read(Ok(Value::Int(1))).is_some() && portable.has_queue(&report));
        let mut cancel = Sending::to_script(&portable, &report, Command::Cancel { id: 7, channel: "c" });
        assert!(cancel.read(refused("TRYAGAIN")).is_some(), "there is no cancel without the queue");
    }

    #[test]
    fn a_server_without_the_script_gets_its_text_once() {
        let (portable, report) = (Portable::new(Clock::default()), request("a", Sharing::Alone));
        locked(&portable.state).is_loaded = true;
        let mut sending = Sending::to_script(&portable, &report, WAITS);
        assert!(sending.read(refused("NOPERM")).is_none() && sending.read(refused("NOSCRIPT")).is_none());
        assert!(call(&sending).starts_with("EVAL 1 a ") && sending.read(refused("NOSCRIPT")).is_some());
    }

    #[test]
    fn calls_for_a_key_without_a_queue_name_only_the_key() {
        let (portable, brace) = (Portable::new(Clock::default()), request("a{", Sharing::Alone));
        assert!(!portable.has_queue(&brace));
        assert!(call(&Sending::to_script(&portable, &brace, WAITS)).starts_with("EVAL 1 a{ "));
        let both = Request::new(vec!["a".into(), "b".into()], Duration::from_secs(30), Form::Many, Sharing::Alone);
        assert!(!portable.has_queue(&both), "several keys do not wait in a queue");
        let probe = Sending::to_script(&portable, &both, Command::Probe { id: 7 });
        assert!(call(&probe).starts_with("EVAL 4 a b "));
    }

    #[test]
    fn locks_get_no_expiry_where_that_could_evict_them() {
        let portable = Portable::new(Clock::default());
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
