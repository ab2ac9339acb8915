//! The steps of the protocol: the clients' steps, the server's steps, and the replies.

use super::{Action, Fact, Keeps, Protocol, State, DB, HOUR, KEY, NEVER, SECOND};
use crate::clients::{Command, Kind, Phase, Reply, Sent};
use crate::fake::{Blocked, Mutant, Node, OwnedKeyName};
use crate::witness::{self, Grant, Who};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::ReplyShape;
use redis_lock_core::engine::KeyName;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::state::State as Lock;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;

pub(super) fn place() -> OwnedKeyName {
    (DB, KEY.to_vec())
}

/// The grant in the key, and its end.
fn held(node: &Node) -> Option<(Token, UnixMicros)> {
    node.with_lock(&place(), |lock| match lock {
        Lock::Held(until, record) => record.map(|record| (record.token, until)),
        _ => None,
    })
}

fn grants_sent(node: &Node) -> usize {
    node.world.borrow().letters.len()
}

fn has_place(node: &Node, id: Id) -> bool {
    let driver = node.driver.borrow();
    let queues = driver.engine().queues();
    let key = KeyName::new(DB, KEY);
    queues.ticket(key, id).is_some() && !queues.is_waiting(key, id)
}

impl Protocol {
    /// How long everybody else considers a grant valid.
    fn term(&self) -> Micros {
        Micros(Self::seconds(self.scope.lease).0 + Self::seconds(self.scope.margin).0)
    }

    fn is_for_session(&self, conn: u64) -> bool {
        matches!(self.scope.clients[usize::try_from(conn / 10).unwrap()].0, Kind::Lock { session: true, .. })
    }

    fn acquire(&self, next: &mut State, node: &Node, command: &Command, wait: Micros) -> Option<Reply> {
        let wall = node.world.borrow().wall;
        let must_be_reported = next.witness.must_be_reported(command, wall);
        let kept_place = command.id.is_some_and(|id| has_place(node, id));
        let (is_foreign, had_expired) =
            node.with_lock(&place(), |lock| (matches!(lock, Lock::Foreign), matches!(lock, Lock::Expired(..))));
        let id = command.id.filter(|_| self.scope.mutant != Mutant::IgnoresIds);
        let request = Request { share: Share::Alone, lease: command.lease, id, owner: None };
        let wait = if command.waits { wait } else { Micros(0) };
        let ask = Ask {
            request,
            wait,
            shape: ReplyShape::Token,
            session: command.session,
            wants_result: false,
            notify: None,
        };
        let outcome = node.command(command.conn, |entry| entry.acquire(KEY, &ask));
        let who = Who::of(command.conn, command.id);
        let reply = match outcome.expect("no command fails") {
            Outcome::Granted(granted) => {
                let session = command.session.then_some(command.conn);
                let grant = Grant { who, token: granted.token, session };
                next.witness.granted(grant, &node.world.borrow(), self.term());
                Some(Reply::Token(granted.token))
            }
            Outcome::NotGranted => Some(Reply::Nil),
            Outcome::Waits => None,
            Outcome::Queued | Outcome::Result(_) => panic!("nobody asks for that"),
        };
        if must_be_reported.is_some() && reply != must_be_reported.map(Reply::Token) {
            next.witness.violation = Some(witness::Violation::NotReported);
        }
        match reply {
            Some(Reply::Token(_)) if must_be_reported.is_some() => self.note(Fact::ReportedAgain),
            Some(Reply::Token(_)) if had_expired => self.note(Fact::TakeOver),
            None if is_foreign => self.note(Fact::ForeignWait),
            _ => {}
        }
        if reply.is_none() && kept_place {
            self.note(Fact::PlaceTaken);
        }
        if reply.is_none() || (reply == Some(Reply::Nil) && command.id.is_some()) {
            next.witness.arrive(who, command.conn);
        } else {
            next.witness.leave(who);
        }
        reply
    }

    /// Shows the witness what the server did, and sends the replies on their way.
    pub(super) fn watch(&self, next: &mut State, node: &Node) {
        let mut letters = node.world.borrow().letters.clone();
        letters.retain(|(to, _)| !next.server.letters.contains(to));
        for (to, answer) in &letters {
            let conn = to.0;
            let reply = match answer {
                Answer::Granted(grant) => {
                    let (token, is_for_session) = (grant.granted.token, self.is_for_session(conn));
                    let who = next.witness.sent(conn, token);
                    let grant = Grant { who, token, session: is_for_session.then_some(conn) };
                    next.witness.granted(grant, &node.world.borrow(), self.term());
                    continue;
                }
                Answer::NotGranted(_) => Reply::Nil,
                Answer::Result(_) => panic!("nobody asks for a result"),
                Answer::Failed(_) => Reply::Unblocked,
            };
            node.deliver(*to);
            next.witness.leave(Who::Conn(conn));
            Self::send(next, conn, reply);
        }
        let wall = {
            let mut world = node.world.borrow_mut();
            world.log.clear();
            world.events.clear();
            world.wall
        };
        next.witness.forget(wall, held(node));
    }

    /// Sends a reply from the server; it is lost if its client has closed the connection.
    fn send(next: &mut State, conn: u64, reply: Reply) {
        let who = usize::try_from(conn / 10).unwrap();
        let client = &mut next.clients[who];
        if client.conn(who) == conn && client.phase != Phase::Crashed {
            client.inbox = Some(reply);
        }
    }

    /// Lets a command arrive. Returns whether the result is worth exploring.
    fn arrive(&self, next: &mut State, node: &Node, who: usize, wait: Micros) -> bool {
        let Some(sent) = next.clients[who].outbox.take() else { return false };
        let (conn, wall) = (next.clients[who].conn(who), node.world.borrow().wall);
        let letters = grants_sent(node);
        let reply = match sent {
            Sent::Acquire(command) => self.acquire(next, node, &command, wait),
            Sent::Extend(token) => {
                let lease = Self::seconds(self.scope.lease);
                let is_extended = node.command(conn, |entry| entry.extend(KEY, token, lease)).unwrap();
                if is_extended {
                    next.witness.extended(token, wall.after(self.term()));
                }
                Some(Reply::Number(i8::from(is_extended)))
            }
            Sent::Release(token) => {
                let release = node.command(conn, |entry| entry.release(KEY, token)).unwrap();
                if release != Release::Over {
                    next.witness.given_back(token);
                }
                Some(Reply::Number(match release {
                    Release::InTime => 1,
                    Release::Late => -1,
                    Release::Over => 0,
                }))
            }
            Sent::Cancel(id) => {
                let was_there = node.command(conn, |entry| entry.cancel(KEY, id)).unwrap();
                next.witness.cancelled(id);
                Some(Reply::Number(i8::from(was_there)))
            }
        };
        match (next.clients[who].phase, reply) {
            (Phase::Leaving, Some(Reply::Number(0))) => self.note(Fact::StaleRelease),
            (Phase::Extending, Some(Reply::Number(1))) => self.note(Fact::Extended),
            _ => {}
        }
        if grants_sent(node) > letters {
            self.note(Fact::HandOff);
        }
        let waits = reply.is_none();
        if let Some(reply) = reply {
            next.clients[who].inbox = Some(reply);
        }
        wait == NEVER || waits
    }

    /// The steps in which the server takes part. Returns whether the result is worth exploring.
    pub(super) fn server_step(&self, next: &mut State, node: &Node, action: &Action) -> bool {
        let wall = node.world.borrow().wall;
        match *action {
            Action::ASecondPasses => {
                next.now += 1;
                node.pass(SECOND);
            }
            Action::ClockAhead => {
                next.left.clock_ahead -= 1;
                node.set_clock(wall.after(SECOND));
            }
            Action::ClockBack => {
                next.left.clock_back -= 1;
                node.set_clock(wall.before(SECOND));
            }
            Action::Arrive { who, gives_up } => {
                next.left.time_outs -= u8::from(gives_up);
                let wait = if gives_up { Micros(HOUR.0 * 2) } else { NEVER };
                return self.arrive(next, node, who, wait);
            }
            Action::ArriveLate => {
                let command = next.late.remove(0);
                self.note(Fact::LateCommand);
                // Its client has disconnected, so the reply is lost.
                self.acquire(next, node, &command, NEVER);
            }
            Action::Deliver(conn) => {
                if let Some(Answer::Granted(grant)) = node.deliver(Blocked(conn)) {
                    next.witness.delivered(grant.granted.token);
                    Self::send(next, conn, Reply::Token(grant.granted.token));
                }
            }
            Action::HangUp(conn, keeps) => {
                return Self::keeping(next, node, keeps, |next| self.hang_up(next, node, conn))
            }
            Action::EndComes(keeps) => return Self::keeping(next, node, keeps, |next| Self::end_comes(next, node)),
            Action::NativeExpiry => node.expire(&place()),
            Action::Timer => {
                let (letters, before, was_lost) = (grants_sent(node), held(node), next.witness.is_lost_grant_live());
                node.fire();
                if was_lost && grants_sent(node) > letters {
                    self.note(Fact::PassedOn);
                }
                let is_cut =
                    |(now, before): ((Token, UnixMicros), (Token, UnixMicros))| now.0 == before.0 && now.1 < before.1;
                if held(node).zip(before).is_some_and(is_cut) {
                    self.note(Fact::SessionEnded);
                }
            }
            _ => self.plain_step(next, node, action),
        }
        true
    }

    /// Takes a step in which somebody may leave a place, reserved according to `keeps`. Returns whether that made a
    /// difference.
    fn keeping(next: &mut State, node: &Node, keeps: Keeps, step: impl FnOnce(&mut State)) -> bool {
        let places = || node.driver.borrow().engine().queues().places();
        let keep = |time| node.world.borrow_mut().settings.limits.place = time;
        let before = places();
        keep(match keeps {
            Keeps::ForEver => NEVER,
            Keeps::Briefly => HOUR,
            Keeps::Longer => Micros(HOUR.0 * 3),
        });
        step(next);
        keep(NEVER);
        next.left.places_over -= u8::from(keeps != Keeps::ForEver);
        keeps == Keeps::ForEver || places() > before
    }

    /// Lets the server notice that a connection has ended.
    fn hang_up(&self, next: &mut State, node: &Node, conn: u64) {
        if let Some(Answer::Granted(grant)) = node.lose(Blocked(conn)) {
            if next.witness.undelivered(grant.granted.token) {
                self.note(Fact::Undelivered);
            }
        }
        node.disconnect(conn);
        let until = node.world.borrow().wall.after(Self::seconds(self.scope.margin));
        next.witness.connection_ended(conn, until);
    }

    fn end_comes(next: &mut State, node: &Node) {
        let kept: Vec<Id> = next.witness.attempts().filter(|id| has_place(node, *id)).collect();
        node.end_comes();
        for id in kept.into_iter().filter(|id| !has_place(node, *id)) {
            next.witness.leave(Who::Attempt(id));
        }
    }

    /// The steps that clients take on their own. Returns whether `action` was one.
    pub(super) fn client_step(&self, next: &mut State, action: &Action) -> bool {
        let now = next.now;
        match *action {
            Action::Ask(who) => {
                let command = self.command(next, who);
                let client = &mut next.clients[who];
                client.asks -= 1;
                client.phase = Phase::Asking;
                client.sent_at = now;
                client.outbox = Some(Sent::Acquire(command));
            }
            Action::AskAgain { who, first_arrives_late } => {
                next.left.resends -= 1;
                if first_arrives_late {
                    next.left.late -= 1;
                    if let Some(Sent::Acquire(command)) = next.clients[who].outbox.take() {
                        next.late.push(command);
                    }
                }
                next.clients[who].reconnect();
                let command = self.command(next, who);
                next.clients[who].sent_at = now;
                next.clients[who].outbox = Some(Sent::Acquire(command));
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
                // The client notices within the margin.
                client.believes_until = client.believes_until.min(now + self.scope.margin);
            }
            Action::ReadReply(who) => {
                if let Some(reply) = next.clients[who].inbox.take() {
                    next.clients[who].read(reply, self.scope.lease);
                }
            }
            _ => return false,
        }
        true
    }
}
