//! An attempt that waits without a connection: it asks, subscribes to its channel or not, claims, is late, asks again,
//! gives up, or disappears.

use super::ask::{micros, Attempt};
use super::{outcome, Client};
use crate::history::{Action, Outcome};
use std::sync::atomic::Ordering;
use std::time::Duration;
use testkit::{Conn, Reply};

/// A subscriber to a client's channel, until the connection ends.
struct Subscriber(Option<Conn>);

impl Subscriber {
    fn of(port: u16, channel: &str) -> Self {
        let conn =
            Conn::to(port).ok().and_then(|mut conn| conn.try_execute(&["SUBSCRIBE", channel]).is_ok().then_some(conn));
        Self(conn)
    }

    /// Waits up to this long for a message for any of the client's attempts.
    fn wait(&mut self, client: &Client<'_>, time: Duration) {
        let Some(conn) = &mut self.0 else { return client.world.sleep(time) };
        // A message for an earlier attempt will do: asking too early does no harm.
        if !conn.no_reply_within(time) && conn.try_read().is_err() {
            self.0 = None;
        }
    }

    /// Whether it could receive messages until now. Drops those that have arrived, as the attempt has ended.
    fn is_open(&mut self) -> bool {
        while let Some(conn) = &mut self.0 {
            if conn.no_reply_within(Duration::from_millis(1)) {
                return true;
            }
            if conn.try_read().is_err() {
                self.0 = None;
            }
        }
        false
    }
}

/// The outcome; `Unable` if the server cannot publish.
pub enum Notified {
    Granted(i64),
    Nothing,
    Unable,
}

/// The channel that a client uses now.
pub fn channel(client: &Client<'_>) -> String {
    format!("notified:{}:{}", client.number, client.channel)
}

pub fn ask(attempt: &Attempt<'_>, client: &mut Client<'_>) -> Notified {
    let Attempt { keys, share, lease_ms, wait_ms, session, .. } = *attempt;
    let id = i64::try_from(client.dice.next() >> 1).unwrap();
    let action = |is_steady: bool| Action::Acquire {
        share,
        lease: micros(lease_ms),
        wait: micros(wait_ms),
        session,
        sent_again: !is_steady,
    };
    if client.left_behind && client.dice.percent(50) {
        (client.channel, client.left_behind) = (client.channel + 1, false);
    }
    let channel = channel(client);
    let Some(port) = client.link.server() else { return Notified::Nothing };
    // A client without a subscription asks again from time to time.
    let mut subscriber = if client.dice.percent(75) { Subscriber::of(port, &channel) } else { Subscriber(None) };
    // With the script, an attempt that is left behind can cost the others two seconds.
    let (cancels, disappears) = if client.world.has_module { (70, 5) } else { (95, 1) };
    let from = client.world.now();
    let (mut sent, mut has_waited) = (from, false);
    // A script grants only in a call. So an attempt that got a reply to each of its calls knows how it ended; if it
    // could be notified throughout, it kept its place. An earlier attempt that lets its notification lapse costs the
    // channel's other attempts theirs.
    let mut is_steady = !client.world.has_module && subscriber.0.is_some() && !client.left_behind;
    let is_over = loop {
        let left = from + micros(wait_ms) - client.world.now();
        if left < 1_000 {
            break true;
        }
        if client.world.is_over() || client.link.server().is_none() {
            break false;
        }
        sent = client.world.now();
        let mut command = attempt.command(id, u64::try_from(left / 1_000).unwrap());
        command.extend(["NOTIFY".into(), channel.clone()]);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        match client.link.execute(&command) {
            Some(Reply::Status(status)) if status == "WAITING" => {
                has_waited = true;
                if client.dice.percent(disappears) {
                    // The client disappears.
                    client.note_all(keys, action(false), id, Outcome::Unknown, (from, sent));
                    client.left_behind = true;
                    return Notified::Nothing;
                }
                let time = Duration::from_millis(client.dice.between(5, 300));
                subscriber.wait(client, time);
                if client.dice.percent(10) {
                    // The client claims late, or after its time has passed.
                    client.sleep_up_to(400);
                }
            }
            Some(Reply::Error(text)) if text.starts_with("ERR NOTIFY") => return Notified::Unable,
            reply => {
                let outcome = outcome(action(false), reply.as_ref());
                if let Outcome::Granted(token) = outcome {
                    client.world.claims.fetch_add(usize::from(has_waited), Ordering::Relaxed);
                    is_steady = is_steady && subscriber.is_open();
                    let sent = if is_steady { from } else { sent };
                    client.note_all(keys, action(is_steady), id, outcome, (from, sent));
                    return Notified::Granted(token);
                }
                is_steady = false;
                client.sleep_up_to(20);
            }
        }
        is_steady &= subscriber.0.is_some();
    };
    if is_steady && is_over && subscriber.is_open() {
        client.note_all(keys, action(true), id, Outcome::Refused, (from, from));
    } else {
        // The attempt may have been granted the lock without having claimed it, or may have claimed it without a reply.
        client.note_all(keys, action(false), id, Outcome::Unknown, (from, sent));
    }
    let cancels = client.dice.percent(cancels);
    client.left_behind |= !cancels;
    for key in keys.iter().filter(|_| cancels) {
        client.left_behind |= !attempt.cancel(client, key, id, from);
    }
    Notified::Nothing
}

#[cfg(test)]
mod tests {
    use super::Subscriber;
    use testkit::{until, Server};

    #[test]
    fn a_closed_subscription_is_noticed_behind_its_messages() {
        let (server, mut conn) = Server::connected();
        let mut subscriber = Subscriber::of(server.port(), "c");
        assert_eq!(conn.int(&["PUBLISH", "c", "first"]), 1);
        assert!(subscriber.is_open());
        assert_eq!(conn.int(&["PUBLISH", "c", "second"]), 1);
        assert_eq!(conn.int(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        until("it has no subscriber", || (conn.int(&["PUBLISH", "c", "third"]) == 0).then_some(()));
        assert!(!subscriber.is_open());
    }
}
