//! The queues of the server in memory: who waits for which key, and who is next.

use std::time::Duration;

use redis::{PushKind, Value};

use super::super::lock::{ConnectionId, Request};
use super::{Memory, PLACE, Reply};

/// How long a waiter with NOTIFY may take to claim its grant.
const CLAIM: Duration = Duration::from_secs(2);

/// An attempt in a queue.
pub(in crate::testing) struct Waiter {
    pub(in crate::testing) request: Request,
    /// The key in whose queue it is.
    pub(in crate::testing) at: Vec<u8>,
    state: State,
}

enum State {
    /// Until then, on a connection, or with NOTIFY.
    Waits { until: Duration, on: Option<ConnectionId> },
    /// It does not wait at the moment: its place has been reserved since then.
    Left(Duration),
}

impl Waiter {
    pub(in crate::testing) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waits { .. })
    }

    /// The connection on which it waits.
    pub(in crate::testing) fn blocks(&self) -> Option<ConnectionId> {
        match self.state {
            State::Waits { on, .. } => on,
            State::Left(_) => None,
        }
    }

    fn due(&self) -> Option<Duration> {
        match self.state {
            State::Waits { until, .. } => Some(until),
            State::Left(_) => None,
        }
    }
}

impl Memory {
    pub(in crate::testing) fn waits_as(&self, id: u64) -> Option<u64> {
        self.waiters.iter().find(|(_, it)| it.request.id == id).map(|(arrival, _)| *arrival)
    }

    /// How many attempts wait for the key.
    pub(in crate::testing) fn waiting(&self, key: &[u8]) -> usize {
        self.waiters.values().filter(|it| it.at == key && it.is_waiting()).count()
    }

    /// The place of an attempt, which ends its previous call; or a new place.
    pub(in crate::testing) fn arrival_of(&mut self, id: u64) -> u64 {
        let Some(arrival) = self.waits_as(id) else {
            self.arrivals = self.arrivals.saturating_add(1);
            return self.arrivals;
        };
        if self.waiters.get(&arrival).is_some_and(|it| it.blocks().is_some()) {
            let text = "UNBLOCKED a newer call with the same id replaced this one";
            self.answer(arrival, "", Err(text.into()));
        }
        arrival
    }

    /// The key for which an attempt has to wait: the one in whose queue it is, if that is one of several.
    pub(in crate::testing) fn blocker(&mut self, arrival: u64, request: &Request, now: Duration) -> Option<Vec<u8>> {
        let at = self.waiters.get(&arrival).map(|it| it.at.clone());
        let mut found = None;
        for key in &request.keys {
            let is_behind = self.waiters.range(..arrival).any(|(_, it)| it.at == *key && it.is_waiting());
            let is_blocked = is_behind || !self.lock(key, now).admits(request, now);
            if is_blocked && (found.is_none() || at.as_ref() == Some(key)) {
                found = Some(key.clone());
            }
        }
        found
    }

    /// Adds an attempt to the queue, or reserves its place. `None`: the reply comes later.
    pub(in crate::testing) fn join(
        &mut self,
        arrival: u64,
        at: &[u8],
        from: Option<ConnectionId>,
        request: Request,
        now: Duration,
    ) -> Option<Reply> {
        let notifies = request.channel.is_some();
        let waits = !request.wait.is_zero() && (notifies || from.is_some());
        let until = now.saturating_add(request.wait);
        let on = from.filter(|_| !notifies);
        let state = if waits { State::Waits { until, on } } else { State::Left(now) };
        self.waiters.insert(arrival, Waiter { request, at: at.to_vec(), state });
        if !waits {
            self.serve(at, now); // those behind it do not wait for it
            return Some(Ok(Value::Nil));
        }
        notifies.then(|| Ok(Value::SimpleString("WAITING".into())))
    }

    /// Reserves the place of an attempt that no longer waits.
    pub(in crate::testing) fn leave(&mut self, arrival: u64, now: Duration) {
        if let Some(waiter) = self.waiters.get_mut(&arrival) {
            waiter.state = State::Left(now);
            let at = waiter.at.clone();
            self.serve(&at, now);
        }
    }

    /// Grants the lock to waiters in their order, as far as that goes.
    pub(in crate::testing) fn serve(&mut self, key: &[u8], now: Duration) {
        self.waiters.retain(|_, it| match it.state {
            State::Left(since) => now < since.saturating_add(PLACE),
            State::Waits { .. } => true,
        });
        let is_here = |waiter: &Waiter| waiter.at == key && waiter.is_waiting();
        let queue: Vec<_> = self.waiters.iter().filter(|(_, it)| is_here(it)).map(|(arrival, _)| *arrival).collect();
        for arrival in queue {
            let Some(request) = self.waiters.get(&arrival).map(|it| it.request.clone()) else { continue };
            match self.blocker(arrival, &request, now) {
                Some(blocker) if blocker == key => return,
                Some(blocker) => {
                    if let Some(waiter) = self.waiters.get_mut(&arrival) {
                        waiter.at = blocker;
                    }
                }
                None => self.hand_over(arrival, &request, now),
            }
        }
    }

    fn hand_over(&mut self, arrival: u64, request: &Request, now: Duration) {
        let session = self.waiters.get(&arrival).and_then(Waiter::blocks).filter(|_| request.is_session);
        let reply = self.grant(session, request, now);
        if request.channel.is_some() {
            for key in &request.keys {
                // The newest grant is this one.
                if let Some(grant) = self.lock(key, now).holders.last_mut() {
                    (grant.is_pending, grant.until) = (true, now.saturating_add(CLAIM));
                }
            }
        }
        self.answer(arrival, "granted", Ok(reply));
        self.waiters.remove(&arrival);
    }

    /// Gives a result to all in the queue that want one. They leave it.
    pub(in crate::testing) fn pass_on(&mut self, key: &[u8], result: &[u8], now: Duration) {
        let wants = self.waiters.iter().filter(|(_, it)| it.at == key && it.request.wants_result);
        for arrival in wants.map(|(arrival, _)| *arrival).collect::<Vec<_>>() {
            self.answer(arrival, "result", Ok(as_reply(result)));
            // An attempt that does not block asks for it.
            if let Some(waiter) = self.waiters.remove(&arrival).filter(|it| it.blocks().is_none()) {
                self.results.insert(waiter.request.id, (result.to_vec(), now.saturating_add(CLAIM)));
            }
        }
    }

    /// The reply with the result that an attempt was given, as often as it asks in time.
    pub(in crate::testing) fn result_of(&mut self, request: &Request, now: Duration) -> Option<Value> {
        self.results.retain(|_, (_, until)| now < *until);
        let (result, _) = self.results.get(&request.id).filter(|_| request.wants_result)?;
        Some(as_reply(result))
    }

    /// Ends a wait: with a reply, or with a message.
    pub(in crate::testing) fn answer(&self, arrival: u64, message: &str, reply: Reply) {
        let Some(waiter) = self.waiters.get(&arrival).filter(|it| it.is_waiting()) else { return };
        let request = &waiter.request;
        if let Some(connection) = waiter.blocks() {
            self.send(connection, reply);
        } else if let Some(channel) = &request.channel {
            let mut text = format!("{message} {} ", request.id).into_bytes();
            text.extend(request.key());
            let data = vec![Value::BulkString(channel.clone()), Value::BulkString(text)];
            for (_, subscriber) in self.subscribers.iter().filter(|(subscribed, _)| subscribed == channel) {
                self.send(*subscriber, Ok(Value::Push { kind: PushKind::Message, data: data.clone() }));
            }
        }
    }

    pub(in crate::testing) fn send(&self, connection: ConnectionId, reply: Reply) {
        if let Some(connection) = self.connections.get(&connection) {
            let _ = connection.send(reply); // a connection that has just ended gets nothing
        }
    }

    /// When something is due next without a command: the end of a wait, of a claim, or of a lease that delays waiters.
    pub(in crate::testing) fn due(&self, now: Duration) -> Option<Duration> {
        let waits = self.waiters.values().filter_map(Waiter::due);
        let is_awaited = |key: &[u8]| self.waiters.values().any(|it| it.at == key && it.is_waiting());
        let leases = self.locks.iter().flat_map(|(key, lock)| {
            let is_awaited = is_awaited(key);
            lock.holders.iter().filter(move |it| it.is_pending || is_awaited).map(|it| it.until)
        });
        waits.chain(leases).filter(|at| *at > now).min()
    }

    /// Carries out what is due.
    pub(in crate::testing) fn act(&mut self, now: Duration) {
        for lock in self.locks.values_mut() {
            let unclaimed = lock.holders.iter().filter(|it| it.is_pending && it.until <= now);
            for token in unclaimed.map(|it| it.token).collect::<Vec<_>>() {
                lock.take_back(token);
            }
        }
        let over = self.waiters.iter().filter(|(_, it)| it.due().is_some_and(|due| due <= now));
        for arrival in over.map(|(arrival, _)| *arrival).collect::<Vec<_>>() {
            self.answer(arrival, "timeout", Ok(Value::Nil));
            self.leave(arrival, now);
        }
        for key in self.locks.keys().cloned().collect::<Vec<_>>() {
            self.serve(&key, now);
        }
    }
}

fn as_reply(result: &[u8]) -> Value {
    Value::Array(vec![Value::BulkString(result.to_vec())])
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)] // of times
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn ask(memory: &mut Memory, words: &str, now: Duration) -> Value {
        let words: Vec<_> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        memory.command(None, &words, now).unwrap().unwrap_or_else(|error| panic!("{error}"))
    }

    fn waits(memory: &mut Memory, key: &str, id: u64) -> bool {
        let words = format!("LOCK.ACQUIRE {key} PX 30000 WAIT 60000 ID {id} NOTIFY c");
        ask(memory, &words, START) == Value::SimpleString("WAITING".into())
    }

    #[test]
    fn a_grant_that_is_not_claimed_passes_to_the_next_waiter() {
        let mut memory = Memory::default();
        let Value::Int(token) = ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 1", START) else { panic!() };
        assert!(waits(&mut memory, "a", 2) && waits(&mut memory, "a", 3));
        assert_eq!(ask(&mut memory, &format!("LOCK.RELEASE a {token}"), START), Value::Int(1));
        assert_eq!(memory.due(START), Some(START + CLAIM));
        memory.act(START + CLAIM);
        assert!(memory.waiters.is_empty());
        let Value::Int(next) = ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 3", START + CLAIM) else { panic!() };
        assert!(next > token);
        assert_eq!(ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 2", START + CLAIM), Value::Nil, "it was too late");
    }

    #[test]
    fn a_lease_that_others_wait_for_is_due_a_margin_after_its_end() {
        let mut memory = Memory::default();
        ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 1", START);
        assert_eq!(memory.due(START), None, "nobody waits");
        assert!(waits(&mut memory, "a", 2));
        assert_eq!(memory.due(START), Some(START + Duration::from_secs(31)));
        memory.act(START + Duration::from_secs(30));
        assert_eq!(memory.waiting(b"a"), 1);
        memory.act(START + Duration::from_secs(31));
        assert_eq!(memory.waiting(b"a"), 0);
    }

    #[test]
    fn a_result_goes_to_all_that_want_one_and_the_next_of_the_others_gets_the_lock() {
        let mut memory = Memory::default();
        let Value::Int(token) = ask(&mut memory, "LOCK.ACQUIRE a PX 30000 WAIT 60000 ID 1 RESULT", START) else {
            panic!()
        };
        let with_result = |id: u64| format!("LOCK.ACQUIRE a PX 30000 WAIT 60000 ID {id} NOTIFY c RESULT");
        for (id, words) in [(2, with_result(2)), (4, with_result(4))] {
            assert_eq!(ask(&mut memory, &words, START), Value::SimpleString("WAITING".into()), "{id}");
            assert!(waits(&mut memory, "a", id + 1));
        }
        let (long, short) = ("x".repeat(65_537), "x".repeat(65_536));
        let too_long = ["LOCK.RELEASE", "a", &token.to_string(), "RESULT", &long].map(|word| word.as_bytes().to_vec());
        let error = memory.command(None, &too_long, START).unwrap().unwrap_err();
        assert!(error.starts_with("ERR result is longer"), "{error}");
        assert_eq!(ask(&mut memory, &format!("LOCK.RELEASE a {token} RESULT {short}"), START), Value::Int(1));
        for id in [2, 4, 4] {
            assert_eq!(ask(&mut memory, &with_result(id), START), as_reply(short.as_bytes()), "as often as it asks");
        }
        assert_eq!(memory.waits_as(3), None, "it has the lock");
        assert!(memory.waits_as(5).is_some());
        let late = ask(&mut memory, &with_result(2), START + CLAIM);
        assert_eq!(late, Value::SimpleString("WAITING".into()), "a new attempt");
    }

    #[test]
    fn a_result_after_the_end_of_the_lease_goes_to_nobody() {
        let mut memory = Memory::default();
        let Value::Int(token) = ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 1", START) else { panic!() };
        let end = START + Duration::from_secs(31);
        assert_eq!(ask(&mut memory, "LOCK.ACQUIRE a PX 30000 WAIT 60000 ID 2 RESULT", START), Value::Nil);
        assert_eq!(ask(&mut memory, &format!("LOCK.RELEASE a {token} RESULT x"), end), Value::Int(-1));
        let next = ask(&mut memory, "LOCK.ACQUIRE a PX 30000 WAIT 60000 ID 2 RESULT", end);
        assert!(matches!(next, Value::Int(next) if next > token), "{next:?}");
    }

    #[test]
    fn an_attempt_that_comes_back_has_its_old_place() {
        let mut memory = Memory::default();
        ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 1", START);
        assert_eq!(ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 2", START), Value::Nil);
        assert!(waits(&mut memory, "a", 3) && waits(&mut memory, "a", 2));
        ask(&mut memory, "LOCK.CANCEL a 1", START);
        assert_eq!(memory.waits_as(2), None, "it has the lock");
        assert!(memory.waits_as(3).is_some());
        assert_eq!(ask(&mut memory, "LOCK.ACQUIRE a PX 30000 ID 1", START), Value::Nil, "its ID is blocked");
    }
}
