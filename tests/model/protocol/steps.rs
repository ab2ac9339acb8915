//! The steps of the protocol: commands that arrive, and what clients do.

use super::{Action, Fact, Protocol, State, START_S, START_S_FLOAT};
use crate::clients::{Client, Fault, Phase, Sent, Who};
use crate::line::Stand;
use crate::server::{Call, News, Reply, Stored};
use redis_lock::lock::rules;
use redis_lock::lock::time::Micros;

impl Protocol {
    pub(super) fn acquire(&self, next: &mut State, call: &Call) -> Option<Reply> {
        let wall = Self::wall(next);
        let must_be_told = next.witness.must_be_told(call, wall);
        let kept_place = next.server.line.stands.iter().any(|stand| Some(stand) == call.id.map(Stand::Place).as_ref());
        let is_foreign = matches!(next.server.lock(wall), rules::State::Foreign);
        let had_expired = matches!(next.server.lock(wall), rules::State::Expired(..));
        let reply = next.server.acquire(self.settings(), call, wall);
        if must_be_told.is_some() && reply != must_be_told.map(Reply::Token) {
            next.witness.fault = Some(Fault::NotTold);
        }
        let who = Who::of(call.conn, call.id);
        match reply {
            Some(Reply::Token(_)) => {
                if must_be_told.is_some() {
                    self.note(Fact::ToldAgain);
                } else if had_expired {
                    self.note(Fact::TakeOver);
                }
            }
            None => {
                if is_foreign {
                    self.note(Fact::ForeignWait);
                }
                if kept_place {
                    self.note(Fact::PlaceTaken);
                }
            }
            _ => {}
        }
        let is_refused = reply.is_none() || (reply == Some(Reply::Nil) && call.id.is_some());
        self.watch(next);
        if is_refused {
            next.witness.arrive(who);
        } else {
            next.witness.leave(who);
        }
        reply
    }

    /// Shows the witness what the server did, and puts the replies on their way.
    pub(super) fn watch(&self, next: &mut State) {
        let wall = Self::wall(next);
        let term = Micros(Self::seconds(self.scope.lease).0 + Self::seconds(self.scope.margin).0);
        for news in std::mem::take(&mut next.server.news) {
            next.witness.see(&news, &next.server, term, wall);
            match news {
                News::Answer { conn, reply } => Self::send(next, conn, reply),
                News::Undelivered { .. } => self.note(Fact::Undelivered),
                News::CutShort { .. } => self.note(Fact::SessionEnded),
                _ => {}
            }
        }
    }

    /// A reply leaves the server; it is lost if its client has closed the connection.
    pub(super) fn send(next: &mut State, conn: u64, reply: Reply) {
        let who = usize::try_from(conn / 10).unwrap();
        let client = &mut next.clients[who];
        if client.conn(who) == conn && client.phase != Phase::Crashed {
            client.inbox = Some(reply);
        }
    }

    pub(super) fn arrive(&self, next: &mut State, who: usize) {
        let Some(sent) = next.clients[who].outbox.take() else { return };
        let (settings, wall, lease) = (self.settings(), Self::wall(next), Self::seconds(self.scope.lease));
        let letters = next.server.letters.len();
        let reply = match sent {
            Sent::Acquire(call) => self.acquire(next, &call),
            Sent::Extend(token) => Some(next.server.extend(settings, token, lease, wall)),
            Sent::Release(token) => Some(next.server.release(settings, token, wall)),
            Sent::Cancel(id) => {
                let reply = next.server.cancel(settings, id, wall);
                next.witness.leave(Who::Attempt(id));
                Some(reply)
            }
        };
        match (next.clients[who].phase, reply) {
            (Phase::Leaving, Some(Reply::Number(0))) => self.note(Fact::StaleRelease),
            (Phase::Extending, Some(Reply::Number(1))) => self.note(Fact::Extended),
            _ => {}
        }
        if next.server.letters.len() > letters {
            self.note(Fact::HandOff);
        }
        if let Some(reply) = reply {
            next.clients[who].inbox = Some(reply);
        }
    }

    /// The steps of clients.
    pub(super) fn client_step(&self, next: &mut State, action: &Action) {
        let now = next.now;
        match *action {
            Action::Ask(who) => {
                let call = self.call(next, who);
                let client = &mut next.clients[who];
                client.asks -= 1;
                client.phase = Phase::Asking;
                client.sent_at = now;
                client.outbox = Some(Sent::Acquire(call));
            }
            Action::AskAgain { who, first_arrives_late } => {
                next.left.resends -= 1;
                if first_arrives_late {
                    next.left.late -= 1;
                    if let Some(Sent::Acquire(call)) = next.clients[who].outbox.take() {
                        next.late.push(call);
                    }
                }
                next.clients[who].reconnect();
                let call = self.call(next, who);
                next.clients[who].sent_at = now;
                next.clients[who].outbox = Some(Sent::Acquire(call));
            }
            Action::Cancel(who) => {
                next.left.cancels -= 1;
                let id = self.attempt(next, who);
                let client = &mut next.clients[who];
                client.reconnect();
                client.rest();
                client.attempt += 1;
                client.phase = Phase::Leaving;
                client.outbox = id.map(Sent::Cancel);
            }
            Action::Extend(who) => {
                next.left.extends -= 1;
                let client = &mut next.clients[who];
                client.phase = Phase::Extending;
                client.sent_at = now;
                client.outbox = client.token.map(Sent::Extend);
            }
            Action::Release(who) => {
                let client = &mut next.clients[who];
                client.outbox = client.token.map(Sent::Release);
                client.rest();
                client.phase = Phase::Leaving;
            }
            Action::Crash(who) => {
                next.left.crashes -= 1;
                let client = &mut next.clients[who];
                client.rest();
                client.reconnect();
                client.phase = Phase::Crashed;
            }
            Action::ConnectionBreaks(who) => {
                next.left.breaks -= 1;
                let client = &mut next.clients[who];
                client.reconnect();
                // It notices within the margin.
                client.believes_until = client.believes_until.min(now + self.scope.margin);
            }
            Action::ReadReply(who) => {
                if let Some(reply) = next.clients[who].inbox.take() {
                    next.clients[who].read(reply, self.scope.lease);
                }
            }
            _ => self.plain_step(next, action),
        }
    }

    /// The steps of clients that lock with plain commands; each is one command, done at once.
    fn plain_step(&self, next: &mut State, action: &Action) {
        let now = next.now;
        let own_clock_s = START_S_FLOAT + f64::from(now);
        let timestamp = START_S + u64::from(now) + u64::from(self.scope.lease + self.scope.margin);
        next.server.let_expire(Self::wall(next));
        let key = next.server.key.clone();
        let is_expired = |stored: &Stored| classic_seconds(&stored.bytes).is_some_and(|at| at <= own_clock_s);
        let mine = |text: String, expire_at_ms| Some(Stored { bytes: text.into_bytes(), expire_at_ms });
        let take = |client: &mut Client| {
            client.phase = Phase::Holding;
            client.believes_until = now + self.scope.lease;
        };
        match *action {
            Action::Setnx(who) | Action::Getset(who) if key.is_none() => {
                next.clients[who].asks -= u8::from(matches!(action, Action::Setnx(_)));
                next.server.key = mine(timestamp.to_string(), None);
                take(&mut next.clients[who]);
            }
            Action::Setnx(who) => {
                next.clients[who].asks -= 1;
                next.clients[who].phase = Phase::Refused;
            }
            Action::Get(who) => {
                let saw = if key.as_ref().is_some_and(is_expired) { Phase::SawExpired } else { Phase::Idle };
                next.clients[who].phase = saw;
            }
            Action::Getset(who) => {
                next.witness.overwritten();
                next.server.key = mine(timestamp.to_string(), None);
                // Nobody tells the module of it: found within a second.
                next.server.look_at_all();
                next.clients[who].phase = Phase::Idle;
                if key.as_ref().is_some_and(is_expired) {
                    take(&mut next.clients[who]);
                    self.note(Fact::ClassicTakeOver);
                }
            }
            Action::SetNxPx(who) => {
                next.clients[who].asks -= 1;
                if key.is_none() {
                    let end = Self::wall(next).after(Self::seconds(self.scope.lease));
                    next.server.key = mine(format!("owner-{who}"), Some(end.0 / 1_000));
                    take(&mut next.clients[who]);
                }
            }
            Action::CompareAndDelete(who) => {
                if key.is_some_and(|stored| stored.bytes == format!("owner-{who}").into_bytes()) {
                    next.server.deleted_by_others();
                }
                next.clients[who].rest();
            }
            Action::Del(who) => {
                next.server.deleted_by_others();
                next.witness.overwritten();
                next.clients[who].rest();
            }
            _ => {}
        }
    }
}

/// The number that a client of the pattern reads: a float.
fn classic_seconds(bytes: &[u8]) -> Option<f64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
