//! Changes to keys by others, and server faults.

use super::{place, us, Cause, Client, KeyChange, Ms, Number, OwnedKeyName, Put, Raw, Run, KEYS, LIMITS, SILENCE};
use crate::fake::{Content, Stored};
use crate::simulator::judge::Now;
use crate::simulator::site::Site;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::time::Micros;
use std::collections::BTreeSet;

impl Run {
    /// The server on which somebody else can change keys.
    fn open_site(&mut self, places: &[OwnedKeyName]) -> Option<usize> {
        let site = self.newest();
        (self.takes_writes(site) && !self.is_lost(site, places)).then_some(site)
    }

    /// Called when somebody else changed a key while it was held: clients can no longer rely on it.
    pub(super) fn spans_are_void(&mut self, place: &OwnedKeyName, before: Option<&Stored>, now: Now) {
        if Raw::of(before, now.wall) != Raw::Nothing {
            self.spans.void(place);
        }
    }

    fn has_key(&mut self, site: usize, place: &OwnedKeyName) -> Option<Stored> {
        self.event(site, |node| node.expire(place));
        self.sites[site].node.world.borrow().keys.get(place).cloned()
    }

    /// Changes a key as another client would; without `event`, no event reports it.
    pub(super) fn change(&mut self, place: &OwnedKeyName, stored: Option<Stored>, event: Option<KeyChange>) {
        let Some(site) = self.open_site(std::slice::from_ref(place)) else { return };
        let before = self.has_key(site, place);
        if before.is_none() && stored.is_none() {
            return;
        }
        let is_reported = event.is_some() && self.sites[site].node.world.borrow().settings.reports_keys;
        if !is_reported {
            self.excuse_key(site, place, SILENCE);
        }
        self.event(site, |node| {
            node.put(place, stored);
            if let Some(how) = event {
                node.report_key(place, how);
            }
        });
    }

    pub(super) fn excuse_key(&mut self, site: usize, place: &OwnedKeyName, time: u64) {
        self.is_quiet = false;
        let until = Site::monotonic(self.now) + time;
        let excused = self.courts[site].excused.entry(place.clone()).or_default();
        *excused = until.max(*excused);
    }

    pub(super) fn evict(&mut self, place: &OwnedKeyName) {
        let site = self.newest();
        // Waiters are served when the last holder that the server has seen ends, whatever has been there since. For a
        // lock that was found free, this is the time when it was found free.
        let met = self.sites[site].latest_wall;
        let end = self.courts[site].latest.get(place).copied().unwrap_or(0).max(met);
        let left = end.saturating_sub(self.sites[site].wall(self.now));
        self.excuse_key(site, place, left + SILENCE);
        self.change(place, None, Some(KeyChange::Evicted));
    }

    pub(super) fn put(&mut self, key: Number, what: Put) {
        let wall = self.sites[self.newest()].wall(self.now);
        let text = |bytes: &[u8], expire_at_ms| Some(Stored { content: Content::String(bytes.to_vec()), expire_at_ms });
        let stored = match what {
            Put::Foreign => text(b"somebody", None),
            Put::ForeignFor(ms) => text(b"somebody", Some(wall / 1_000 + u64::from(ms))),
            Put::Timestamp(ms) => {
                let at = (wall / 1_000).saturating_add_signed(i64::from(ms));
                text(at.to_string().as_bytes(), None)
            }
        };
        self.change(&place(key), stored, None);
    }

    /// RENAME, or COPY … REPLACE.
    pub(super) fn rename(&mut self, from: &OwnedKeyName, to: &OwnedKeyName, moves: bool) {
        let Some(site) = self.open_site(&[from.clone(), to.clone()]) else { return };
        let Some(stored) = self.has_key(site, from).filter(|_| from != to) else { return };
        self.change(to, Some(stored), Some(KeyChange::Gone));
        if moves {
            self.change(from, None, Some(KeyChange::Gone));
        }
        // A value under two names is not a lock of two keys: only the tokens show which client has which grant.
    }

    pub(super) fn flush(&mut self) {
        for key in 0..KEYS {
            let place = place(key);
            let Some(site) = self.open_site(std::slice::from_ref(&place)) else { continue };
            self.event(site, |node| {
                node.put(&place, None);
            });
        }
        let site = self.newest();
        if self.takes_writes(site) {
            self.event(site, |node| node.event(|entry| entry.database_changed(Some(0))));
        }
    }

    /// SWAPDB with a database that has all keys in a different order.
    pub(super) fn swap(&mut self) {
        let site = self.newest();
        if !self.takes_writes(site) || self.is_lost(site, &(0..KEYS).map(place).collect::<Vec<_>>()) {
            return;
        }
        let stored: Vec<Option<Stored>> = (0..KEYS).map(|key| self.has_key(site, &place(key))).collect();
        for (key, stored) in (0..KEYS).zip(stored.into_iter().rev()) {
            let place = place(key);
            self.event(site, |node| {
                node.put(&place, stored);
            });
        }
        self.event(site, |node| node.event(|entry| entry.database_changed(Some(0))));
    }

    pub(super) fn pause(&mut self, time: Ms) {
        let site = self.newest();
        if self.takes_writes(site) {
            self.sites[site].paused_until = Some(self.now + us(time));
            self.sites[site].set_clocks(self.now);
        }
    }

    pub(super) fn set_clock(&mut self, site: usize, by: i32) {
        self.sites[site].set_wall(self.now, by);
        self.sites[site].set_clocks(self.now);
        self.courts[site].gate_is_open = false;
        self.courts[site].clock_set = Some(Site::monotonic(self.now));
        self.is_quiet = false;
        // Waiters wait for an evicted lock's holder by this clock.
        let back = us(u32::try_from(-by).unwrap_or(0));
        self.courts[site].excused.values_mut().for_each(|until| *until += back);
        // A client that came for a free lock and was refused for another reason is served by the scan of all queues.
        (0..KEYS).for_each(|key| self.excuse_key(site, &place(key), SILENCE));
        // The cron finds a timer that is late because of this.
        self.excuse(site, 300_000);
    }

    pub(super) fn stop(&mut self, site: usize, time: Ms, suspends: bool) {
        if self.sites[site].is_running(self.now) {
            self.sites[site].stop(self.now, time, suspends);
            self.courts[site].gate_is_open = false;
            self.is_quiet = false;
        }
    }

    /// `kill -9`, then a start with everything that was written.
    pub(super) fn restart(&mut self, site: usize) {
        self.sites[site].resume(self.now);
        self.sites[site].is_dead = false;
        self.sites[site].sent.clear();
        self.sites[site].backlog.clear();
        self.sites[site].restart(self.now);
        self.courts[site].forget(true);
        self.courts[site].master_since = Site::monotonic(self.now);
        Self::subscribe_all(&self.sites[site].node);
        self.after(site, &Cause::default());
        for client in 0..self.clients.len() {
            if self.clients[client].site == site {
                self.conns += 1;
                self.clients[client] = Client { conn: self.conns, site };
            }
        }
    }

    pub(super) fn lose_slot(&mut self, key: Number, deleted: bool) {
        let place = place(key);
        let Some(site) = self.open_site(std::slice::from_ref(&place)) else { return };
        self.is_quiet = false;
        let lost = &self.sites[site].node.world;
        lost.borrow_mut().lost_slots.get_or_insert_with(BTreeSet::new).insert(place.1.clone());
        self.courts[site].slot_lost(&place);
        if deleted {
            self.event(site, |node| {
                node.put(&place, None);
                node.report_key(&place, KeyChange::Gone);
            });
        } else {
            // The server moved the whole slot itself, and reports that.
            self.event(site, |node| node.event(|entry| entry.slots_left()));
        }
    }

    pub(super) fn regain_slots(&mut self) {
        let site = self.newest();
        let lost = self.sites[site].node.world.borrow_mut().lost_slots.as_mut().map(std::mem::take);
        for name in lost.into_iter().flatten() {
            let place = (0, name);
            self.courts[site].slot_lost(&place);
            self.excuse_key(site, &place, SILENCE);
        }
    }

    /// Sets `lock.failover-grace-ms`.
    pub(super) fn set_grace(&mut self, longer: bool) {
        let site = self.newest();
        if !self.takes_writes(site) {
            return;
        }
        self.limit = if longer { self.limit.saturating_sub(1) } else { (self.limit + 1).min(LIMITS.len() - 1) };
        let margin = self.now_at(site).margin;
        let settings = LIMITS[self.limit].map(|longest| grace::Settings {
            grace: Micros(margin + 3_000_000 + longest),
            margin: Micros(margin),
            max_lag: Micros(1_000_000),
            wanted: 0,
        });
        self.sites[site].node.world.borrow_mut().settings.grace = settings;
        self.courts[site].gate_is_open = false;
        self.courts[site].limit_since = Site::monotonic(self.now);
        self.event(site, |node| node.event(|entry| entry.check_settings()));
    }
}
