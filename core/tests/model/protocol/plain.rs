//! The steps of clients that lock with plain commands.

use super::steps::place;
use super::{Action, Fact, Protocol, State, SECOND};
use crate::clients::{Client, Phase};
use crate::fake::{Content, Node, Stored};
use crate::server::START_S;
use redis_lock_core::lock::time::UnixMicros;

impl Protocol {
    /// The steps of clients that lock with plain commands; each is one command, executed at once.
    pub(super) fn plain_step(&self, next: &mut State, node: &Node, action: &Action) {
        let now = next.now;
        let own_clock_s = UnixMicros(START_S * SECOND.0).as_seconds() + f64::from(now);
        let timestamp = START_S + u64::from(now) + u64::from(self.scope.lease + self.scope.margin);
        node.expire(&place());
        let key = node.world.borrow().keys.get(&place()).cloned();
        let is_expired = |stored: &Stored| classic_seconds(&stored.content).is_some_and(|at| at <= own_clock_s);
        let set = |text: String, expire_at_ms| {
            let stored = Stored { content: Content::String(text.into_bytes()), expire_at_ms };
            node.world.borrow_mut().keys.insert(place(), stored);
        };
        let take = |client: &mut Client| {
            client.phase = Phase::Holding;
            client.believes_until = now + self.scope.lease;
        };
        match *action {
            Action::Setnx(who) | Action::Getset(who) if key.is_none() => {
                next.clients[who].asks -= u8::from(matches!(action, Action::Setnx(_)));
                set(timestamp.to_string(), None);
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
                set(timestamp.to_string(), None);
                // No event reports it: the module finds it within a second.
                node.event(|entry| entry.tick());
                next.clients[who].phase = Phase::Idle;
                if key.as_ref().is_some_and(is_expired) {
                    take(&mut next.clients[who]);
                    self.note(Fact::ClassicTakeOver);
                }
            }
            Action::SetNxPx(who) => {
                next.clients[who].asks -= 1;
                if key.is_none() {
                    let end = node.world.borrow().wall.after(Self::seconds(self.scope.lease));
                    set(format!("owner-{who}"), Some(end.0 / 1_000));
                    take(&mut next.clients[who]);
                }
            }
            Action::CompareAndDelete(who) => {
                if key.is_some_and(|stored| stored.content == Content::String(format!("owner-{who}").into_bytes())) {
                    node.delete(&place());
                }
                next.clients[who].rest();
            }
            Action::Del(who) => {
                node.delete(&place());
                next.witness.overwritten();
                next.clients[who].rest();
            }
            _ => {}
        }
    }
}

/// The number that a client of the classic pattern reads: a float.
fn classic_seconds(content: &Content) -> Option<f64> {
    let Content::String(bytes) = content else { return None };
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
