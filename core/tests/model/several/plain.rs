//! What LOCK.* promises for several keys and several holders, as plainly as possible: lists, and a walk over all of
//! them after each step. It uses nothing of the crate; a grant has a number here, in the order of grants.

#[path = "circle.rs"]
mod circle;
#[path = "passing.rs"]
mod passing;
#[path = "steps.rs"]
mod steps;

use std::collections::{BTreeMap, BTreeSet};
pub use steps::{after, Call, Content, Grant, Reply, Settings, Share, Step, NEVER};

/// One in the queue, in the order of arrival; `waits`: it is not a reserved place.
#[derive(Clone, Debug)]
pub struct Stand {
    call: Call,
    waits: bool,
    /// When its wait, or its place, is over.
    until: u64,
}

enum Admission {
    Granted { succeeds: Option<usize> },
    Already(usize),
    AskedOtherwise,
    Refused,
}

/// The server.
#[derive(Clone, Default)]
pub struct Plain {
    pub now: u64,
    pub settings: Settings,
    pub keys: BTreeMap<u8, Content>,
    /// All in the queue, in the order of arrival.
    pub line: Vec<Stand>,
    grants: usize,
    replies: Vec<(Option<usize>, Reply)>,
    released: Vec<u8>,
    /// The key in whose queue each client for several is parked: any that it cannot have will do.
    parked: BTreeMap<usize, u8>,
    /// The IDs that were cancelled, each with its key, and until when late copies of their commands get nothing.
    barred: BTreeMap<(u8, u64), u64>,
}

impl Plain {
    pub fn content(&self, key: u8) -> &Content {
        static NOTHING: Content = Content::Nothing;
        self.keys.get(&key).unwrap_or(&NOTHING)
    }

    pub fn live(&self, key: u8) -> usize {
        self.content(key).grants().iter().filter(|grant| grant.end > self.now).count()
    }

    /// How often an attempt was cancelled whose ID has that remainder: its client draws another then.
    pub fn cancelled(&self, remainder: u64, of: u64) -> u64 {
        let ids: BTreeSet<u64> = self.barred.keys().map(|(_, id)| *id).filter(|id| id % of == remainder).collect();
        ids.len() as u64
    }

    pub fn waits(&self, client: usize) -> bool {
        self.line.iter().any(|stand| stand.waits && stand.call.client == client)
    }

    /// The clients in the queues of the keys are those that should be there, in order; whoever waits for several
    /// stands in the queue of one that it cannot have.
    pub fn stand_as(&mut self, lines: &BTreeMap<u8, Vec<usize>>) -> Result<(), String> {
        self.parked.clear();
        for (at, stand) in self.line.iter().enumerate().filter(|(_, stand)| stand.waits) {
            let client = stand.call.client;
            let keys: Vec<u8> = lines.iter().filter(|(_, line)| line.contains(&client)).map(|(key, _)| *key).collect();
            let [key] = keys[..] else { return Err(format!("client {client} stands in {keys:?}")) };
            let can_have = self.live(key) == 0 && !self.is_behind(key, at);
            if !stand.call.keys.contains(&key) || (stand.call.keys.len() > 1 && can_have) {
                return Err(format!("client {client} is parked at {key}"));
            }
            self.parked.insert(client, key);
        }
        for (key, line) in lines {
            let stands = self.line.iter().filter(|stand| stand.waits).map(|stand| stand.call.client);
            let expected: Vec<usize> = stands.filter(|client| self.parked.get(client) == Some(key)).collect();
            if *line != expected {
                return Err(format!("the line of {key} is {line:?}, not {expected:?}"));
            }
        }
        Ok(())
    }

    /// Whether somebody waits for a key and others besides, in its queue.
    fn has_parked(&self, key: u8) -> bool {
        self.line.iter().any(|stand| self.is_in_line(stand, key) && stand.call.keys.len() > 1)
    }

    fn is_in_line(&self, stand: &Stand, key: u8) -> bool {
        stand.waits && self.parked.get(&stand.call.client) == Some(&key)
    }

    /// Does a step. Returns the answers, each with its client; without one, it is for the caller.
    pub fn step(&mut self, step: &Step) -> Vec<(Option<usize>, Reply)> {
        self.begin();
        match step {
            Step::Acquire(call) | Step::AcquireAll(call) => self.acquire(call),
            Step::Recover { key, lease } => self.recover(*key, *lease),
            Step::Release { keys, grant } => {
                let live = self
                    .content(keys[0])
                    .grants()
                    .iter()
                    .find(|own| own.number == *grant)
                    .map(|own| own.end > self.now);
                let holds = |key: &&u8| self.content(**key).grants().iter().any(|own| own.number == *grant);
                let hands_off = keys.len() == 1 || !keys.iter().filter(holds).any(|key| self.has_parked(*key));
                let count = keys.iter().filter(|key| self.end(**key, *grant, hands_off)).count();
                // RELEASE tells whether it was in time, MRELEASE how many.
                let number = if keys.len() == 1 && live == Some(false) { -1 } else { i64::try_from(count).unwrap() };
                self.reply(None, Reply::Number(number));
            }
            Step::Extend { keys, grant, lease } => {
                let holds =
                    |key: &u8| self.content(*key).grants().iter().any(|own| own.number == *grant && own.end > self.now);
                let all = keys.iter().all(holds);
                let end = self.end_of(*lease);
                for key in keys.iter().filter(|_| all) {
                    if let Some(own) = self.keys.get_mut(key).and_then(|content| content.grant_mut(*grant)) {
                        own.end = end;
                    }
                    self.written(*key);
                }
                self.reply(None, Reply::Number(i64::from(all)));
            }
            Step::Check { key, grant } => {
                let holds = |own: &Grant| own.number == *grant && own.end > self.now + self.settings.margin;
                let holds = self.content(*key).grants().iter().any(holds);
                self.reply(None, Reply::Number(i64::from(holds)));
            }
            Step::Cancel { key, id } => {
                self.barred.insert((*key, *id), self.now.saturating_add(self.settings.place));
                let stood = self.forget(*key, *id, &Reply::Nil);
                let own = self.content(*key).grants().iter().find(|own| own.id == Some(*id) && own.end > self.now);
                let own = own.map(|own| own.number);
                if let Some(number) = own {
                    self.end(*key, number, true);
                }
                self.reply(None, Reply::Number(i64::from(stood || own.is_some())));
            }
            Step::Delete { key } => {
                let was = self.keys.remove(key).is_some();
                self.reply(None, Reply::Number(i64::from(was)));
            }
            Step::Pass { time } => self.pass(*time),
        }
        self.turn()
    }

    fn reply(&mut self, client: Option<usize>, reply: Reply) {
        self.replies.push((client, reply));
    }

    /// Takes a grant out of a key.
    fn end(&mut self, key: u8, number: usize, hands_off: bool) -> bool {
        let Some(content) = self.keys.get_mut(&key) else { return false };
        let was = content.grant_mut(number).is_some();
        if let Content::Several(grants) = content {
            grants.retain(|grant| grant.number != number);
        }
        if was && (matches!(content, Content::One(_)) || content.grants().is_empty()) {
            self.keys.remove(&key);
        }
        if was {
            // The first in the queue, if it wants this one alone, may still take the place of one who is overdue.
            let first = self.line.iter().find(|stand| self.is_in_line(stand, key));
            if hands_off && first.is_some_and(|first| first.call.keys == [key]) {
                self.released.push(key);
            } else {
                self.written(key);
            }
        }
        was
    }

    /// Takes an ID out of the queue of a key, and so out of the others that it stands in.
    fn forget(&mut self, key: u8, id: u64, told: &Reply) -> bool {
        let at = self.line.iter().position(|stand| stand.call.keys.contains(&key) && stand.call.id == Some(id));
        let Some(at) = at else { return false };
        let stand = self.line.remove(at);
        if stand.waits {
            self.reply(Some(stand.call.client), told.clone());
        }
        true
    }

    fn admit(&self, call: &Call, key: u8) -> Admission {
        let content = self.content(key);
        let mut over: Vec<&Grant> = content.grants().iter().filter(|grant| grant.end <= self.now).collect();
        over.sort_by_key(|grant| (grant.end, grant.number));
        let live = content.grants().len() - over.len();
        let own =
            content.grants().iter().rfind(|grant| grant.end > self.now && call.id.is_some() && grant.id == call.id);
        let is_one = matches!(content, Content::One(_));
        if let Some(own) = own {
            let is_same = is_one == (call.share == Share::Alone);
            return if is_same { Admission::Already(own.number) } else { Admission::AskedOtherwise };
        }
        if live >= call.share.most() || (is_one && live > 0) {
            return Admission::Refused;
        }
        let needs_place = is_one || content.grants().len() >= call.share.most();
        Admission::Granted { succeeds: over.first().filter(|_| needs_place).map(|over| over.number) }
    }

    /// Whether somebody who wants this key alone waits ahead of a place in the queue.
    fn is_behind(&self, key: u8, place: usize) -> bool {
        self.line[..place].iter().any(|stand| stand.waits && stand.call.keys == [key])
    }

    /// The grant of all keys of a call, if it may have them from that place in the queue.
    fn give(&mut self, call: &Call, place: impl Fn(&Self, u8) -> usize) -> Option<Reply> {
        let admissions: Vec<Admission> = call.keys.iter().map(|key| self.admit(call, *key)).collect();
        let mut held =
            admissions.iter().map(|admission| if let Admission::Already(own) = admission { Some(*own) } else { None });
        if let Some(own) = held.next().flatten() {
            if held.any(|other| other != Some(own)) {
                return None;
            }
            let end = self.end_of(call.lease);
            for key in &call.keys {
                let grant = self.keys.get_mut(key).and_then(|content| content.grant_mut(own)).unwrap();
                let is_longer = end > grant.end;
                grant.end = grant.end.max(end);
                grant.session = Some(call.client).filter(|_| call.session);
                if is_longer {
                    self.written(*key);
                }
            }
            return Some(Reply::Granted(own, None));
        }
        let mut succeeds = None;
        for (key, admission) in call.keys.iter().zip(&admissions) {
            match admission {
                Admission::Granted { succeeds: before } if !self.is_behind(*key, place(self, *key)) => {
                    succeeds = *before;
                }
                _ => return None,
            }
        }
        self.grants += 1;
        let session = Some(call.client).filter(|_| call.session);
        let grant = Grant { number: self.grants, end: self.end_of(call.lease), id: call.id, session };
        for (key, admission) in call.keys.iter().zip(admissions) {
            let Admission::Granted { succeeds } = admission else { continue };
            let content = self.keys.entry(*key).or_default();
            *content = match (std::mem::take(content), call.share) {
                (_, Share::Alone) => Content::One(grant.clone()),
                (Content::Several(mut grants), _) => {
                    grants.retain(|other| Some(other.number) != succeeds);
                    grants.push(grant.clone());
                    Content::Several(grants)
                }
                _ => Content::Several(vec![grant.clone()]),
            };
            self.written(*key);
        }
        Some(Reply::Granted(self.grants, succeeds.filter(|_| call.details)))
    }

    fn acquire(&mut self, call: &Call) {
        let until = |key: &u8| self.barred.get(&(*key, call.id?)).copied();
        if call.keys.iter().filter_map(until).any(|until| until > self.now) {
            return self.reply(None, Reply::Nil);
        }
        if call.keys.iter().any(|key| matches!(self.admit(call, *key), Admission::AskedOtherwise)) {
            return self.reply(None, Reply::OtherShare);
        }
        let own = |plain: &Self, key: u8| {
            let of_id = |stand: &Stand| call.id.is_some() && stand.call.id == call.id && stand.call.keys.contains(&key);
            plain.line.iter().position(of_id).unwrap_or(plain.line.len())
        };
        if let Some(reply) = self.give(call, own) {
            for key in &call.keys {
                if let Some(id) = call.id {
                    self.forget(*key, id, &Reply::Unblocked);
                }
            }
            return self.reply(None, reply);
        }
        if call.waits && self.closes_circle(call, own) {
            return self.reply(None, Reply::Deadlock);
        }
        if call.waits || call.id.is_some() {
            let until = self.now + if call.waits { call.wait } else { self.settings.place };
            let mut stand = Some(Stand { call: call.clone(), waits: call.waits, until });
            for key in call.keys.iter().filter(|_| call.id.is_some()) {
                let at = own(self, *key);
                let sorted = |keys: &[u8]| std::collections::BTreeSet::from_iter(keys.to_vec());
                let is_same = self.line.get(at).is_some_and(|known| sorted(&known.call.keys) == sorted(&call.keys));
                match stand.take_if(|_| is_same) {
                    Some(stand) => {
                        let earlier = std::mem::replace(&mut self.line[at], stand);
                        if earlier.waits {
                            self.reply(Some(earlier.call.client), Reply::Unblocked);
                        }
                        break;
                    }
                    None => {
                        self.forget(*key, call.id.unwrap(), &Reply::Unblocked);
                    }
                }
            }
            self.line.extend(stand);
        }
        if !call.waits {
            self.reply(None, Reply::Nil);
        }
    }

    fn recover(&mut self, key: u8, lease: u64) {
        let is_expired = self.live(key) == 0 && !self.content(key).grants().is_empty();
        let call = Call {
            client: usize::MAX,
            keys: vec![key],
            share: Share::Alone,
            lease,
            waits: false,
            wait: 0,
            session: false,
            id: None,
            details: true,
        };
        let reply = if is_expired { self.give(&call, |plain, _| plain.line.len()) } else { None };
        self.reply(None, reply.unwrap_or(Reply::Nil));
    }

    /// Those who wait get what they can have, in the order of arrival, until nobody can have anything.
    fn serve(&mut self) {
        let mut at = 0;
        while at < self.line.len() {
            let stand = self.line[at].clone();
            // A holder of the lock learns of that when it asks, not while it waits.
            let holds = |key: &u8| matches!(self.admit(&stand.call, *key), Admission::Already(_));
            let given = if stand.waits && !stand.call.keys.iter().any(holds) {
                self.give(&stand.call, |_, _| at)
            } else {
                None
            };
            match given {
                Some(reply) => {
                    self.line.remove(at);
                    self.reply(Some(stand.call.client), reply);
                    at = 0;
                }
                None => at += 1,
            }
        }
    }
}
