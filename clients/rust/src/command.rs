//! One command for a lock: its words for the module, and the call to the script, which has a function with the same
//! options for each command.

use std::time::Duration;

use redis::Cmd;

use crate::clock::milliseconds;
use crate::request::{Form, LONGEST_NOTIFY, Request, Sharing, TEN_YEARS};

#[derive(Clone, Copy)]
pub(crate) enum Command<'a> {
    Acquire {
        id: u64,
        wait: Duration,
        channel: Option<&'a str>,
    },
    Extend {
        token: i64,
        lease: Duration,
    },
    Release {
        token: i64,
        /// For all that wait for it. The script cannot pass it on.
        result: Option<&'a [u8]>,
    },
    /// Checks the key with that number.
    Check {
        token: i64,
        number: usize,
    },
    /// Ends an attempt's wait, and releases its grant. Only for the script.
    Cancel {
        id: u64,
        channel: &'a str,
    },
    /// Asks for the state of the lock.
    Info,
    /// Requests the shortest lease under an attempt's ID. The reply is the attempt's token if it was granted. Only for
    /// the script.
    Probe {
        id: u64,
    },
}

impl Command<'_> {
    /// The module's command, and the script's function.
    fn names(self, form: Form) -> (&'static str, &'static str) {
        let is_many = form == Form::Many;
        match self {
            Self::Acquire { .. } if form == Form::Recovery => ("LOCK.RECOVER", "lock_recover"),
            Self::Acquire { .. } | Self::Probe { .. } if is_many => ("LOCK.MACQUIRE", "lock_acquire_all"),
            Self::Acquire { .. } | Self::Probe { .. } => ("LOCK.ACQUIRE", "lock_acquire"),
            Self::Extend { .. } if is_many => ("LOCK.MEXTEND", "lock_extend_all"),
            Self::Extend { .. } => ("LOCK.EXTEND", "lock_extend"),
            Self::Release { .. } if is_many => ("LOCK.MRELEASE", "lock_release_all"),
            Self::Release { .. } => ("LOCK.RELEASE", "lock_release"),
            Self::Check { .. } => ("LOCK.CHECK", "lock_check"),
            Self::Cancel { .. } => ("LOCK.CANCEL", "lock_cancel"),
            Self::Info => ("LOCK.INFO", "lock_info"),
        }
    }

    /// The keys, or the queues, that the command applies to.
    fn of<T>(self, all: &[T]) -> &[T] {
        match self {
            Self::Check { number, .. } => all.get(number..=number).unwrap_or_default(),
            _ => all,
        }
    }

    /// The key that selects the server.
    pub(crate) fn key(self, request: &Request) -> &[u8] {
        self.of(&request.keys).first().map_or(&[], Vec::as_slice)
    }

    /// The command for the module.
    pub(crate) fn words(self, request: &Request) -> Cmd {
        let mut cmd = Cmd::new();
        let (name, _) = self.names(request.form);
        cmd.arg(name);
        if request.form == Form::Many && !matches!(self, Self::Check { .. }) {
            cmd.arg(request.keys.len());
        }
        cmd.arg(self.of(&request.keys));
        self.options(request, true, &mut cmd);
        match self {
            Self::Acquire { wait, .. } if request.wants_result() && !wait.is_zero() => _ = cmd.arg("RESULT"),
            Self::Release { result: Some(result), .. } => _ = cmd.arg("RESULT").arg(result),
            _ => {}
        }
        cmd
    }

    /// The arguments after the script's text or hash. `terms` are the margin and the retention.
    pub(crate) fn call(self, request: &Request, is_alone: bool, terms: [i64; 2], cmd: &mut Cmd) {
        let (keys, queues) = (self.of(&request.keys), self.of(request.queues()));
        let queues: Vec<_> = if is_alone { Vec::new() } else { queues.iter().flatten().collect() };
        let (_, function) = self.names(request.form);
        cmd.arg(keys.len().saturating_add(queues.len())).arg(keys).arg(queues).arg(function).arg(&terms);
        self.options(request, !is_alone, cmd);
    }

    fn options(self, request: &Request, waits: bool, cmd: &mut Cmd) {
        match self {
            Self::Acquire { id, wait, channel } => {
                acquire(request, id, if waits { wait } else { Duration::ZERO }, channel, cmd);
            }
            Self::Extend { token, lease } => _ = cmd.arg(token).arg("PX").arg(milliseconds(lease)),
            Self::Release { token, .. } | Self::Check { token, .. } => _ = cmd.arg(token),
            Self::Cancel { id, channel } => {
                cmd.arg("ID").arg(id).arg("NOTIFY").arg(channel);
                share(request, cmd);
            }
            Self::Info => {}
            Self::Probe { id } => _ = cmd.arg("PX").arg(1).arg("ID").arg(id),
        }
    }
}

fn acquire(request: &Request, id: u64, wait: Duration, channel: Option<&str>, cmd: &mut Cmd) {
    cmd.arg("PX").arg(milliseconds(request.lease));
    if !wait.is_zero() {
        let longest = if channel.is_some() { LONGEST_NOTIFY } else { TEN_YEARS };
        cmd.arg("WAIT").arg(milliseconds(wait.min(longest)));
    }
    cmd.arg("ID").arg(id);
    if let (false, Some(channel)) = (wait.is_zero(), channel) {
        cmd.arg("NOTIFY").arg(channel);
    }
    share(request, cmd);
    if let Some(owner) = request.settings.owner.text() {
        cmd.arg("OWNER").arg(&*owner);
    }
    if request.settings.session {
        cmd.arg("SESSION");
    }
    if request.settings.details && matches!(request.form, Form::One | Form::Tick) {
        cmd.arg("DETAILS");
    }
}

fn share(request: &Request, cmd: &mut Cmd) {
    match request.sharing {
        Sharing::Alone => {}
        Sharing::Shared => _ = cmd.arg("SHARED"),
        Sharing::Limit(n) => _ = cmd.arg("LIMIT").arg(n),
    }
}

/// The words of a command, for tests.
#[cfg(test)]
pub(crate) fn shown(cmd: &Cmd) -> String {
    let words = cmd.args_iter().map(|arg| match arg {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".into(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Label;

    const LEASE: Duration = Duration::from_secs(30);

    fn without_owner(mut request: Request) -> Request {
        request.settings.owner = Label::Off;
        request
    }

    fn one(key: &str, sharing: Sharing) -> Request {
        without_owner(Request::new(vec![key.into()], LEASE, Form::One, sharing))
    }

    fn both(sharing: Sharing) -> Request {
        without_owner(Request::new(vec!["a".into(), "b".into()], LEASE, Form::Many, sharing))
    }

    fn acquire(wait: Duration, channel: Option<&str>) -> Command<'_> {
        Command::Acquire { id: 7, wait, channel }
    }

    fn release(token: i64) -> Command<'static> {
        Command::Release { token, result: None }
    }

    #[test]
    fn only_the_module_gets_and_passes_on_results() {
        let flight = without_owner(Request::new(vec!["a".into()], LEASE, Form::Flight, Sharing::Alone));
        let gives = Command::Release { token: 5, result: Some(b"42 pages") };
        assert_eq!(shown(&acquire(LEASE, None).words(&flight)), "LOCK.ACQUIRE a PX 30000 WAIT 30000 ID 7 RESULT");
        assert_eq!(shown(&acquire(Duration::ZERO, None).words(&flight)), "LOCK.ACQUIRE a PX 30000 ID 7");
        assert_eq!(shown(&gives.words(&flight)), "LOCK.RELEASE a 5 RESULT 42 pages");
        for command in [acquire(LEASE, Some("c")), gives] {
            let mut cmd = Cmd::new();
            command.call(&flight, false, [1000, -1], &mut cmd);
            assert!(!shown(&cmd).contains("RESULT"), "{}", shown(&cmd));
        }
    }

    #[test]
    fn each_command_has_its_words() {
        let mut report = one("report", Sharing::Alone);
        let words = |request: &Request, command: Command| shown(&command.words(request));
        assert_eq!(words(&report, acquire(Duration::ZERO, None)), "LOCK.ACQUIRE report PX 30000 ID 7");
        assert_eq!(words(&report, acquire(Duration::ZERO, Some("c"))), "LOCK.ACQUIRE report PX 30000 ID 7");
        report.settings.owner = Label::Named("alice".into());
        report.settings.session = true;
        report.settings.details = true;
        report.sharing = Sharing::Limit(3);
        assert_eq!(
            words(&report, acquire(Duration::from_secs(7200), Some("c"))),
            "LOCK.ACQUIRE report PX 30000 WAIT 3600000 ID 7 NOTIFY c LIMIT 3 OWNER alice SESSION DETAILS"
        );
        let both = both(Sharing::Shared);
        assert_eq!(
            words(&both, acquire(Duration::from_micros(1), None)),
            "LOCK.MACQUIRE 2 a b PX 30000 WAIT 1 ID 7 SHARED"
        );
        assert_eq!(words(&both, Command::Extend { token: 5, lease: LEASE }), "LOCK.MEXTEND 2 a b 5 PX 30000");
        assert_eq!(words(&both, release(5)), "LOCK.MRELEASE 2 a b 5");
        assert_eq!(words(&both, Command::Check { token: 5, number: 1 }), "LOCK.CHECK b 5");
        let recovery = without_owner(Request::new(vec!["a".into()], LEASE, Form::Recovery, Sharing::Alone));
        assert_eq!(words(&recovery, acquire(Duration::ZERO, None)), "LOCK.RECOVER a PX 30000 ID 7");
        assert_eq!(words(&recovery, Command::Info), "LOCK.INFO a");
    }

    #[test]
    fn script_calls_name_the_queues() {
        let call = |request: &Request, is_alone, command: Command| {
            let mut cmd = Cmd::new();
            command.call(request, is_alone, [1000, -1], &mut cmd);
            shown(&cmd)
        };
        let (waits, cancel) = (acquire(LEASE, Some("c")), Command::Cancel { id: 7, channel: "c" });
        let pool = one("{pool}", Sharing::Limit(3));
        assert_eq!(
            call(&pool, false, waits),
            "2 {pool} {pool}:queue lock_acquire 1000 -1 PX 30000 WAIT 30000 ID 7 NOTIFY c LIMIT 3"
        );
        assert_eq!(call(&pool, false, cancel), "2 {pool} {pool}:queue lock_cancel 1000 -1 ID 7 NOTIFY c LIMIT 3");
        let report = one("a", Sharing::Alone);
        assert_eq!(call(&report, true, waits), "1 a lock_acquire 1000 -1 PX 30000 ID 7");
        assert_eq!(call(&report, false, Command::Info), "2 a a:queue:{a} lock_info 1000 -1");
        assert_eq!(call(&report, false, release(5)), "2 a a:queue:{a} lock_release 1000 -1 5");
        let both = both(Sharing::Alone);
        let queues = "4 a b a:queue:{a} b:queue:{b}";
        assert_eq!(
            call(&both, false, acquire(Duration::ZERO, None)),
            format!("{queues} lock_acquire_all 1000 -1 PX 30000 ID 7")
        );
        assert_eq!(
            call(&both, false, Command::Probe { id: 7 }),
            format!("{queues} lock_acquire_all 1000 -1 PX 1 ID 7")
        );
        assert_eq!(
            call(&both, false, Command::Extend { token: 5, lease: LEASE }),
            format!("{queues} lock_extend_all 1000 -1 5 PX 30000")
        );
        assert_eq!(call(&both, false, release(5)), format!("{queues} lock_release_all 1000 -1 5"));
        assert_eq!(call(&both, false, Command::Check { token: 5, number: 1 }), "2 b b:queue:{b} lock_check 1000 -1 5");
    }
}
