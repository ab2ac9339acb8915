//! Time jumps to the next scheduled event (timers, the cron, the end of a pause), and nothing else wakes a client.

use super::{us, Blocked, Court, Node, Run, Time, CLIENTS};
use crate::simulator::raw::Raw;
use crate::simulator::site::Site;
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::outbox::Answer;

impl Run {
    pub(super) fn pass(&mut self, time: Time) {
        self.turn_of_all();
        let until = match time {
            Time::Turn => return,
            Time::Us(time) => self.now + u64::from(time),
            Time::Timer => {
                let next = |site: &Site| {
                    if site.is_running(self.now) {
                        site.node.timer_at().map(|_| site.next_event(self.now))
                    } else {
                        None
                    }
                };
                let next = self.sites.iter().filter_map(next).flatten().min();
                next.unwrap_or(self.now).min(self.now + us(20_000))
            }
        };
        let mut idle = 0;
        loop {
            let next = (0..self.sites.len()).filter_map(|at| Some((self.sites[at].next_event(self.now)?, at))).min();
            let Some((at, site)) = next.filter(|(at, _)| *at <= until) else { break };
            idle = if at > self.now { 0 } else { idle + 1 };
            assert!(idle < 1_000, "the timer of server {site} fires forever at {}", self.now);
            self.now = at;
            self.turn(site);
        }
        self.now = until;
        self.tally.time = self.now;
    }

    fn turn_of_all(&mut self) {
        for site in 0..self.sites.len() {
            self.turn(site);
        }
    }

    /// Lets an iteration of a server's event loop reach its timers and end.
    pub(super) fn turn(&mut self, site: usize) {
        if !self.sites[site].is_running(self.now) {
            return;
        }
        self.tally.iterations += 1;
        if self.sites[site].resume(self.now) {
            // Everything that was waiting for the server arrives at once.
            self.courts[site].gate_is_open = false;
            self.courts[site].limit_since = Site::monotonic(self.now);
            self.excuse(site, 300_000);
            self.courts[site].resumed = Site::monotonic(self.now);
            // As after SIGCONT, timers run first. They end no grant whose claim may wait in a socket.
            let unclaimed = |node: &Node| node.driver.borrow().engine().counters().get(Counter::Unclaimed);
            let before = unclaimed(&self.sites[site].node);
            self.event(site, |node| {
                node.fire();
            });
            assert_eq!(unclaimed(&self.sites[site].node), before, "a grant ended before its claim could be read");
            self.read_backlog(site);
        }
        self.sites[site].read_acks(self.now);
        self.sites[site].paused_until.take_if(|until| *until <= self.now);
        let is_tick_due = self.sites[site].is_tick_due(self.now);
        let is_second_over = is_tick_due && self.sites[site].is_second_over();
        if is_second_over {
            self.count_replicas(site);
        }
        if is_tick_due && self.tally.iterations.is_multiple_of(2) {
            self.event(site, |node| node.event(|entry| entry.tick()));
        }
        self.event(site, |node| {
            node.fire();
        });
        if is_tick_due && !self.tally.iterations.is_multiple_of(2) {
            self.event(site, |node| node.event(|entry| entry.tick()));
        }
        self.deliver(site);
        self.end_of_iteration(site);
    }

    fn read_backlog(&mut self, site: usize) {
        for (conn, command, several) in std::mem::take(&mut self.sites[site].backlog) {
            if self.clients.iter().any(|client| client.conn == conn) {
                self.acquire(&command, several);
            }
        }
    }

    /// Lets answers leave; a disconnected client gets none.
    fn deliver(&mut self, site: usize) {
        for (conn, answer) in std::mem::take(&mut self.sites[site].sent) {
            let Answer::Granted(grant) = answer else { continue };
            let token = grant.granted.token;
            let is_there = self.clients.iter().any(|client| client.conn == conn && client.site == site);
            if is_there {
                self.courts[site].delivered(token.get(), conn);
                self.event(site, |node| node.event(|entry| entry.delivered(token)));
            } else {
                let now = self.now_at(site);
                let passes_on =
                    self.sites[site].link.is_none() && self.courts[site].undelivered(token.get(), conn, now);
                if passes_on {
                    self.tally.undelivered += 1;
                    self.spans.ended(token.get());
                }
                self.event(site, |node| node.event(|entry| entry.undelivered(grant)));
            }
        }
    }

    fn end_of_iteration(&mut self, site: usize) {
        let now = self.now_at(site);
        let waiters = {
            let node = &self.sites[site].node;
            let driver = node.driver.borrow();
            let queues = driver.engine().queues();
            let blocked = node.world.borrow().blocked.len();
            assert_eq!(queues.blocked(), blocked, "exactly the clients that wait on a connection are blocked");
            queues.waiters()
        };
        let known = self.courts[site].queue.iter().filter(|attempt| attempt.waits).count();
        assert_eq!(known, waiters, "a waiter got nothing");
        if self.sites[site].link.is_some() {
            return;
        }
        self.sites[site].set_clocks(self.now);
        if !self.sites[site].is_followed(0) {
            self.courts[site].gate_is_open = false;
        }
        let is_open = {
            let world = self.sites[site].node.world.borrow();
            !world.is_paused && !world.is_short_of_replicas
        };
        let timer = self.sites[site].timer_in_ms();
        let world = self.sites[site].node.world.borrow();
        let key = |place: &super::OwnedKeyName, wall: u64| {
            let is_lost = world.lost_slots.as_ref().is_some_and(|lost| lost.contains(&place.1));
            (!is_lost).then(|| Raw::of(world.keys.get(place), wall))
        };
        self.courts[site].end_of_iteration(is_open, now, timer, key);
    }

    /// Excuses the server for being late for a while.
    pub(super) fn excuse(&mut self, site: usize, time: u64) {
        let until = Site::monotonic(self.now) + time;
        let court = &mut self.courts[site];
        court.all_excused = court.all_excused.max(until);
    }

    /// Lets a server see a connection end; the client comes back with another one.
    pub(super) fn disconnect(&mut self, client: usize) {
        let site = self.clients[client].site;
        if !self.sites[site].is_running(self.now) || client >= usize::from(CLIENTS) {
            return;
        }
        let conn = self.clients[client].conn;
        self.conns += 1;
        self.clients[client].conn = self.conns;
        self.leave(site, conn);
    }

    /// Ends the connection to which the last answer was sent.
    pub(super) fn lose(&mut self) {
        let sent = self.sites.iter().find_map(|site| site.sent.last()).map(|(conn, _)| *conn);
        let client = sent.and_then(|conn| self.clients.iter().position(|client| client.conn == conn));
        if let Some(client) = client {
            self.disconnect(client);
        }
    }

    /// Called when a connection to a server is gone.
    pub(super) fn leave(&mut self, site: usize, conn: u64) {
        let now = self.now_at(site);
        if self.courts[site].has_session(conn) {
            self.tally.sessions_ended += 1;
        }
        self.courts[site].connection_ended(conn, now);
        self.spans.connection_ended(conn, now.margin, self.now);
        self.courts[site].left(conn, now);
        self.event(site, |node: &Node| node.disconnect(conn));
    }

    /// CLIENT UNBLOCK: the server ends the wait.
    pub(super) fn unblock(&mut self, client: usize) {
        let (conn, site) = (self.clients[client].conn, self.clients[client].site);
        let is_blocked = self.sites[site].node.world.borrow().blocked.contains(&Blocked(conn));
        if is_blocked && self.takes_writes(site) {
            let now = self.now_at(site);
            self.courts[site].left(conn, now);
            self.event(site, |node| {
                node.event(|entry| entry.client_left(conn));
            });
        }
    }

    /// Ends a run: the checks must have found no forgotten work.
    pub fn end(&mut self) {
        for site in 0..self.sites.len() {
            let node = &self.sites[site].node;
            let driver = node.driver.borrow();
            let counters = driver.engine().counters();
            for counter in [super::Counter::MissedWakeups, super::Counter::LateTimers] {
                assert!(!self.is_quiet || counters.get(counter) == 0, "{counter:?}");
            }
        }
        let sum = |of: fn(&Court) -> u64| self.courts.iter().map(of).sum();
        self.tally.grants = sum(|court| court.grants);
        self.tally.hand_offs = sum(|court| court.hand_offs);
        self.tally.passed_over = sum(|court| court.passed_over);
    }
}
