//! The two masters: they decide with the crate's rules whether to grant, and run their cron.

use super::{monotonic, wall, Client, Failover, Master, Replica, State, Store, LEASE_S, MARGIN_S, MAX_LAG_S, SECOND};
use redis_lock_core::lock::admit::{self, Acquire, Turn};
use redis_lock_core::lock::grace::{Answer, Reign, Settings};
use redis_lock_core::lock::record::Value;
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::state;
use redis_lock_core::lock::terms::Terms;
use redis_lock_core::lock::time::{Micros, UnixMicros};

impl Failover {
    pub(super) fn settings(&self, server: usize, now: u8) -> Settings {
        let grace_s = if now >= self.is.grace_set_at { self.is.grace_s[server] } else { 0 };
        let seconds = |number: u8| Micros(u64::from(number) * SECOND);
        // The new master has no replicas yet, and its server need not require any.
        let wanted = if server == 0 { u64::from(self.is.min_replicas) } else { 0 };
        Settings { grace: seconds(grace_s), margin: seconds(MARGIN_S), max_lag: seconds(MAX_LAG_S), wanted }
    }

    /// The longest lease that the first master accepts.
    fn lease_s(&self, now: u8) -> u8 {
        let longest = self.settings(0, now).longest_lease();
        longest.map_or(self.is.early_lease_s, |longest| u8::try_from(longest.0 / SECOND).unwrap())
    }

    pub(super) fn may_grant(&self, reign: &mut Reign, settings: &Settings, now: u8) -> bool {
        reign.may_grant(&self.turns(settings), monotonic(now)).is_ok()
    }

    /// The settings against which a turn of the loop is measured.
    fn turns(&self, settings: &Settings) -> Settings {
        let times = match (self.is.notices_stalls, self.is.long_turns) {
            (false, _) => u64::from(u8::MAX),
            (true, true) => 2,
            (true, false) => 1,
        };
        Settings { margin: Micros(settings.margin.0 * times), max_lag: Micros(settings.max_lag.0 * times), ..*settings }
    }

    /// LOCK.ACQUIRE, as in `src/commands/acquire.rs`. Returns whether it is granted.
    fn acquire(
        &self,
        store: &mut Store,
        reign: &mut Reign,
        server: usize,
        lease_s: u8,
        wall: UnixMicros,
        now: u8,
    ) -> bool {
        let settings = self.settings(server, now);
        let lease = Micros(u64::from(lease_s) * SECOND);
        if settings.check(lease).is_err() || !self.may_grant(reign, &settings, now) {
            return false;
        }
        let value = store.key.as_ref().map(|bytes| Value::read(bytes, || false));
        let request = Request { share: Share::Alone, lease, id: None, owner: None };
        let lock = state::State::of(value, wall);
        let decision =
            admit::acquire(lock, &request, Turn::Now, Terms { margin: settings.margin }, &mut store.tokens, wall)
                .unwrap();
        let Acquire::Grant { record, .. } = decision else { return false };
        store.key = Some(record.encode().as_bytes().to_vec());
        true
    }

    pub(super) fn arrive(&self, next: &mut State) {
        let Client::Asked { at } = next.clients[0] else { return };
        let (now, lease_s) = (next.now, self.lease_s(at));
        let Master { store, reign, behind, stream, .. } = &mut next.master;
        let mut after = store.clone();
        let is_granted = self.acquire(&mut after, reign, 0, lease_s, wall(now, *behind), now);
        if is_granted {
            *store = after;
            stream.push(store.key.clone());
        }
        // The client counts its lease from the time it asked.
        next.clients[0] = if is_granted { Client::Holds { until: at + lease_s } } else { Client::Done };
    }

    pub(super) fn ask_new_master(&self, next: &mut State) {
        let now = next.now;
        let Some((store, reign)) = next.promoted.as_mut() else { return };
        let is_granted = self.acquire(store, reign, 1, LEASE_S, wall(now, 0), now);
        next.clients[1] = if is_granted { Client::Holds { until: now + LEASE_S } } else { Client::Done };
    }

    /// The server's own cron and the module's.
    pub(super) fn cron(&self, next: &mut State) {
        let now = next.now;
        let settings = self.settings(0, now);
        let master = &mut next.master;
        let wall_s = i8::try_from(now).unwrap() - master.behind;
        let lag = |replica: &Replica| wall_s - replica.read.1;
        master.cron_at = now;
        for replica in &mut next.replicas {
            replica.is_overdue = self.is.slow_turns && replica.unread.is_some();
        }
        if settings.grace == Micros(0) {
            return;
        }
        if master.clock_was_set && self.is.notices_clock {
            master.reign.doubt();
        }
        master.clock_was_set = false;
        master.reign.begin_turn(&self.turns(&settings), monotonic(now));
        let offset = u64::try_from(master.stream.len()).unwrap();
        let newer = u64::from(!self.is.only_new_answers);
        let answers: Vec<Answer> = next
            .replicas
            .iter()
            .map(|replica| Answer {
                offset: u64::from(replica.read.0) + newer,
                // Whole seconds: an answer nearly a second too old still looks recent.
                lag_s: i64::from(lag(replica)) - i64::from(lag(replica) > 0),
            })
            .collect();
        master.reign.inspect(&settings, offset, &answers, monotonic(now));
    }

    /// Whether the master's loop has done everything that it does in each turn.
    pub(super) fn is_up_to_date(state: &State) -> bool {
        let has_read = state.replicas.iter().all(|replica| replica.unread.is_none());
        has_read && state.master.cron_at == state.now
    }
}
