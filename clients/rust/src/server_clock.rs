//! The server's clock, and the margin that the server adds to leases: each is requested at most once a minute. One
//! caller asks at a time, while others wait for its answer.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::MutexGuard;

use crate::failures::{Failure, ReplyError, field, number, text};
use crate::reach::Reach;
use crate::sync::locked;

/// How long a reply stays valid.
const VALID_FOR: Duration = Duration::from_secs(60);
/// An estimate that may be off by more than this is used, but not kept.
pub(crate) const MOST_DOUBT: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(10);
/// The margin of the script, and of a server that does not say.
pub(crate) const USUAL_MARGIN: Duration = Duration::from_secs(1);

/// What the server's clock showed at a moment of the local clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Estimate {
    /// The time since the beginning of 1970.
    server: Duration,
    local: Duration,
    /// By how much it may be wrong.
    pub(crate) doubt: Duration,
    /// The local time of the reply.
    pub(crate) asked: Duration,
}

impl Estimate {
    /// From a reply to TIME: the server read its clock at some moment between `sent` and `received`.
    fn read(reply: &Value, sent: Duration, received: Duration) -> Result<Self, Failure> {
        let unexpected = || {
            let text = format!("ERR unexpected reply {reply:?} to TIME");
            Failure::Reply(ReplyError { code: "ERR".into(), text })
        };
        let Value::Array(words) = reply else { return Err(unexpected()) };
        let [seconds, micros] = words.as_slice() else { return Err(unexpected()) };
        let (Ok(seconds), Ok(micros)) = (text(seconds).parse(), text(micros).parse()) else { return Err(unexpected()) };
        let server = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
        let doubt = received.saturating_sub(sent) / 2;
        Ok(Self { server, local: sent.saturating_add(doubt), doubt, asked: received })
    }

    #[cfg(test)]
    pub(crate) fn of(server: Duration, local: Duration, doubt: Duration) -> Self {
        Self { server, local, doubt, asked: local }
    }

    /// Whether it is accurate enough to be kept.
    pub(crate) fn is_good(&self) -> bool {
        self.doubt <= MOST_DOUBT
    }

    fn is_fresh(&self, now: Duration) -> bool {
        now < self.asked.saturating_add(VALID_FOR)
    }

    /// What the server's clock shows at a moment of the local clock.
    pub(crate) fn server_at(&self, local: Duration) -> Duration {
        self.server.saturating_add(local).saturating_sub(self.local)
    }

    /// The reverse; 0 if that was before the local clock began.
    pub(crate) fn local_at(&self, server: Duration) -> Duration {
        self.local.saturating_add(server).saturating_sub(self.server)
    }
}

pub(crate) struct ServerClock {
    reach: Reach,
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// By key in a cluster, because each of its servers has its own clock.
    known: HashMap<Vec<u8>, Estimate>,
    margin: Duration,
    margin_asked: Option<Duration>,
}

impl ServerClock {
    pub(crate) fn new(reach: Reach) -> Self {
        let state = State { known: HashMap::new(), margin: USUAL_MARGIN, margin_asked: None };
        Self { reach, turn: tokio::sync::Mutex::default(), state: Mutex::new(state) }
    }

    /// Estimates the clock of the key's server.
    pub(crate) async fn read(&self, key: &[u8]) -> Result<Estimate, Failure> {
        let place = if self.reach.router.is_cluster() { key } else { &[] };
        if let Some(found) = self.fresh(place) {
            return Ok(found);
        }
        let _turn = self.turn().await?;
        if let Some(found) = self.fresh(place) {
            return Ok(found); // another caller has just asked
        }
        let made = self.ask(key).await?;
        if made.is_good() {
            let (now, known) = (self.reach.clock.now(), &mut locked(&self.state).known);
            known.retain(|_, old| old.is_fresh(now));
            known.insert(place.to_vec(), made);
        }
        Ok(made)
    }

    fn fresh(&self, place: &[u8]) -> Option<Estimate> {
        let now = self.reach.clock.now();
        locked(&self.state).known.get(place).copied().filter(|found| found.is_fresh(now))
    }

    async fn turn(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let turn = self.reach.clock.timeout(self.reach.timeout, self.turn.lock()).await;
        turn.ok_or_else(|| Failure::broken("another caller has asked the server, and is waiting for the reply"))
    }

    /// Asks twice if the reply is lost or slow.
    async fn ask(&self, key: &[u8]) -> Result<Estimate, Failure> {
        match self.call(key).await {
            Ok(made) if made.is_good() => Ok(made),
            // It may have had to wait for a new connection.
            Ok(made) => match self.call(key).await {
                Ok(again) if again.doubt < made.doubt => Ok(again),
                _ => Ok(made),
            },
            Err(failure) if failure.is_transient() => {
                if failure.is_connection_lost() {
                    let _ = self.reach.router.refresh(self.reach.timeout).await; // the key may have moved
                }
                self.reach.clock.sleep(PAUSE).await;
                self.call(key).await
            }
            Err(failure) => Err(failure),
        }
    }

    async fn call(&self, key: &[u8]) -> Result<Estimate, Failure> {
        let mut cmd = Cmd::new();
        cmd.arg("TIME");
        let sent = self.reach.clock.now();
        let reply = self.reach.router.call(key, cmd, self.reach.timeout).await?;
        Estimate::read(&reply, sent, self.reach.clock.now())
    }

    /// The margin, as currently known.
    pub(crate) fn margin(&self) -> Duration {
        locked(&self.state).margin
    }

    fn knows_margin(&self) -> bool {
        locked(&self.state).margin_asked.is_some_and(|asked| self.reach.clock.now() < asked.saturating_add(VALID_FOR))
    }

    /// What the server adds to each lease.
    pub(crate) async fn read_margin(&self, key: &[u8]) -> Duration {
        if !self.knows_margin()
            && let Ok(_turn) = self.turn().await
            && !self.knows_margin()
        {
            self.ask_margin(key).await;
        }
        self.margin()
    }

    /// After an error reply, the last margin counts: this user may not ask.
    async fn ask_margin(&self, key: &[u8]) {
        let mut cmd = Cmd::new();
        cmd.arg("LOCK.INFO").arg(key);
        let reply = self.reach.router.call(key, cmd, self.reach.timeout).await;
        let mut state = locked(&self.state);
        match reply {
            Ok(info) => state.margin = margin_of(&info),
            Err(Failure::Reply(_)) => {}
            Err(_) => return,
        }
        state.margin_asked = Some(self.reach.clock.now());
    }
}

/// Reads LOCK.INFO.
fn margin_of(info: &Value) -> Duration {
    let ms = |name| field(info, name).and_then(number).and_then(|ms| u64::try_from(ms).ok());
    match (ms("lease-ms"), ms("free-in-ms")) {
        (Some(lease), Some(free)) if lease > 0 => {
            // Both are whole milliseconds, one rounded down and the other up.
            Duration::from_millis(free.saturating_sub(lease).saturating_sub(1))
        }
        _ => USUAL_MARGIN,
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)] // of times
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;
    use crate::clock::tests::{advance, now};
    use crate::command::shown;
    use crate::engine::Engine;
    use crate::failures::Call;
    use crate::options::Options;
    use crate::route::{Router, Server, Servers};

    pub(crate) const DAY: Duration = Duration::from_secs(86_400);
    /// A tick of a day.
    pub(crate) const START: Duration = Duration::from_secs(20_833 * 86_400);

    type Instead = Arc<dyn Fn(&FakeServer, &str) -> Option<Call> + Send + Sync>;

    /// A server that grants every lock. At first, a tick of a day has just begun by its clock. The local clock stands
    /// still.
    #[derive(Clone)]
    pub(crate) struct FakeServer(Arc<Fake>);

    struct Fake {
        state: Mutex<FakeState>,
        passes_late_replies: AtomicBool,
    }

    struct FakeState {
        ahead: Duration,
        margin: Duration,
        /// When others can get the lock.
        ends: Duration,
        sent: Vec<String>,
        instead: Option<Instead>,
    }

    impl FakeServer {
        pub(crate) fn new() -> Self {
            advance(Duration::ZERO);
            let ahead = START.saturating_sub(now());
            let (margin, ends) = (Duration::from_secs(1), Duration::ZERO);
            let state = Mutex::new(FakeState { ahead, margin, ends, sent: Vec::new(), instead: None });
            Self(Arc::new(Fake { state, passes_late_replies: AtomicBool::new(false) }))
        }

        /// The clock is now ahead by this much more.
        pub(crate) fn set_ahead(&self, more: Duration) {
            locked(&self.0.state).ahead += more;
        }

        pub(crate) fn set_margin(&self, margin: Duration) {
            locked(&self.0.state).margin = margin;
        }

        pub(crate) fn pass_late_replies(&self) {
            self.0.passes_late_replies.store(true, Ordering::SeqCst);
        }

        /// The function's calls replace the usual ones. It gets the words of the command.
        pub(crate) fn instead(&self, instead: impl Fn(&Self, &str) -> Option<Call> + Send + Sync + 'static) {
            locked(&self.0.state).instead = Some(Arc::new(instead));
        }

        pub(crate) fn sent(&self, command: &str) -> Vec<String> {
            let state = locked(&self.0.state);
            state.sent.iter().filter(|words| words.split(' ').next() == Some(command)).cloned().collect()
        }

        pub(crate) fn count(&self, command: &str) -> usize {
            self.sent(command).len()
        }

        /// Whether the lock ends with the window of the first tick.
        pub(crate) fn is_kept(&self) -> bool {
            self.is_kept_until(START + DAY / 2)
        }

        pub(crate) fn is_kept_until(&self, due: Duration) -> bool {
            let ends = locked(&self.0.state).ends;
            ends + Duration::from_millis(2) >= due && ends <= due + Duration::from_millis(700)
        }

        pub(crate) fn usual(&self, words: &str) -> Value {
            let words: Vec<_> = words.split(' ').collect();
            let mut state = locked(&self.0.state);
            let time = now() + state.ahead;
            if let Some(px) = words.iter().position(|word| *word == "PX") {
                state.ends = time + Duration::from_millis(words[px + 1].parse().unwrap()) + state.margin;
            }
            let bulk = |text: String| Value::BulkString(text.into_bytes());
            match words[0] {
                "TIME" => Value::Array(vec![bulk(time.as_secs().to_string()), bulk(time.subsec_micros().to_string())]),
                "LOCK.INFO" => {
                    let free = 5001 + i64::try_from(state.margin.as_millis()).unwrap();
                    let fields = [("lease-ms", 5000), ("free-in-ms", free)];
                    Value::Map(fields.map(|(name, ms)| (bulk(name.into()), Value::Int(ms))).to_vec())
                }
                "CLUSTER" => {
                    let at = Value::Array(vec![bulk("localhost".into()), Value::Int(7000)]);
                    Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16383), at])])
                }
                "LOCK.RELEASE" => {
                    state.ends = Duration::ZERO;
                    Value::Int(1)
                }
                _ => Value::Int(1),
            }
        }

        pub(crate) fn engine(&self) -> Arc<Engine> {
            self.engine_of(redis::Client::open("redis://localhost").unwrap().into())
        }

        fn engine_of(&self, servers: Servers) -> Arc<Engine> {
            let server = self.clone();
            let router = Router::new(servers, Box::new(move |_| -> Arc<dyn Server> { Arc::new(server.clone()) }));
            Engine::new(tokio::runtime::Handle::current(), Arc::new(router), Options::new())
        }
    }

    impl Server for FakeServer {
        fn call(&self, cmd: Cmd, _: bool, _: Duration) -> Call {
            let (words, server) = (shown(&cmd), self.clone());
            let mut state = locked(&self.0.state);
            state.sent.push(words.clone());
            let instead = state.instead.clone();
            drop(state);
            if let Some(call) = instead.and_then(|instead| instead(self, &words)) {
                return call;
            }
            Box::pin(async move { Ok(server.usual(&words)) })
        }

        fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
            true
        }

        fn widen(&self) {}

        fn passes_late_replies(&self) -> bool {
            self.0.passes_late_replies.load(Ordering::SeqCst)
        }
    }

    pub(crate) fn fails(failure: Failure) -> Call {
        Box::pin(async { Err(failure) })
    }

    pub(crate) fn refuses(text: &str) -> Call {
        let code = text.split(' ').next().unwrap().to_owned();
        fails(Failure::Reply(ReplyError { code, text: text.to_owned() }))
    }

    /// Waits, without holding up other tasks.
    pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
        for _ in 0..12_000 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("not within a minute: {what}");
    }

    /// The replies to TIME take these times, and then no time.
    fn takes(server: &FakeServer, spans: &[u64]) {
        let left = Mutex::new(spans.to_vec());
        server.instead(move |server, words| {
            if words != "TIME" || locked(&left).is_empty() {
                return None;
            }
            let half = Duration::from_millis(locked(&left).remove(0)) / 2;
            advance(half);
            let reply = server.usual(words);
            advance(half);
            Some(Box::pin(async { Ok(reply) }))
        });
    }

    fn found(estimate: Result<Estimate, Failure>) -> Estimate {
        estimate.unwrap_or_else(|failure| panic!("{}", failure.text()))
    }

    #[test]
    fn a_reply_to_time_is_text_or_numbers() {
        let (sent, received) = (Duration::from_secs(10), Duration::from_millis(10_500));
        let bulk = |text: &str| Value::BulkString(text.into());
        for words in [vec![bulk("1800000000"), bulk("250000")], vec![Value::Int(1_800_000_000), Value::Int(250_000)]] {
            let found = found(Estimate::read(&Value::Array(words), sent, received));
            assert_eq!((found.doubt, found.asked), (MOST_DOUBT, received));
            let (local, server) = (Duration::from_millis(10_250), Duration::from_millis(1_800_000_000_250));
            assert!(found.server_at(local) == server && found.local_at(server) == local && found.is_good());
            assert_eq!(found.local_at(Duration::from_secs(5)), Duration::ZERO);
        }
        for reply in [Value::Nil, Value::Okay, Value::Array(vec![bulk("1")]), Value::Array(vec![bulk("x"), bulk("y")])]
        {
            let failure = Estimate::read(&reply, sent, received).unwrap_err();
            assert!(failure.code() == Some("ERR") && failure.text().ends_with("to TIME"), "{}", failure.text());
        }
    }

    #[tokio::test]
    async fn the_clock_is_read_halfway_through_the_call() {
        let server = FakeServer::new();
        takes(&server, &[400]);
        let found = found(server.engine().resources.clock.read(b"a").await);
        assert_eq!(found.server_at(now()), START + Duration::from_millis(400));
        assert_eq!(found.doubt, Duration::from_millis(200));
    }

    #[tokio::test]
    async fn the_time_is_asked_at_most_once_a_minute() {
        let server = FakeServer::new();
        let engine = server.engine();
        let clock = &engine.resources.clock;
        for key in [b"a", b"a", b"b"] {
            found(clock.read(key).await);
        }
        advance(VALID_FOR.saturating_sub(Duration::from_millis(1)));
        found(clock.read(b"a").await);
        assert_eq!(server.count("TIME"), 1);
        advance(Duration::from_millis(1));
        server.set_ahead(Duration::from_secs(3)); // somebody has set its clock
        assert_eq!(found(clock.read(b"a").await).server_at(now()), START + VALID_FOR + Duration::from_secs(3));
        assert_eq!(server.count("TIME"), 2);
    }

    #[tokio::test]
    async fn the_time_is_read_again_after_a_slow_reply_and_the_better_answer_counts() {
        for (spans, doubt, asked) in
            [(&[500][..], 250, 1), (&[502], 0, 2), (&[800, 1200], 400, 3), (&[1200, 800], 400, 3)]
        {
            let server = FakeServer::new();
            takes(&server, spans);
            let engine = server.engine();
            assert_eq!(found(engine.resources.clock.read(b"a").await).doubt, Duration::from_millis(doubt));
            found(engine.resources.clock.read(b"a").await); // an estimate that may be far off is used once
            assert_eq!(server.count("TIME"), asked, "{spans:?}");
        }
    }

    #[tokio::test]
    async fn a_lost_reply_to_time_is_asked_for_once_more() {
        for (failures, code, asked) in [(1, "", 2), (2, "", 2), (1, "LOADING", 2), (2, "LOADING", 2), (1, "NOPERM", 1)]
        {
            let (server, left) = (FakeServer::new(), Mutex::new(failures));
            server.instead(move |_, _| {
                let mut left = locked(&left);
                if *left == 0 {
                    return None;
                }
                *left -= 1;
                Some(if code.is_empty() { fails(Failure::broken("no")) } else { refuses(&format!("{code} no")) })
            });
            let engine = server.engine();
            let read = engine.resources.clock.read(b"a").await;
            assert_eq!((read.is_ok(), server.count("TIME")), (failures < asked, asked), "{failures} {code}");
        }
    }

    #[tokio::test]
    async fn each_key_of_a_cluster_has_its_own_clock() {
        let server = FakeServer::new();
        let engine = server.engine_of(Servers::cluster([redis::Client::open("redis://localhost:7000").unwrap()]));
        for key in [b"a", b"b", b"a"] {
            found(engine.resources.clock.read(key).await);
        }
        assert_eq!(server.count("TIME"), 2);
        advance(VALID_FOR);
        found(engine.resources.clock.read(b"a").await);
        assert_eq!(locked(&engine.resources.clock.state).known.len(), 1);
    }

    #[tokio::test]
    async fn many_callers_ask_once_and_one_that_gives_up_passes_the_question_on() {
        let (server, may_reply) = (FakeServer::new(), Arc::new(Notify::new()));
        let gate = Arc::clone(&may_reply);
        server.instead(move |server, words| {
            let (gate, server, words) = (Arc::clone(&gate), server.clone(), words.to_owned());
            Some(Box::pin(async move {
                gate.notified().await;
                Ok(server.usual(&words))
            }))
        });
        let engine = server.engine();
        let read = |engine: Arc<Engine>| tokio::spawn(async move { engine.resources.clock.read(b"a").await.is_ok() });
        let first = read(Arc::clone(&engine));
        let others: Vec<_> = (0..20).map(|_| read(Arc::clone(&engine))).collect();
        eventually("one asks", || server.count("TIME") == 1).await;
        first.abort();
        eventually("another asks", || server.count("TIME") == 2).await;
        may_reply.notify_one();
        for other in others {
            assert!(other.await.unwrap());
        }
        assert_eq!(server.count("TIME"), 2);
    }

    #[tokio::test]
    async fn the_margin_is_asked_at_most_once_a_minute() {
        let server = FakeServer::new();
        server.set_margin(Duration::from_secs(7));
        let engine = server.engine();
        let clock = &engine.resources.clock;
        assert_eq!(clock.margin(), USUAL_MARGIN);
        for _ in 0..2 {
            assert_eq!(clock.read_margin(b"a").await, Duration::from_secs(7));
        }
        assert_eq!(server.count("LOCK.INFO"), 1);
        server.instead(|_, _| Some(refuses("NOPERM no"))); // this user may no longer ask
        advance(VALID_FOR);
        for _ in 0..2 {
            assert_eq!(clock.read_margin(b"a").await, Duration::from_secs(7));
        }
        assert_eq!(server.count("LOCK.INFO"), 2);
        server.instead(|_, _| Some(fails(Failure::broken("no")))); // the next caller asks again
        advance(VALID_FOR);
        for _ in 0..2 {
            assert_eq!(clock.read_margin(b"a").await, Duration::from_secs(7));
        }
        assert_eq!(server.count("LOCK.INFO"), 4);
        server.instead(|_, _| Some(Box::pin(async { Ok(Value::Map(Vec::new())) })));
        assert_eq!(clock.read_margin(b"a").await, USUAL_MARGIN);
    }
}
