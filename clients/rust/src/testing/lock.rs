//! One key of the server in memory: its holders, expired ones too. Pure: the caller passes the time.

use std::time::Duration;

use redis::Value;

/// The module's settings, with their defaults.
pub(super) const MARGIN: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(60);
const MOST_HOLDERS: usize = 4096;

/// The number of a connection.
pub(super) type ConnectionId = u64;

/// What an attempt asks for.
#[derive(Clone, Default)]
pub(super) struct Request {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) id: u64,
    pub(super) owner: Option<Vec<u8>>,
    /// The channel of NOTIFY.
    pub(super) channel: Option<Vec<u8>>,
    /// Others may hold the lock too, up to so many; `None`: it is held alone.
    pub(super) most: Option<usize>,
    pub(super) is_session: bool,
    pub(super) is_recovery: bool,
    pub(super) wants_details: bool,
    pub(super) wants_result: bool,
}

impl Request {
    pub(super) fn share(&mut self) {
        self.most = Some(MOST_HOLDERS);
    }

    pub(super) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }
}

/// One holder.
#[derive(Clone)]
pub(super) struct Grant {
    pub(super) token: i64,
    pub(super) id: u64,
    pub(super) owner: Option<Vec<u8>>,
    is_alone: bool,
    /// A margin after the end of its lease.
    pub(super) until: Duration,
    pub(super) session: Option<ConnectionId>,
    /// A waiter with NOTIFY has not claimed it yet.
    pub(super) is_pending: bool,
    /// The holder before it, which never released the lock.
    before: Option<Box<Grant>>,
}

impl Grant {
    pub(super) fn lease(&self, now: Duration) -> Duration {
        if self.is_pending { Duration::ZERO } else { self.until.saturating_sub(MARGIN).saturating_sub(now) }
    }

    /// The reply to its attempt: the token, or the details.
    pub(super) fn reply(&self, wants_details: bool, now: Duration) -> Value {
        let token = Value::Int(self.token);
        match &self.before {
            _ if !wants_details => token,
            None => Value::Array(vec![token, Value::Nil, Value::Nil, Value::Nil]),
            Some(before) => {
                let overdue = Value::Int(milliseconds(now.saturating_sub(before.until)));
                let owner = before.owner.clone().map_or(Value::Nil, Value::BulkString);
                Value::Array(vec![token, overdue, Value::Int(before.token), owner])
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Lock {
    pub(super) holders: Vec<Grant>,
}

impl Lock {
    /// Forgets holders whose lease expired long ago.
    pub(super) fn forget(&mut self, now: Duration) {
        self.holders.retain(|it| now < it.until.saturating_add(RETENTION));
    }

    /// The holders whose lease and margin have not passed.
    pub(super) fn live(&self, now: Duration) -> impl Iterator<Item = &Grant> {
        self.holders.iter().filter(move |it| now < it.until)
    }

    pub(super) fn with_token(&mut self, token: i64) -> Option<&mut Grant> {
        self.holders.iter_mut().find(|it| it.token == token)
    }

    pub(super) fn take(&mut self, token: i64) -> Option<Grant> {
        let at = self.holders.iter().position(|it| it.token == token)?;
        Some(self.holders.remove(at))
    }

    /// The token of the attempt with this ID, if it holds the lock.
    pub(super) fn token_of(&self, id: u64, now: Duration) -> Option<i64> {
        self.live(now).find(|it| it.id == id).map(|it| it.token)
    }

    /// The rule: fewer holders than the caller allows, and none that holds the lock alone.
    pub(super) fn admits(&self, request: &Request, now: Duration) -> bool {
        match request.most {
            None => self.live(now).next().is_none(),
            Some(most) => self.live(now).count() < most && !self.live(now).any(|it| it.is_alone),
        }
    }

    /// The holder whose lease ends last.
    pub(super) fn latest(&self) -> Option<&Grant> {
        self.holders.iter().max_by_key(|it| it.until)
    }

    pub(super) fn has_expired(&self, now: Duration) -> bool {
        !self.holders.is_empty() && self.live(now).next().is_none()
    }

    /// Adds a holder. One that holds the lock alone succeeds all expired ones; another one succeeds a holder that held
    /// it alone, or the first to expire if there is no room.
    pub(super) fn grant(&mut self, request: &Request, token: i64, session: Option<ConnectionId>, now: Duration) {
        let first = self.holders.iter().min_by_key(|it| it.until);
        let first = first.filter(|it| it.is_alone || request.most.is_some_and(|most| self.holders.len() >= most));
        let before = match request.most {
            None => {
                let before = self.latest().cloned();
                self.holders.clear();
                before
            }
            Some(_) => first.map(|it| it.token).and_then(|token| self.take(token)),
        };
        let before = before.map(|it| Box::new(Grant { before: None, ..it }));
        self.holders.push(Grant {
            token,
            id: request.id,
            owner: request.owner.clone(),
            is_alone: request.most.is_none(),
            until: now.saturating_add(request.lease).saturating_add(MARGIN),
            session,
            is_pending: false,
            before,
        });
    }

    /// Takes back a grant that was never claimed, as if there had been none.
    pub(super) fn take_back(&mut self, token: i64) {
        if let Some(before) = self.take(token).and_then(|it| it.before) {
            self.holders.push(*before);
        }
    }

    /// The reply to LOCK.INFO, as far as it is read.
    pub(super) fn info(&self, waiters: usize, now: Duration) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        let state = match self.latest() {
            None => "free",
            Some(latest) if now < latest.until => "held",
            Some(_) => "expired",
        };
        let count = Value::Int(i64::try_from(waiters).unwrap_or(i64::MAX));
        let mut fields = vec![text("state"), text(state), text("waiters"), count];
        if let Some(latest) = self.latest() {
            let (lease, free) = (latest.lease(now), latest.until.saturating_sub(now));
            for (name, number) in [
                ("token", latest.token),
                ("lease-ms", milliseconds(lease)),
                ("free-in-ms", milliseconds(free).saturating_add(i64::from(!free.is_zero()))),
            ] {
                fields.extend([text(name), Value::Int(number)]);
            }
            fields.extend(
                latest.owner.clone().map(|owner| [text("owner"), Value::BulkString(owner)]).into_iter().flatten(),
            );
        }
        Value::Array(fields)
    }
}

pub(super) fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
