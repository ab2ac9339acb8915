//! Checks what a lock asks for before anything is sent, and gives the words of its commands.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::milliseconds;
use crate::error::{Error, Kind};

const MILLISECOND: Duration = Duration::from_millis(1);
const TEN_YEARS: Duration = Duration::from_secs(3650 * 24 * 3600);
const LONGEST_NOTIFY: Duration = Duration::from_secs(3600);
const MOST_HOLDERS: u32 = 4096;
const MOST_KEYS: usize = 1024;
const LONGEST_KEY: usize = 4096;

/// Called once when a lock is lost.
pub(crate) type OnLost = Arc<dyn Fn(&Error) + Send + Sync>;

/// How a lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One key.
    One,
    /// Several keys, all or nothing.
    Many,
    /// Only a lock that was not released.
    Recovery,
}

/// How many may hold it at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    Alone,
    Shared,
    Limit(u32),
}

/// The options of a lock.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) wait: Duration,
    pub(crate) at_least: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) within: Duration,
    pub(crate) session: bool,
    pub(crate) details: bool,
    pub(crate) fsync: bool,
    pub(crate) owner: Option<String>,
    pub(crate) replicas: u32,
    pub(crate) on_lost: Option<OnLost>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Duration::ZERO,
            at_least: Duration::ZERO,
            max_hold: None,
            within: Duration::from_secs(1),
            session: false,
            details: false,
            fsync: false,
            owner: None,
            replicas: 0,
            on_lost: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) settings: Settings,
    pub(crate) keys: Arc<[Vec<u8>]>,
    pub(crate) name: Arc<str>,
    pub(crate) lease: Duration,
    pub(crate) form: Form,
    pub(crate) sharing: Sharing,
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Request")
            .field("keys", &self.name)
            .field("lease", &self.lease)
            .field("form", &self.form)
            .field("sharing", &self.sharing)
            .field("wait", &self.settings.wait)
            .finish_non_exhaustive()
    }
}

impl Request {
    pub(crate) fn new(keys: Vec<Vec<u8>>, lease: Duration, form: Form, sharing: Sharing) -> Self {
        let name = shown(&keys).into();
        Self { settings: Settings::default(), keys: keys.into(), name, lease, form, sharing }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure() {
            Some(reason) => Err(Error::new(Kind::Argument, &self.name, reason)),
            None => Ok(()),
        }
    }

    /// Names the first argument that is wrong, and what is allowed.
    fn failure(&self) -> Option<String> {
        let settings = &self.settings;
        if self.keys.is_empty() {
            return Some("keys is empty: all_of needs at least one".into());
        }
        if self.keys.len() > MOST_KEYS {
            return Some(format!("keys are {}, more than {MOST_KEYS}", self.keys.len()));
        }
        if self.keys.iter().any(|key| key.len() > LONGEST_KEY) {
            return Some(format!("a key is longer than {LONGEST_KEY} bytes"));
        }
        let mut sorted: Vec<_> = self.keys.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < self.keys.len() {
            return Some("keys has the same key twice".into());
        }
        if let Sharing::Limit(n) = self.sharing
            && (!(1..=MOST_HOLDERS).contains(&n))
        {
            return Some(format!("n is {n}, not between 1 and {MOST_HOLDERS}"));
        }
        if let Some(reason) = lease_failure(self.lease) {
            return Some(reason);
        }
        if settings.at_least > TEN_YEARS {
            return Some(format!("at_least is {:?}, more than {TEN_YEARS:?}", settings.at_least));
        }
        if settings.within < MILLISECOND || settings.within > LONGEST_NOTIFY {
            return Some(format!(
                "within is {:?}, not between {MILLISECOND:?} and {LONGEST_NOTIFY:?}",
                settings.within
            ));
        }
        if settings.replicas > 1000 {
            return Some(format!("replicas is {}, more than 1000", settings.replicas));
        }
        let owner = settings.owner.as_deref()?;
        let is_owner = (1..=128).contains(&owner.len()) && owner.bytes().all(|byte| byte.is_ascii_graphic());
        (!is_owner).then(|| format!("owner is {owner:.140?}, not 1 to 128 visible ASCII characters without a space"))
    }

    /// The key that decides which server it is.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.sharing == Sharing::Alone
    }

    /// How long it waits in the queue. A recovery does not wait.
    pub(crate) fn wait(&self) -> Duration {
        if self.form == Form::Recovery {
            return Duration::ZERO;
        }
        self.settings.wait
    }

    /// Whether the grant belongs to a connection.
    pub(crate) fn needs_connection(&self) -> bool {
        self.settings.session || self.must_be_confirmed()
    }

    pub(crate) fn must_be_confirmed(&self) -> bool {
        self.settings.replicas > 0 || self.settings.fsync
    }

    /// The option that no script can do, if there is one.
    pub(crate) fn needs_module(&self) -> Option<&'static str> {
        match (self.settings.session, self.sharing, self.form) {
            (true, _, _) => Some("session"),
            (_, Sharing::Shared, _) => Some("shared"),
            (_, Sharing::Limit(_), _) => Some("limit"),
            (_, _, Form::Many) => Some("all_of"),
            _ => None,
        }
    }

    pub(crate) fn acquire(&self, id: u64, wait: Duration, channel: Option<&str>) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg(match self.form {
            Form::One => "LOCK.ACQUIRE",
            Form::Many => "LOCK.MACQUIRE",
            Form::Recovery => "LOCK.RECOVER",
        });
        self.name_keys(&mut cmd);
        cmd.arg("PX").arg(milliseconds(self.lease));
        if !wait.is_zero() {
            let longest = if channel.is_some() { LONGEST_NOTIFY } else { TEN_YEARS };
            cmd.arg("WAIT").arg(milliseconds(wait.min(longest)));
        }
        cmd.arg("ID").arg(id);
        if let (false, Some(channel)) = (wait.is_zero(), channel) {
            cmd.arg("NOTIFY").arg(channel);
        }
        match self.sharing {
            Sharing::Alone => {}
            Sharing::Shared => _ = cmd.arg("SHARED"),
            Sharing::Limit(n) => _ = cmd.arg("LIMIT").arg(n),
        }
        if let Some(owner) = &self.settings.owner {
            cmd.arg("OWNER").arg(owner);
        }
        if self.settings.session {
            cmd.arg("SESSION");
        }
        if self.settings.details && self.form == Form::One {
            cmd.arg("DETAILS");
        }
        cmd
    }

    pub(crate) fn extend(&self, token: i64, lease: Duration) -> Cmd {
        let mut cmd = self.own("LOCK.EXTEND", "LOCK.MEXTEND", token);
        cmd.arg("PX").arg(milliseconds(lease));
        cmd
    }

    pub(crate) fn release(&self, token: i64) -> Cmd {
        self.own("LOCK.RELEASE", "LOCK.MRELEASE", token)
    }

    fn own(&self, one: &str, many: &str, token: i64) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg(if self.form == Form::Many { many } else { one });
        self.name_keys(&mut cmd);
        cmd.arg(token);
        cmd
    }

    fn name_keys(&self, cmd: &mut Cmd) {
        if self.form == Form::Many {
            cmd.arg(self.keys.len());
        }
        for key in self.keys.iter() {
            cmd.arg(key.as_slice());
        }
    }

    /// Reads the reply to RELEASE.
    pub(crate) fn was_held(&self, reply: &Value) -> bool {
        let all = if self.form == Form::Many { i64::try_from(self.keys.len()).unwrap_or(0) } else { 1 };
        *reply == Value::Int(all)
    }
}

pub(crate) fn lease_failure(lease: Duration) -> Option<String> {
    let is_good = (MILLISECOND..=TEN_YEARS).contains(&lease);
    (!is_good).then(|| format!("lease is {lease:?}, not between {MILLISECOND:?} and {TEN_YEARS:?}"))
}

/// The keys as people read them, quoted.
fn shown(keys: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for key in keys {
        if !text.is_empty() {
            text.push_str(", ");
        }
        if text.len() > 200 {
            text.push_str("...");
            break;
        }
        let start = key.get(..200).unwrap_or(key);
        match std::str::from_utf8(start) {
            Ok(start) => _ = write!(text, "{start:?}"),
            Err(_) => _ = write!(text, "\"{}\"", start.escape_ascii()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn words(cmd: &Cmd) -> String {
        let words = cmd.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "?".into(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    type Change = fn(&mut Request);

    fn one(key: &str) -> Request {
        Request::new(vec![key.into()], LEASE, Form::One, Sharing::Alone)
    }

    #[test]
    fn words_are_those_of_the_commands() {
        let mut report = one("report");
        assert_eq!(words(&report.acquire(7, Duration::ZERO, None)), "LOCK.ACQUIRE report PX 30000 ID 7");
        assert_eq!(words(&report.acquire(7, Duration::ZERO, Some("c"))), "LOCK.ACQUIRE report PX 30000 ID 7");
        report.settings.owner = Some("alice".into());
        report.settings.session = true;
        report.settings.details = true;
        report.sharing = Sharing::Limit(3);
        assert_eq!(
            words(&report.acquire(7, Duration::from_secs(7200), Some("c"))),
            "LOCK.ACQUIRE report PX 30000 WAIT 3600000 ID 7 NOTIFY c LIMIT 3 OWNER alice SESSION DETAILS"
        );
        let both = Request::new(vec!["a".into(), "b".into()], LEASE, Form::Many, Sharing::Shared);
        assert_eq!(
            words(&both.acquire(7, Duration::from_micros(1), None)),
            "LOCK.MACQUIRE 2 a b PX 30000 WAIT 1 ID 7 SHARED"
        );
        assert_eq!(words(&both.extend(5, LEASE)), "LOCK.MEXTEND 2 a b 5 PX 30000");
        assert_eq!(words(&both.release(5)), "LOCK.MRELEASE 2 a b 5");
        assert!(both.was_held(&Value::Int(2)) && !both.was_held(&Value::Int(1)));
    }

    #[test]
    fn bad_arguments_are_named_with_their_lock() {
        let with = |change: fn(&mut Request)| {
            let mut request = one("report");
            change(&mut request);
            request.check().unwrap_err().to_string()
        };
        let cases: [(&str, Change); 7] = [
            ("lease is 0ns", |it| it.lease = Duration::ZERO),
            ("lease is", |it| it.lease = TEN_YEARS + MILLISECOND),
            ("n is 0", |it| it.sharing = Sharing::Limit(0)),
            ("n is 4097", |it| it.sharing = Sharing::Limit(4097)),
            ("owner is \"two words\"", |it| it.settings.owner = Some("two words".into())),
            ("within is 0ns", |it| it.settings.within = Duration::ZERO),
            ("at_least is", |it| it.settings.at_least = Duration::MAX),
        ];
        for (text, change) in cases {
            let error = with(change);
            assert!(error.starts_with("the lock \"report\": ") && error.contains(text), "{error}");
        }
        for (keys, text) in
            [(vec![], "keys is empty"), (vec![b"a".to_vec(); 2], "twice"), (vec![vec![b'k'; 4097]], "longer")]
        {
            let error = Request::new(keys, LEASE, Form::Many, Sharing::Alone).check().unwrap_err();
            assert!(error.kind() == Kind::Argument && error.to_string().contains(text), "{error}");
        }
        assert!(one("report").check().is_ok());
    }

    #[test]
    fn keys_that_are_not_text_can_be_read() {
        assert_eq!(shown(&[vec![0, 255, b' '], b"a".to_vec()]), "\"\\x00\\xff \", \"a\"");
        assert!(shown(&vec![vec![b'k'; 300]; 9]).len() < 420);
    }
}
