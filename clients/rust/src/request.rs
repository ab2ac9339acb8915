//! Checks the arguments of a lock before anything is sent, and names its queues.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;

use crate::error::{Error, Kind};
use crate::label::{LONGEST as LONGEST_OWNER, Label};
use crate::sessions::Group;
use crate::slot::hash_tag;

const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const TEN_YEARS: Duration = Duration::from_secs(3650 * 24 * 3600);
pub(crate) const LONGEST_NOTIFY: Duration = Duration::from_secs(3600);
const MOST_HOLDERS: u32 = 4096;
const MOST_KEYS: usize = 1024;
const LONGEST_KEY: usize = 4096;

/// Called once when a lock is lost.
pub(crate) type OnLost = Arc<dyn Fn(&Error) + Send + Sync>;

/// The kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One key.
    One,
    /// Several keys, all or nothing.
    Many,
    /// Only a lock that was not released.
    Recovery,
    /// One key, whose lock records that a tick has run.
    Tick,
    /// One key, whose holder passes its result on to all that wait.
    Flight,
}

/// How many may hold the lock at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    Alone,
    Shared,
    Limit(u32),
}

/// A lock's options.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) wait: Duration,
    pub(crate) at_least: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) within: Duration,
    pub(crate) session: bool,
    /// The group that shares a session's connection; `None`: the lock has its own.
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) details: bool,
    pub(crate) fsync: bool,
    pub(crate) reentrant: bool,
    pub(crate) owner: Label,
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
            group: None,
            details: false,
            fsync: false,
            reentrant: false,
            owner: Label::default(),
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
    queues: OnceLock<Arc<[Option<Vec<u8>>]>>,
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
        Self { settings: Settings::default(), keys: keys.into(), name, lease, form, sharing, queues: OnceLock::new() }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure() {
            Some(reason) => Err(Error::new(Kind::Argument, &self.name, reason)),
            None => Ok(()),
        }
    }

    /// Names the first wrong argument, and the allowed values.
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
        if self.form == Form::Flight && settings.wait < MILLISECOND {
            return Some(format!("wait is {:?}, not at least {MILLISECOND:?}", settings.wait));
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
        let Label::Named(owner) = &settings.owner else { return None };
        let is_owner = (1..=LONGEST_OWNER).contains(&owner.len()) && owner.bytes().all(|byte| byte.is_ascii_graphic());
        (!is_owner).then(|| {
            format!("owner is {owner:.140?}, not 1 to {LONGEST_OWNER} visible ASCII characters without a space")
        })
    }

    /// The key that selects the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.sharing == Sharing::Alone
    }

    /// Whether both are of the same kind, for the same keys.
    pub(crate) fn is_same_lock(&self, other: &Self) -> bool {
        self.sharing == other.sharing
            && self.keys.len() == other.keys.len()
            && self.keys.iter().all(|key| other.keys.contains(key))
    }

    /// How long an attempt waits in the queue. A recovery does not wait.
    pub(crate) fn wait(&self) -> Duration {
        if self.form == Form::Recovery {
            return Duration::ZERO;
        }
        self.settings.wait
    }

    /// Whether the grant is tied to a connection.
    pub(crate) fn needs_connection(&self) -> bool {
        self.settings.session || self.must_be_confirmed()
    }

    pub(crate) fn must_be_confirmed(&self) -> bool {
        self.settings.replicas > 0 || self.settings.fsync
    }

    /// Why the script cannot grant this lock; `None` if it can.
    pub(crate) fn needs_module(&self) -> Option<String> {
        if self.settings.session {
            return Some("session needs the module, which is not loaded".into());
        }
        if self.works_alone() || self.queues().iter().all(Option::is_some) {
            return None;
        }
        let what = match self.sharing {
            Sharing::Alone => "all_of",
            Sharing::Shared => "shared",
            Sharing::Limit(_) => "limit",
        };
        Some(format!("{what} needs the module, which is not loaded, if a key has a brace but no hash tag"))
    }

    /// Whether the script can grant this lock without its queue.
    pub(crate) fn works_alone(&self) -> bool {
        self.is_exclusive() && self.form != Form::Many
    }

    /// The names of the keys' queues; `None` for a key without a queue.
    pub(crate) fn queues(&self) -> &[Option<Vec<u8>>] {
        self.queues.get_or_init(|| self.keys.iter().map(|key| queue_of(key)).collect())
    }

    /// Whether the attempt may get its holder's result in place of the lock.
    pub(crate) fn wants_result(&self) -> bool {
        self.form == Form::Flight
    }

    /// Where the script's holders store a result; `None` for a key without a queue.
    pub(crate) fn result(&self) -> Option<Vec<u8>> {
        beside(self.key(), "result")
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

/// A key's queue. A key with a brace but without a hash tag has none.
fn queue_of(key: &[u8]) -> Option<Vec<u8>> {
    beside(key, "queue")
}

/// The name of something that belongs to the key, in the same slot.
fn beside(key: &[u8], what: &str) -> Option<Vec<u8>> {
    if !key.iter().any(|byte| matches!(byte, b'{' | b'}')) {
        return Some([key, b":", what.as_bytes(), b":{", key, b"}"].concat());
    }
    hash_tag(key).map(|_| [key, b":", what.as_bytes()].concat())
}

/// The keys as messages show them, quoted.
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

    type Change = fn(&mut Request);

    fn one(key: &str) -> Request {
        Request::new(vec![key.into()], LEASE, Form::One, Sharing::Alone)
    }

    #[test]
    fn a_release_of_several_keys_counts_them() {
        let both = Request::new(vec!["a".into(), "b".into()], LEASE, Form::Many, Sharing::Alone);
        assert!(both.was_held(&Value::Int(2)) && !both.was_held(&Value::Int(1)));
    }

    #[test]
    fn a_queue_is_in_the_slot_of_its_lock() {
        for (key, queue) in [
            ("report", "report:queue:{report}"),
            ("", ":queue:{}"),
            ("{42}:report", "{42}:report:queue"),
            ("a}b{c}", "a}b{c}:queue"),
            ("a{{b}", "a{{b}:queue"),
        ] {
            assert_eq!(queue_of(key.as_bytes()), Some(queue.into()), "{key}");
        }
        assert_eq!(queue_of(b"\x00\xff"), Some(b"\x00\xff:queue:{\x00\xff}".into()));
        for key in ["a{", "a}", "{}", "a{}b{c}"] {
            assert_eq!(queue_of(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn a_result_is_named_like_the_queue() {
        for (key, result) in [
            ("report", Some("report:result:{report}")),
            ("{42}:report", Some("{42}:report:result")),
            ("a:queue", Some("a:queue:result:{a:queue}")),
            ("a{", None),
        ] {
            assert_eq!(one(key).result(), result.map(Into::into), "{key}");
        }
    }

    #[test]
    fn only_what_the_script_cannot_do_needs_the_module() {
        let with = |key: &str, form, sharing| Request::new(vec![b"b".to_vec(), key.into()], LEASE, form, sharing);
        assert_eq!(with("a{", Form::One, Sharing::Alone).needs_module(), None);
        assert_eq!(with("a", Form::Many, Sharing::Alone).needs_module(), None);
        assert_eq!(with("a", Form::One, Sharing::Shared).needs_module(), None);
        for (what, form, sharing) in [
            ("all_of", Form::Many, Sharing::Alone),
            ("shared", Form::One, Sharing::Shared),
            ("limit", Form::One, Sharing::Limit(2)),
        ] {
            let why = with("a{", form, sharing).needs_module().unwrap();
            assert!(why.starts_with(what) && why.contains("brace but no hash tag"), "{why}");
        }
        let mut session = with("a", Form::One, Sharing::Alone);
        session.settings.session = true;
        assert!(session.needs_module().unwrap().starts_with("session needs the module"));
    }

    #[test]
    fn bad_arguments_are_named_with_their_lock() {
        let with = |change: fn(&mut Request)| {
            let mut request = one("report");
            change(&mut request);
            request.check().unwrap_err().to_string()
        };
        let cases: [(&str, Change); 8] = [
            ("wait is 0ns", |it| it.form = Form::Flight),
            ("lease is 0ns", |it| it.lease = Duration::ZERO),
            ("lease is", |it| it.lease = TEN_YEARS + MILLISECOND),
            ("n is 0", |it| it.sharing = Sharing::Limit(0)),
            ("n is 4097", |it| it.sharing = Sharing::Limit(4097)),
            ("owner is \"two words\"", |it| it.settings.owner = Label::Named("two words".into())),
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
    fn keys_that_are_not_text_are_shown_readably() {
        assert_eq!(shown(&[vec![0, 255, b' '], b"a".to_vec()]), "\"\\x00\\xff \", \"a\"");
        assert!(shown(&vec![vec![b'k'; 300]; 9]).len() < 420);
    }
}
