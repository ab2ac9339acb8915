//! The possible next steps: those that clients can begin, and those that happen without a client.

use super::steps::place;
use super::{is_timer_due, Action, Keeps, Protocol, State};
use crate::clients::{Kind, Phase, Sent};
use crate::fake::Blocked;
use redis_lock_core::lock::time::MonotonicMicros;

impl Protocol {
    /// Connections that their clients have closed but the server still knows, with nothing on its way.
    fn dead_conns(state: &State) -> Vec<u64> {
        let is_open = |conn: u64| {
            let who = usize::try_from(conn / 10).unwrap();
            state.clients[who].conn(who) == conn && state.clients[who].phase != Phase::Crashed
        };
        let known = |conn: &u64| {
            let (server, blocked) = (&state.server, Blocked(*conn));
            let has_session = || server.inspect(|node| node.driver.borrow().engine().sessions().holds(*conn));
            server.blocked.contains(&blocked) || server.letters.contains(&blocked) || has_session()
        };
        let all = state.clients.iter().enumerate();
        let mut conns: Vec<u64> =
            all.flat_map(|(who, client)| client.conns(who)).filter(|conn| !is_open(*conn) && known(conn)).collect();
        conns.retain(|conn| state.late.iter().all(|command| command.conn != *conn));
        conns
    }

    pub(super) fn new_beginnings(&self, state: &State, actions: &mut Vec<Action>) {
        let left = &state.left;
        for (who, client) in state.clients.iter().enumerate() {
            let kind = self.scope.clients[who].0;
            let has_id = self.attempt(state, who).is_some();
            match (client.phase, kind) {
                (Phase::Idle, _) if client.asks == 0 => {}
                (Phase::Idle, Kind::Lock { .. }) => actions.push(Action::Ask(who)),
                (Phase::Idle, Kind::Getset) => actions.push(Action::Setnx(who)),
                (Phase::Idle, Kind::SetNxPx) => actions.push(Action::SetNxPx(who)),
                (Phase::Refused, _) => actions.push(Action::Get(who)),
                (Phase::SawExpired, _) => actions.push(Action::Getset(who)),
                (Phase::Holding, Kind::Getset) if client.believes_until > state.now => actions.push(Action::Del(who)),
                (Phase::Holding, Kind::SetNxPx) => actions.push(Action::CompareAndDelete(who)),
                (Phase::Holding, Kind::Lock { session, .. }) => {
                    actions.push(Action::Release(who));
                    if left.extends > 0 {
                        actions.push(Action::Extend(who));
                    }
                    if session && left.breaks > 0 {
                        actions.push(Action::ConnectionBreaks(who));
                    }
                }
                (Phase::Asking, _) if has_id => {
                    if left.resends > 0 {
                        actions.push(Action::AskAgain { who, first_arrives_late: false });
                        if left.late > 0 && client.outbox.is_some() {
                            actions.push(Action::AskAgain { who, first_arrives_late: true });
                        }
                    }
                    if left.cancels > 0 {
                        actions.push(Action::Cancel(who));
                    }
                }
                _ => {}
            }
            if left.crashes > 0 && matches!(client.phase, Phase::Asking | Phase::Holding) {
                actions.push(Action::Crash(who));
            }
        }
        if left.clock_ahead > 0 {
            actions.push(Action::ClockAhead);
        }
        if left.clock_back > 0 {
            actions.push(Action::ClockBack);
        }
    }

    /// Steps that happen without a client.
    pub(super) fn under_way(state: &State, actions: &mut Vec<Action>) {
        let (server, left) = (&state.server, &state.left);
        if !state.late.is_empty() {
            actions.push(Action::ArriveLate);
        }
        for (who, client) in state.clients.iter().enumerate() {
            if let Some(sent) = &client.outbox {
                actions.push(Action::Arrive { who, gives_up: false });
                if left.time_outs > 0 && matches!(sent, Sent::Acquire(command) if command.waits) {
                    actions.push(Action::Arrive { who, gives_up: true });
                }
            }
            if client.inbox.is_some() {
                actions.push(Action::ReadReply(who));
            }
        }
        actions.extend(server.letters.iter().map(|conn| Action::Deliver(conn.0)));
        let next_end = server.inspect(|node| node.driver.borrow().engine().queues().next_end());
        let next_end = next_end.filter(|end| *end != MonotonicMicros(u64::MAX));
        let mut kept = vec![Keeps::ForEver];
        if left.places_over > 0 {
            kept.push(Keeps::Briefly);
            kept.extend(next_end.map(|_| Keeps::Longer));
        }
        for conn in Self::dead_conns(state) {
            actions.extend(kept.iter().map(|keeps| Action::HangUp(conn, *keeps)));
        }
        if next_end.is_some() {
            actions.extend(kept.iter().map(|keeps| Action::EndComes(*keeps)));
        }
        if server.inspect(|node| node.is_past_expiry(&place())) {
            actions.push(Action::NativeExpiry);
        }
        if is_timer_due(server) {
            actions.push(Action::Timer);
        }
    }
}
