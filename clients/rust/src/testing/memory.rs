//! The server in memory: what it does for each command. Pure: the caller passes the time.
//!
//! It keeps the module's rules, docs/SEMANTICS.md, as far as this package uses them. queue.rs has those for waiting.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::lock::{ConnectionId, Lock, MARGIN, Request, milliseconds};
use queue::Waiter;

mod queue;

/// How long a place in a queue is reserved, and an ID is blocked.
pub(super) const PLACE: Duration = Duration::from_secs(10);
/// The clock begins at midnight UTC on January 1st, 2000: a tick of every usual period.
pub(super) const BEGINS: Duration = Duration::from_secs(86_400);
const ZERO: Duration = Duration::from_secs(946_684_800 - 86_400);

/// A reply, or the text of an error reply.
pub(super) type Reply = Result<Value, String>;

#[derive(Default)]
pub(super) struct Memory {
    pub(super) locks: BTreeMap<Vec<u8>, Lock>,
    /// In order of arrival.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    pub(super) arrivals: u64,
    /// IDs, and when they were cancelled.
    cancelled: HashMap<u64, Duration>,
    /// The results that attempts get in place of the lock, and until when.
    pub(super) results: HashMap<u64, (Vec<u8>, Duration)>,
    /// The error replies for keys.
    pub(super) refusals: BTreeMap<Vec<u8>, &'static str>,
    pub(super) connections: BTreeMap<ConnectionId, UnboundedSender<Reply>>,
    pub(super) subscribers: Vec<(Vec<u8>, ConnectionId)>,
    last_token: i64,
}

impl Memory {
    /// The time on the server's clock, since the beginning of 1970.
    pub(super) fn server_time(now: Duration) -> Duration {
        ZERO.saturating_add(now)
    }

    pub(super) fn lock(&mut self, key: &[u8], now: Duration) -> &mut Lock {
        let lock = self.locks.entry(key.to_vec()).or_default();
        lock.forget(now);
        lock
    }

    /// ACQUIRE and RECOVER. `None`: the reply comes later. `from` is the connection on which the command may block.
    pub(super) fn acquire(&mut self, from: Option<ConnectionId>, request: Request, now: Duration) -> Option<Reply> {
        if let Some(refusal) = self.refusal(&request.keys) {
            return Some(Err(refusal.into()));
        }
        if let Some(result) = self.result_of(&request, now) {
            return Some(Ok(result));
        }
        if self.cancelled.get(&request.id).is_some_and(|at| now < at.saturating_add(PLACE)) {
            return Some(Ok(Value::Nil));
        }
        let session = from.filter(|_| request.is_session);
        if let Some(reply) = self.again(session, &request, now) {
            return Some(Ok(reply));
        }
        let arrival = self.arrival_of(request.id);
        let blocker = self.blocker(arrival, &request, now);
        if request.is_recovery && (blocker.is_some() || !self.lock(request.key(), now).has_expired(now)) {
            return Some(Ok(Value::Nil));
        }
        let Some(blocker) = blocker else {
            self.waiters.remove(&arrival);
            return Some(Ok(self.grant(session, &request, now)));
        };
        self.join(arrival, &blocker, from, request, now)
    }

    /// The grant of an attempt that has all of its keys: it claims them, or a reply was lost. Its lease never becomes
    /// shorter.
    fn again(&mut self, session: Option<ConnectionId>, request: &Request, now: Duration) -> Option<Value> {
        let mut tokens = request.keys.iter().map(|key| self.locks.get(key).and_then(|it| it.token_of(request.id, now)));
        let token = tokens.next()??;
        if !tokens.all(|other| other == Some(token)) {
            return None;
        }
        let until = now.saturating_add(request.lease).saturating_add(MARGIN);
        let mut reply = None;
        for key in &request.keys {
            let grant = self.lock(key, now).with_token(token)?;
            grant.until = if grant.is_pending { until } else { until.max(grant.until) };
            (grant.is_pending, grant.session) = (false, session);
            reply = reply.or_else(|| Some(grant.reply(request.wants_details, now)));
            self.serve(key, now);
        }
        reply
    }

    /// Grants all of the keys. Returns the reply.
    pub(super) fn grant(&mut self, session: Option<ConnectionId>, request: &Request, now: Duration) -> Value {
        let micros = i64::try_from(Self::server_time(now).as_micros()).unwrap_or(i64::MAX);
        self.last_token = self.last_token.saturating_add(1).max(micros);
        let token = self.last_token;
        for key in &request.keys {
            self.lock(key, now).grant(request, token, session, now);
        }
        let first = self.lock(request.key(), now).with_token(token);
        first.map_or(Value::Nil, |grant| grant.reply(request.wants_details, now))
    }

    pub(super) fn extend(&mut self, keys: &[Vec<u8>], token: i64, lease: Duration, now: Duration) -> Reply {
        if let Some(refusal) = self.refusal(keys) {
            return Err(refusal.into());
        }
        let is_held =
            |lock: &mut Lock| lock.with_token(token).is_some_and(|grant| !grant.is_pending && now < grant.until);
        if !keys.iter().all(|key| is_held(self.lock(key, now))) {
            return Ok(Value::Int(0));
        }
        for key in keys {
            if let Some(grant) = self.lock(key, now).with_token(token) {
                grant.until = now.saturating_add(lease).saturating_add(MARGIN);
            }
        }
        for key in keys {
            self.serve(key, now);
        }
        Ok(Value::Int(1))
    }

    /// Replies for one key: 1, or -1 if the lease had expired, or 0 if others have the lock. A result goes to all that
    /// wait for one.
    pub(super) fn release(&mut self, key: &[u8], token: i64, result: Option<&[u8]>, now: Duration) -> i64 {
        let Some(grant) = self.lock(key, now).take(token) else { return 0 };
        let is_in_time = now < grant.until;
        if let Some(result) = result.filter(|_| is_in_time) {
            self.pass_on(key, result, now);
        }
        self.serve(key, now);
        if is_in_time { 1 } else { -1 }
    }

    pub(super) fn check(&mut self, key: &[u8], token: i64, now: Duration) -> i64 {
        self.lock(key, now).with_token(token).map_or(0, |grant| milliseconds(grant.lease(now)))
    }

    /// Ends an attempt, whether it waits or holds the lock.
    pub(super) fn cancel(&mut self, key: &[u8], id: u64, now: Duration) -> i64 {
        self.cancelled.insert(id, now);
        let mut ended = 0;
        if let Some(arrival) = self.waits_as(id) {
            ended = 1;
            self.answer(arrival, "cancelled", Ok(Value::Nil));
            if let Some(waiter) = self.waiters.remove(&arrival) {
                self.serve(&waiter.at, now);
            }
        }
        let lock = self.lock(key, now);
        if let Some(token) = lock.token_of(id, now) {
            ended = 1;
            lock.take(token);
            self.serve(key, now);
        }
        ended
    }

    pub(super) fn info(&mut self, key: &[u8], now: Duration) -> Value {
        let waiting = self.waiting(key);
        self.lock(key, now).info(waiting, now)
    }

    pub(super) fn refusal(&self, keys: &[Vec<u8>]) -> Option<&'static str> {
        keys.iter().find_map(|key| self.refusals.get(key).copied())
    }

    /// Refuses attempts for the key. Those that wait for it fail.
    pub(super) fn refuse(&mut self, key: &[u8], text: &'static str, now: Duration) {
        self.refusals.insert(key.to_vec(), text);
        let all: Vec<_> = self.waiters.iter().filter(|(_, it)| it.is_waiting()).map(|(arrival, _)| *arrival).collect();
        for arrival in all {
            if self.waiters.get(&arrival).is_some_and(|it| it.request.keys.iter().any(|it| it == key)) {
                self.answer(arrival, "unblocked", Err(text.into()));
                self.leave(arrival, now);
            }
        }
    }

    /// Ends the leases of all holders of the key.
    pub(super) fn expire(&mut self, key: &[u8], now: Duration) {
        for grant in &mut self.lock(key, now).holders {
            if !grant.is_pending {
                grant.until = grant.until.min(now);
            }
        }
        self.serve(key, now);
    }

    /// Ends what depends on a connection: waits, and session locks a margin later.
    pub(super) fn disconnect(&mut self, connection: ConnectionId, now: Duration) {
        self.connections.remove(&connection);
        self.subscribers.retain(|(_, subscriber)| *subscriber != connection);
        let blocked = self.waiters.iter().filter(|(_, it)| it.blocks() == Some(connection));
        for arrival in blocked.map(|(arrival, _)| *arrival).collect::<Vec<_>>() {
            self.leave(arrival, now);
        }
        let ends = now.saturating_add(MARGIN);
        for lock in self.locks.values_mut() {
            for grant in lock.holders.iter_mut().filter(|it| it.session == Some(connection)) {
                grant.until = grant.until.min(ends);
            }
        }
    }
}
