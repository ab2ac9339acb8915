//! One attempt at a lock, or at several at once: sent, lost, sent again, given up.

use super::notified::{self, Notified};
use super::{outcome, Client};
use crate::history::{Action, Outcome, Share};
use crate::moment::Moment;
use std::time::Duration;

pub struct Attempt<'a> {
    /// If there is more than one, the command is LOCK.MACQUIRE.
    pub keys: &'a [&'a str],
    pub share: Share,
    pub lease_ms: u64,
    /// 0 means no wait.
    pub wait_ms: u64,
    pub with_id: bool,
    pub session: bool,
    /// Whether it waits without a connection and is notified; it then waits, and has an ID.
    pub notified: bool,
}

impl Attempt<'_> {
    /// Returns the token, if the lock was granted.
    pub fn ask(&self, client: &mut Client<'_>) -> Option<i64> {
        if client.world.has_module {
            self.ask_as_it_is(client)
        } else {
            self.by_script().ask_as_it_is(client)
        }
    }

    /// The same with the script, which cannot block: it waits for one lock only, and is notified. A small history has
    /// an order only if nobody waits, because a lock that was handed off is free until its next holder claims it.
    fn by_script(&self) -> Self {
        let waits = self.wait_ms > 0 && self.keys.len() == 1 && !self.keys[0].starts_with("small:");
        let wait_ms = if waits { self.wait_ms } else { 0 };
        Self { wait_ms, with_id: self.with_id || waits, session: false, notified: waits, ..*self }
    }

    fn ask_as_it_is(&self, client: &mut Client<'_>) -> Option<i64> {
        if self.notified {
            match notified::ask(self, client) {
                Notified::Granted(token) => return Some(token),
                Notified::Nothing => return None,
                Notified::Unable => {}
            }
        }
        let (lease, wait) = (micros(self.lease_ms), micros(self.wait_ms));
        let id = i64::try_from(client.dice.next() >> 1).unwrap();
        let known = if self.with_id { id } else { 0 };
        let command = self.command(id, self.wait_ms);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let Self { keys, share, session, .. } = *self;
        let action = |sent_again| Action::Acquire { share, lease, wait, session, sent_again };
        let mut from = client.world.now();
        if client.dice.percent(4) {
            let after = Duration::from_millis(client.dice.between(0, self.wait_ms.max(1)));
            client.link.send_and_die(&command, after);
            client.note_all(keys, action(false), known, Outcome::Unknown, (from, from));
            return None;
        }
        // After a lost reply, it asks again with the same ID, a few times.
        let mut lost = 0;
        loop {
            let sent_again = lost > 0;
            // Finding a server may take a while, and is not part of the command.
            client.link.server()?;
            let sent = client.world.now();
            if !sent_again {
                from = sent;
            }
            let reply = client.link.execute(&command);
            let outcome = outcome(action(sent_again), reply.as_ref());
            let may_be_lost = outcome == Outcome::Unknown || (sent_again && matches!(outcome, Outcome::Error(_)));
            if may_be_lost && self.with_id && !client.world.is_over() && client.dice.percent(75) {
                lost += 1;
                client.sleep_up_to(20);
                continue;
            }
            // An error shows that this command was not carried out, not that the earlier ones were not.
            let outcome = if may_be_lost { Outcome::Unknown } else { outcome };
            client.note_all(keys, action(sent_again), known, outcome, (from, sent));
            client.log.set_lost(keys.len(), lost);
            if may_be_lost && self.with_id && client.dice.percent(50) {
                for key in keys {
                    self.cancel(client, key, id, from);
                }
            }
            return match outcome {
                Outcome::Granted(token) => Some(token),
                _ => None,
            };
        }
    }

    /// LOCK.CANCEL of an attempt that began at `from`. Returns whether it was carried out.
    pub fn cancel(&self, client: &mut Client<'_>, key: &str, id: i64, from: Moment) -> bool {
        let mut command: Vec<String> = ["LOCK.CANCEL", key, &id.to_string()].map(String::from).to_vec();
        if !client.world.has_module {
            command.extend(["NOTIFY".into(), notified::channel(client)]);
            command.extend(self.share_words());
        }
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        matches!(client.run(key, Action::Cancel { attempt: from }, &command), Outcome::Answer(_))
    }

    fn share_words(&self) -> Vec<String> {
        match self.share {
            Share::Alone => Vec::new(),
            Share::Shared => vec!["SHARED".into()],
            Share::Limit(most) => vec!["LIMIT".into(), most.to_string()],
        }
    }

    /// The command, with this much of its wait left.
    pub fn command(&self, id: i64, wait_ms: u64) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut command = match self.keys {
            [key] => words(&["LOCK.ACQUIRE", key]),
            keys => words(&[&["LOCK.MACQUIRE", &keys.len().to_string()], keys].concat()),
        };
        command.extend(words(&["PX", &self.lease_ms.to_string()]));
        if wait_ms > 0 {
            command.extend(words(&["WAIT", &wait_ms.to_string()]));
        }
        command.extend(self.share_words());
        if self.with_id {
            command.extend(words(&["ID", &id.to_string()]));
        }
        if self.session {
            command.push("SESSION".into());
        }
        command
    }
}

pub fn micros(ms: u64) -> i64 {
    i64::try_from(ms * 1_000).unwrap()
}
