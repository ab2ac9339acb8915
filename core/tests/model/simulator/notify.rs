//! Attempts that wait without a connection, as seen by their server and their clients: commands that are resent,
//! messages, and channels that have lost their subscriber.

use super::{
    id_of, place, Acquire, Cause, Court, Node, Number, OwnedKeyName, Run, Share, Site, Token, Writes, CHANNELS, IDS,
    KEYS,
};
use crate::simulator::judge::{Ears, News};
use redis_lock_core::engine::queue::Channel;
use redis_lock_core::engine::KeyName;

/// How many commands of attempts without a connection are remembered for resending.
const COMMANDS: usize = 8;

pub(super) fn channel(number: Number) -> Channel {
    let number = number % CHANNELS;
    Channel { name: [b'C', b'0' + number].as_slice().into(), is_sharded: number == 0 }
}

fn key_name((db, name): &OwnedKeyName) -> KeyName<'_> {
    KeyName { db: *db, name }
}

impl Run {
    fn ears(&self, site: usize, number: u8) -> Ears {
        let world = self.sites[site].node.world.borrow();
        Ears {
            is_subscribed: world.subscribed.contains(&channel(number)),
            later: world.is_transaction,
            is_out_of_memory: world.is_out_of_memory,
        }
    }

    /// Passes on grants that can no longer be claimed.
    pub(super) fn end_claims(&mut self, site: usize, cause: &Cause) {
        let is_master = self.sites[site].link.is_none();
        if !is_master {
            self.courts[site].unclaimed.clear();
            return;
        }
        let gone: Vec<u64> = {
            let driver = self.sites[site].node.driver.borrow();
            let is_there = |token: u64, place: &OwnedKeyName| {
                driver.engine().unclaimed(key_name(place), Token::new(token).unwrap()).is_some()
            };
            let own = self.courts[site].unclaimed.iter().filter(|own| Some(own.token) != cause.granted);
            own.filter(|own| !is_there(own.token, &own.attempt.asked.places[0])).map(|own| own.token).collect()
        };
        let now = self.now_at(site);
        for token in gone {
            let ears = self.all_ears(site);
            self.courts[site].given_up(token, cause, ears, now);
        }
    }

    fn all_ears(&self, site: usize) -> impl Fn(u8) -> Ears + Copy + use<> {
        let ears: [Ears; CHANNELS as usize] =
            std::array::from_fn(|number| self.ears(site, u8::try_from(number).unwrap()));
        move |number| ears[usize::from(number)]
    }

    /// The grants that no reply reports, with the IDs of the attempts that can claim them.
    pub(super) fn notified(&self, site: usize, writes: &Writes, cause: &Cause) -> Vec<(u64, u64)> {
        let driver = self.sites[site].node.driver.borrow();
        let mut tokens: Vec<u64> = Court::unreported(writes);
        tokens.retain(|token| Some(*token) != cause.granted);
        tokens.sort_unstable();
        tokens.dedup();
        let id = |token: &u64| {
            let mut claims = (0..KEYS).filter_map(|key| {
                let (db, name) = place(key);
                driver.engine().unclaimed(KeyName { db, name: &name }, Token::new(*token).unwrap())
            });
            Some((*token, claims.next()?.id.get()))
        };
        tokens.iter().filter_map(id).collect()
    }

    pub(super) fn notified_one(&mut self, site: usize, writes: &mut Writes, token: u64, id: u64) {
        let (now, ears) = (self.now_at(site), self.all_ears(site));
        let asked = self.courts[site].notified(writes, token, id, ears, now);
        self.tally.notified += 1;
        self.remember(site, &asked, token);
    }

    /// Called when attempts without a connection leave their queues without a lock.
    pub(super) fn attempts_left(&mut self, site: usize, notified: &[(u64, u64)], cause: &Cause) {
        let (now, ears) = (self.now_at(site), self.all_ears(site));
        let is_master = self.sites[site].link.is_none();
        loop {
            let left = {
                let driver = self.sites[site].node.driver.borrow();
                let engine = driver.engine();
                let mut queue = self.courts[site].queue.iter();
                queue.position(|attempt| {
                    let (db, name) = &attempt.asked.places[0];
                    let Some(id) = attempt.asked.id.filter(|_| attempt.waits && attempt.asked.notify.is_some()) else {
                        return false;
                    };
                    let is_notified = |(token, own): &(u64, u64)| {
                        let token = Token::new(*token).unwrap();
                        *own == id && engine.unclaimed(KeyName { db: *db, name }, token).is_some()
                    };
                    !notified.iter().any(is_notified) && !engine.queues().is_waiting(KeyName::new(*db, name), id_of(id))
                })
            };
            let Some(at) = left else { break };
            if is_master {
                let is_slot_lost = self.is_lost(site, &self.courts[site].queue[at].asked.places);
                self.courts[site].attempt_left(at, cause, ears, is_slot_lost, now);
            } else {
                self.courts[site].queue.swap_remove(at);
            }
        }
    }

    /// Reads the published messages.
    pub(super) fn read_messages(&mut self, site: usize) {
        let messages = std::mem::take(&mut self.sites[site].node.world.borrow_mut().messages);
        let is_master = self.sites[site].link.is_none();
        for (to, message) in messages {
            let number = to.name[1] - b'0';
            assert_eq!(to, channel(number));
            let mut parts = message.splitn(3, |byte| *byte == b' ');
            let news = match parts.next().unwrap() {
                b"granted" => News::Granted,
                b"timeout" => News::TimedOut,
                b"cancelled" => News::Cancelled,
                b"unblocked" => News::Unblocked,
                b"result" => News::Result,
                other => panic!("{other:?} is not a message"),
            };
            let id = std::str::from_utf8(parts.next().unwrap()).unwrap().parse().unwrap();
            let place = (0, parts.next().unwrap().to_vec());
            if is_master {
                self.courts[site].published(number, news, id, &place);
            }
        }
    }

    /// Remembers a command of an attempt without a connection.
    pub(super) fn keep_command(&mut self, command: &Acquire, several: bool) {
        self.commands.push_front((command.clone(), several));
        self.commands.truncate(COMMANDS);
    }

    /// Resends such a command, or lets it arrive twice, perhaps from another connection or at another server.
    pub(super) fn send_again(&mut self, number: Number, client: Number) {
        let Some((command, several)) = self.commands.get(usize::from(number) % COMMANDS).cloned() else { return };
        self.acquire(&Acquire { client, ..command }, several);
    }

    /// Lets an attempt claim its grant, at the server that notified it or at the newest master.
    pub(super) fn claim(&mut self, number: Number, client: Number) {
        let site = self.newest();
        let unclaimed = &self.courts[site].unclaimed;
        let Some(own) = unclaimed.get(usize::from(number) % unclaimed.len().max(1)) else { return };
        let asked = own.attempt.asked.clone();
        let keys: Vec<Number> = asked.places.iter().map(|place| place.1[0] - b'a').collect();
        let command = Acquire {
            client,
            share: asked.share,
            lease: u32::try_from(asked.lease / 1_000).unwrap(),
            wait: if number.is_multiple_of(3) { 0 } else { 200 },
            id: Some(u8::try_from(asked.id.unwrap() - 1).unwrap() % IDS),
            session: asked.session,
            in_transaction: number.is_multiple_of(8),
            notify: asked.notify.filter(|_| number.is_multiple_of(2)),
            wants_result: false,
            keys,
        };
        let several = command.keys.len() > 1 && command.share == Share::Alone;
        self.acquire(&command, several);
    }

    pub(super) fn subscribe(&mut self, number: Number, is_there: bool) {
        for site in &mut self.sites {
            let mut world = site.node.world.borrow_mut();
            if is_there {
                world.subscribed.insert(channel(number));
            } else {
                world.subscribed.remove(&channel(number));
            }
        }
    }

    /// Gives all channels a subscriber, as when a server starts.
    pub(super) fn subscribe_all(node: &Node) {
        node.world.borrow_mut().subscribed = (0..CHANNELS).map(channel).collect();
    }

    /// Lets the server's memory use rise above its limit, or fall below it again.
    pub(super) fn fill_memory(&mut self, is_full: bool) {
        const LATE: u64 = 200_000;
        let site = self.newest();
        self.sites[site].node.world.borrow_mut().is_out_of_memory = is_full;
        let until = if is_full { u64::MAX } else { Site::monotonic(self.now) + LATE };
        self.courts[site].no_memory_until = until;
    }

    pub(super) fn cancel_channel(&mut self, key: Number, number: Number) {
        let (place, number) = (place(key), number % CHANNELS);
        let site = self.newest();
        if !self.takes_writes(site) || self.is_lost(site, std::slice::from_ref(&place)) {
            return;
        }
        let court = &self.courts[site];
        let is_alone = |places: &[OwnedKeyName]| *places == [place.clone()];
        let is_its =
            |asked: &crate::simulator::judge::Asked| asked.notify == Some(number) && asked.places.contains(&place);
        let waiting = court.queue.iter().filter(|attempt| attempt.waits).map(|attempt| &attempt.asked);
        let all = waiting.chain(court.unclaimed.iter().map(|own| &own.attempt.asked)).filter(|asked| is_its(asked));
        let (least, most) = (all.clone().filter(|asked| is_alone(&asked.places)).count(), all.clone().count());
        let ids: Vec<u64> = all.filter_map(|asked| asked.id).collect();
        let name = channel(number).name;
        let ended = self.sites[site].node.command(0, |entry| entry.cancel_channel(&place.1, &name));
        let cause = Cause { cancels_channel: Some(number), at: Some(place.clone()), ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::assert_everything_was_reported(&writes);
        assert!((least..=most).contains(&ended), "CANCEL CHANNEL ended {ended} attempts, not {least} to {most}");
        let now = self.now_at(site);
        for id in ids {
            let court = &self.courts[site];
            let waiting = court.queue.iter().filter(|attempt| attempt.waits).map(|attempt| &attempt.asked);
            let mut left = waiting.chain(court.unclaimed.iter().map(|own| &own.attempt.asked));
            if left.any(|asked| asked.id == Some(id) && asked.places.contains(&place)) {
                continue;
            }
            self.courts[site].cancelled(&place, id, &[], now);
        }
    }
}
