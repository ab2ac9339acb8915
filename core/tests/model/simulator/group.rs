//! A master and its replicas: which writes arrive, which replica takes over, and what the old master does in the
//! meantime.

use super::{Cause, Fate, Run, Site};

impl Run {
    /// The master that took over last.
    pub(super) fn newest(&self) -> usize {
        let masters = (0..self.sites.len()).filter(|at| self.sites[*at].link.is_none());
        masters.max_by_key(|at| self.sites[*at].reign).unwrap_or(0)
    }

    fn two(&mut self, first: usize, second: usize) -> (&mut Site, &mut Site) {
        assert_ne!(first, second);
        let (low, high) = (first.min(second), first.max(second));
        let (left, right) = self.sites.split_at_mut(high);
        let (low_site, high_site) = (&mut left[low], &mut right[0]);
        if first < second {
            (low_site, high_site)
        } else {
            (high_site, low_site)
        }
    }

    /// Once a second, a replica answers its master, and a master counts the replicas that do.
    pub(super) fn count_replicas(&mut self, site: usize) {
        let (now, lag) = (self.now, self.lag);
        if let Some(link) = self.sites[site].link {
            let (replica, master) = self.two(site, link.master);
            let offset = master.catch_up(replica, now, lag);
            if link.cut_at.is_none_or(|cut_at| now < cut_at) {
                master.expect_ack(site, now + lag, offset);
            }
        } else if self.sites.len() > 1 {
            self.sites[site].ping(now);
            self.sites[site].set_clocks(now);
            self.sites[site].count_good_replicas();
        }
    }

    /// Sets `min-replicas-to-write`: the module sees in the next turn whether enough replicas answer.
    fn want(&mut self, site: usize, wanted: u64) {
        self.sites[site].want(wanted);
        self.courts[site].gate_is_open = false;
    }

    fn replicas_of(&self, master: usize) -> Vec<usize> {
        (0..self.sites.len()).filter(|at| self.sites[*at].link.is_some_and(|link| link.master == master)).collect()
    }

    /// Lets a replica take over.
    pub(super) fn promote(&mut self, replica: usize, fate: Fate) {
        let old = self.newest();
        let is_replica = self.sites[replica].link.is_some_and(|link| link.master == old);
        if !is_replica || !self.sites[replica].is_running(self.now) {
            return;
        }
        let agrees = fate == Fate::Agrees;
        if agrees && !self.takes_writes(old) {
            return;
        }
        self.tally.promotions += 1;
        let (now, lag) = (self.now, if agrees { 0 } else { self.lag });
        let replicas = self.replicas_of(old);
        for follower in replicas.iter().filter(|_| !agrees) {
            if let Some(link) = &mut self.sites[*follower].link {
                link.cut_at = Some(now);
            }
        }
        let (master, taker) = self.two(old, replica);
        master.catch_up(taker, now, lag);
        match fate {
            Fate::Stopped(time) => self.stop(old, time, false),
            Fate::Suspended(time) => self.stop(old, time, true),
            Fate::Dead => {
                self.sites[old].is_dead = true;
                self.courts[old].forget(true);
            }
            Fate::CutOff | Fate::Agrees => {}
        }
        self.reigns += 1;
        let reign = self.reigns;
        self.sites[replica].lead(reign, now);
        self.courts[replica].forget(false);
        self.courts[replica].master_since = Site::monotonic(now);
        self.after(replica, &Cause::default());
        let others: Vec<usize> = replicas.into_iter().filter(|other| *other != replica).collect();
        self.want(replica, others.len() as u64);
        for other in others {
            let (master, other_site) = self.two(replica, other);
            other_site.follow(replica, master);
            master.add_replica(other, now);
        }
        if agrees {
            self.demote(old, replica);
            self.want(replica, 2);
        }
        for client in 0..self.clients.len() {
            // Some clients stay with the old master as long as it answers.
            let is_faithful = client % 2 == 1 && !matches!(fate, Fate::Dead | Fate::Agrees);
            if self.clients[client].site == old && !is_faithful {
                self.move_client(client, replica);
            }
        }
    }

    /// Called when an old master, or a server that starts again, becomes a replica.
    fn demote(&mut self, old: usize, new: usize) {
        let (now, was_dead) = (self.now, self.sites[old].is_dead);
        self.sites[old].is_dead = false;
        if was_dead {
            self.sites[old].resume(now);
            self.sites[old].restart(now);
            self.sites[old].sent.clear();
            self.sites[old].node.world.borrow_mut().journal = Some(Vec::new());
        }
        let (replica, master) = self.two(old, new);
        replica.follow(new, master);
        master.add_replica(old, now);
        self.want(old, 2);
        self.event(old, |node| node.event(|entry| entry.demoted()));
        self.turn(old);
        self.courts[old].forget(false);
    }

    fn move_client(&mut self, client: usize, to: usize) {
        let (from, conn) = (self.clients[client].site, self.clients[client].conn);
        self.conns += 1;
        self.clients[client].conn = self.conns;
        self.clients[client].site = to;
        if self.sites[from].is_running(self.now) {
            self.leave(from, conn);
        }
    }

    /// Makes every running server a replica of the newest master, or lets it follow that master again.
    pub(super) fn heal(&mut self) {
        let newest = self.newest();
        if !self.sites[newest].is_running(self.now) {
            return;
        }
        for site in 0..self.sites.len() {
            let is_follower = self.sites[site].link.is_some_and(|link| link.master == newest && link.cut_at.is_none());
            let is_standing = !self.sites[site].is_dead && !self.sites[site].is_running(self.now);
            if site == newest || is_follower || is_standing {
                continue;
            }
            self.demote(site, newest);
            for client in 0..self.clients.len() {
                if self.clients[client].site == site {
                    self.move_client(client, newest);
                }
            }
        }
        let replicas = self.replicas_of(newest).len() as u64;
        self.want(newest, replicas);
    }
}
