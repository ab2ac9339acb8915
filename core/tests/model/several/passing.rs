//! Effects of time, and of a connection that ends: waits time out, places and sessions end, keys expire.

use super::{after, Content, Grant, Plain, Reply, NEVER};

impl Plain {
    /// The connection of a client ends.
    pub fn disconnect(&mut self, client: usize) -> Vec<(Option<usize>, Reply)> {
        self.begin();
        if let Some(at) = self.line.iter().position(|stand| stand.waits && stand.call.client == client) {
            self.leave(at);
        }
        let end = self.now + self.settings.margin;
        let mut ended = Vec::new();
        for (key, content) in &mut self.keys {
            for grant in content.grants_mut() {
                if grant.session.take_if(|own| *own == client).is_some() && end < grant.end {
                    grant.end = end;
                    ended.push(*key);
                }
            }
        }
        for key in ended {
            self.written(key);
        }
        self.turn()
    }

    /// A step takes a moment.
    pub(super) fn begin(&mut self) {
        self.now += self.settings.step();
        self.expire();
    }

    pub(super) fn pass(&mut self, time: u64) {
        let until = after(self.now, time);
        while let Some(at) = self.next_end().filter(|at| self.settings.runs_on && *at <= until) {
            self.now = at;
            self.settle();
        }
        self.now = until;
    }

    /// When a wait, a place or a lease is over next.
    fn next_end(&self) -> Option<u64> {
        let stands = self.line.iter().map(|stand| stand.until);
        let grants = self.keys.values().flat_map(Content::grants).map(|grant| grant.end);
        stands.chain(grants).filter(|end| *end > self.now).min()
    }

    /// The consequences of a step. Returns all answers, each with its client.
    pub(super) fn turn(&mut self) -> Vec<(Option<usize>, Reply)> {
        self.settle();
        std::mem::take(&mut self.replies)
    }

    fn settle(&mut self) {
        while let Some(at) = self.first_over() {
            if self.line[at].waits {
                self.reply(Some(self.line[at].call.client), Reply::Nil);
                self.leave(at);
            } else {
                self.line.remove(at);
            }
        }
        self.expire();
        self.serve();
        for key in std::mem::take(&mut self.released) {
            self.written(key);
        }
    }

    /// Whose time in the queue is over, the first of them.
    fn first_over(&self) -> Option<usize> {
        let over = (0..self.line.len()).filter(|at| self.line[*at].until <= self.now);
        over.min_by_key(|at| self.line[*at].until)
    }

    /// Somebody in the queue waits no longer; with an ID it keeps its place for a while.
    fn leave(&mut self, at: usize) {
        if self.line[at].call.id.is_none() {
            self.line.remove(at);
            return;
        }
        let until = self.now + self.settings.place;
        let stand = &mut self.line[at];
        (stand.waits, stand.until) = (false, until);
    }

    pub(super) fn end_of(&self, lease: u64) -> u64 {
        self.now + lease + self.settings.margin
    }

    /// The millisecond until which a grant stays in its key, with a retention for those that have none.
    fn stays_until(&self, grant: &Grant, else_us: u64) -> u64 {
        (grant.end.saturating_add(self.settings.retention.unwrap_or(else_us))).div_ceil(1_000)
    }

    /// Keys end with the last of their grants, when its retention is over.
    pub(super) fn expire(&mut self) {
        let over = |content: &Content| {
            let last = content.grants().iter().map(|grant| self.stays_until(grant, NEVER)).max();
            last.is_some_and(|last| last < self.now / 1_000)
        };
        // One that was just given back passes on first.
        let over = |(key, content): &(&u8, &Content)| over(content) && !self.released.contains(key);
        let over: Vec<u8> = self.keys.iter().filter(over).map(|(key, _)| *key).collect();
        for key in over {
            self.keys.remove(&key);
        }
    }

    /// A write forgets some of several holders whose retention is over, those who ended first.
    pub(super) fn written(&mut self, key: u8) {
        let now = self.now / 1_000;
        let Some(Content::Several(grants)) = self.keys.get(&key) else { return };
        let mut over: Vec<&Grant> = grants.iter().filter(|grant| grant.end <= self.now).collect();
        over.sort_by_key(|grant| (grant.end, grant.number));
        let gone =
            over.iter().filter(|grant| self.stays_until(grant, 60_000_000) <= now).take(8).map(|grant| grant.number);
        let gone: Vec<usize> = gone.collect();
        let left: Vec<Grant> = grants.iter().filter(|grant| !gone.contains(&grant.number)).cloned().collect();
        if left.is_empty() {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, Content::Several(left));
        }
    }
}
