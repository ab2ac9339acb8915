//! Clients' commands and their replies. Each is compared with the keys as they were before it.

use super::*;

impl Run {
    /// A client that can send a command now: its connection, and the server.
    fn sender(&mut self, client: Number) -> Option<(u64, usize)> {
        let Client { conn, site } = self.clients[usize::from(client % CLIENTS)];
        let is_blocked = self.sites[site].node.world.borrow().blocked.contains(&Blocked(conn));
        (!is_blocked && self.takes_writes(site)).then_some((conn, site))
    }

    /// When a stalled server resumes, it first reads the commands sent during the stall.
    fn send_later(&mut self, command: &Acquire, several: bool) {
        let Client { conn, site } = self.clients[usize::from(command.client % CLIENTS)];
        let site = &mut self.sites[site];
        let has_sent = site.backlog.iter().any(|(own, ..)| *own == conn);
        if !site.is_running(self.now) && !site.is_dead && !has_sent {
            site.backlog.push((conn, command.clone(), several));
        }
    }

    #[allow(clippy::too_many_lines, reason = "each outcome of a command is judged in its own way")]
    pub(super) fn acquire(&mut self, command: &Acquire, several: bool) {
        let Some((conn, site)) = self.sender(command.client) else {
            self.send_later(command, several);
            return;
        };
        let asked = Asked {
            conn,
            places: command.keys.iter().map(|key| place(*key)).collect(),
            share: command.share,
            lease: us(command.lease),
            wait: us(command.wait),
            id: command.id.map(|id| 1 + u64::from(id % IDS)),
            session: command.session,
            // Without a margin, an unclaimed grant expires when its time to claim ends, and is a predecessor like any
            // other.
            notify: command
                .notify
                .filter(|_| {
                    let settings = self.sites[site].node.world.borrow().settings;
                    command.id.is_some() && command.wait > 0 && settings.margin.0 > 0 && settings.limits.queued > 0
                })
                .map(|channel| channel % CHANNELS),
            wants_result: command.wants_result && !several && command.wait > 0,
        };
        if self.is_lost(site, &asked.places) {
            return;
        }
        let in_transaction = std::mem::take(&mut self.is_multi) || command.in_transaction;
        // The server itself refuses a command that asks for a lock while it is out of memory.
        if self.sites[site].node.world.borrow().is_out_of_memory {
            return;
        }
        if asked.notify.is_some() {
            self.keep_command(command, several);
        }
        let keys: Vec<Raw> = asked.places.iter().map(|place| self.raw(site, place)).collect();
        let mut own = self.courts[site].attempts_of(&asked, self.now_at(site));
        for attempt in &own {
            self.courts[site].may_be_replaced(attempt);
        }
        let claim = self.courts[site].claim_of(&asked, &keys, self.now_at(site));
        own.extend(self.courts[site].places_of_claims(&asked, self.now_at(site)));
        let of_other_keys = self.courts[site].claims_of_other_keys(&asked);
        // A grant that the command gives up passes to a client that waited for it before the command is decided.
        let gives_up = claim.is_some() || !of_other_keys.is_empty();
        let queue = gives_up.then(|| self.courts[site].queue.clone());
        let queue = queue.as_deref();
        let claimable = claim.as_ref().map(|(unclaimed, _)| unclaimed.token);
        let has_claim = claim.is_some();
        let has_to_claim = claim.filter(|(_, has_to)| *has_to).map(|(unclaimed, _)| unclaimed);
        let kept = self.courts[site].kept_result(&asked, self.now_at(site));
        let is_barred = self.courts[site].is_barred(&asked, self.now_at(site));
        let would_block = asked.wait > 0 && asked.notify.is_none() && !in_transaction;
        let cycle = (would_block && !gives_up)
            .then(|| self.courts[site].closes_cycle(&asked, &own, self.now_at(site), |place| self.raw(site, place)))
            .flatten();
        let share = match command.share {
            Share::Alone => request::Share::Alone,
            Share::Shared => request::Share::Shared,
            Share::Limit(most) => request::Share::Limit(u64::from(most)),
        };
        let request = Request { share, lease: Micros(asked.lease), id: asked.id.map(id_of), owner: None };
        let channel = asked.notify.map(notify::channel);
        let notify =
            channel.as_ref().map(|channel| ChannelName { name: &channel.name, is_sharded: channel.is_sharded });
        let ask = Ask {
            request,
            wait: Micros(asked.wait),
            shape: ReplyShape::Details,
            session: asked.session,
            wants_result: asked.wants_result,
            notify,
        };
        let names: Vec<&[u8]> = asked.places.iter().map(|place| &place.1[..]).collect();
        let node = &self.sites[site].node;
        node.world.borrow_mut().is_transaction = in_transaction;
        let outcome =
            node.command(
                conn,
                |entry| {
                    if several {
                        entry.acquire_all(&names, &ask)
                    } else {
                        entry.acquire(names[0], &ask)
                    }
                },
            );
        let granted_token = if let Ok(Outcome::Granted(granted)) = &outcome { Some(granted.token.get()) } else { None };
        let cause = Cause { asks: asked.id, granted: granted_token, ..Cause::default() };
        let mut writes = self.after(site, &cause);
        self.sites[site].node.world.borrow_mut().is_transaction = false;
        let now = self.now_at(site);
        if outcome.is_err() {
            let left = self.courts[site].claims_of_other_keys(&asked);
            assert_eq!(left, of_other_keys, "{asked:?} gets {outcome:?}, but grants are given up for it");
            if let Some(token) = claimable {
                self.courts[site].claim_is_refused(token);
            }
        }
        if Self::gets_kept(&asked, &outcome, kept) {
            assert!(writes.is_empty(), "{asked:?} gets {outcome:?}, but something is written");
            return;
        }
        if is_barred == Some(true) {
            self.tally.cancelled += 1;
            assert!(writes.is_empty(), "{asked:?} was cancelled, but something is written");
            match outcome {
                Ok(Outcome::NotGranted) | Err(Error::LeaseBeyondGrace(_) | Error::ResultOfSeveral) => return,
                outcome => panic!("{asked:?} was cancelled, but gets {outcome:?}"),
            }
        }
        if let Some(unclaimed) = has_to_claim {
            match &outcome {
                Ok(Outcome::Granted(granted)) if granted.token.get() == unclaimed.token => {}
                Err(
                    Error::Grace(_)
                    | Error::NoReplicas
                    | Error::LeaseBeyondGrace(_)
                    | Error::HeldAlone
                    | Error::HeldAmongSeveral
                    | Error::ResultOfSeveral,
                ) => {
                    assert!(writes.is_empty(), "{asked:?} gets {outcome:?}, but something is written");
                    return;
                }
                outcome => panic!("{asked:?} claims {unclaimed:?} at {now:?}, but gets {outcome:?}"),
            }
        }
        match outcome {
            Ok(Outcome::Granted(granted)) => {
                let reported = reported(&granted, &asked);
                if self.courts[site].claimed(reported.token, &asked, &reported, &keys, now) {
                    self.claimed(site, &asked, reported.token);
                } else {
                    self.granted(site, &mut writes, &asked, &own, &reported);
                }
            }
            Ok(Outcome::Result(_)) => panic!("{asked:?} gets a result, but none is kept for it"),
            Err(Error::ResultOfSeveral) => {
                assert!(asked.wants_result && matches!(keys[0], Raw::Several(_)), "{asked:?}: {keys:?}");
            }
            Ok(Outcome::Queued) => {
                assert!(asked.wait > 0 && asked.notify.is_some(), "{asked:?} is queued");
                self.refused(site, &asked, &own, &keys, queue);
                self.courts[site].arrives(asked, &own, true, now);
            }
            Ok(Outcome::Waits) => {
                assert!(would_block, "{asked:?} waits");
                let searches_all = self.sites[site].node.world.borrow().settings.edges > 1_000;
                assert!(cycle != Some(true) || !searches_all, "{asked:?} waits for itself: {keys:?} at {now:?}");
                self.refused(site, &asked, &own, &keys, queue);
                self.courts[site].arrives(asked, &own, true, now);
            }
            Ok(Outcome::NotGranted) => {
                let does_not_wait = asked.wait == 0 || (in_transaction && asked.notify.is_none());
                if is_barred.is_none() {
                    if does_not_wait {
                        self.courts[site].arrives_unless_barred(asked, now);
                    }
                } else {
                    assert!(does_not_wait, "{asked:?} asked to wait, but does not");
                    self.refused(site, &asked, &own, &keys, queue);
                    self.courts[site].arrives(asked, &own, false, now);
                }
            }
            Err(Error::Grace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
                self.tally.barred += 1;
                // An attempt that an earlier master granted the lock gets no reply about it, and nothing changes; the
                // same holds for a command that would give up a grant.
                if of_other_keys.is_empty() && !keys.iter().all(|key| key.is_held_by(asked.id, now.wall)) {
                    self.courts[site].arrives(asked, &own, false, now);
                }
            }
            Err(Error::NoReplicas) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
                self.tally.barred += 1;
            }
            Err(Error::LeaseBeyondGrace(_)) => {
                assert!(now.longest_lease.is_some_and(|longest| asked.lease > longest), "{asked:?} fits the grace");
            }
            Err(Error::Deadlock) => {
                assert!(would_block, "{asked:?} would not block");
                assert!(cycle != Some(false), "{asked:?} would not wait for itself: {keys:?} at {now:?}");
                self.tally.deadlocks += 1;
            }
            Err(Error::BusyLocks | Error::BusyQueue | Error::BusyId) => {
                let most = self.sites[site].node.world.borrow().settings.limits.waiters;
                assert!(most < 1_000, "nobody else waits");
            }
            Err(Error::HeldAlone | Error::HeldAmongSeveral) => {
                let is_own = has_claim || keys.iter().any(|key| key.is_held_by(asked.id, now.wall));
                assert!(is_own, "{asked:?} holds none of {keys:?}");
            }
            Err(error) => panic!("{asked:?}: {error}"),
        }
        Court::assert_everything_was_reported(&writes);
    }

    /// Whether a command gets the result that is kept for its attempt. It has to, if that is certain and the gate does
    /// not refuse its lease.
    fn gets_kept(asked: &Asked, outcome: &Result<Outcome, Error>, kept: Option<(u64, bool)>) -> bool {
        match (outcome, kept) {
            (Ok(Outcome::Result(result)), Some((value, _))) => {
                assert_eq!(*result.bytes, value.to_be_bytes(), "{asked:?} gets another result");
                true
            }
            (Err(Error::LeaseBeyondGrace(_) | Error::NoReplicas), _) => false,
            (_, Some((value, true))) => panic!("{asked:?} gets {outcome:?}, not its result {value}"),
            _ => false,
        }
    }

    /// Called when a grant was claimed: from now on its client relies on it.
    fn claimed(&mut self, site: usize, asked: &Asked, token: u64) {
        self.tally.claims += 1;
        let (now, reign) = (self.now_at(site), self.sites[site].reign);
        self.check_reported(site, asked, token);
        for place in &asked.places {
            let end = self.raw(site, place).holder(token).map(|holder| holder.timestamp);
            assert_eq!(end, Some(now.wall + asked.lease + now.margin), "the lease of {asked:?} in {place:?}");
        }
        self.spans.granted(asked, token, reign, self.now);
        self.remember(site, asked, token);
    }

    pub(super) fn granted(
        &mut self,
        site: usize,
        writes: &mut Writes,
        asked: &Asked,
        own: &[Attempt],
        reported: &Reported,
    ) {
        let now = self.now_at(site);
        let token = reported.token;
        let is_known = self.known.iter().any(|known| known.token == token);
        self.courts[site].granted(writes, asked, own, reported, now);
        Court::check_extension(writes, token, asked.lease, false, now);
        let reign = self.sites[site].reign;
        if is_known {
            self.prolong(site, token, &asked.places, asked.lease, false);
            self.spans.belongs_to(asked, token);
        } else {
            self.spans.granted(asked, token, reign, self.now);
        }
        self.check_reported(site, asked, token);
        self.remember(site, asked, token);
    }

    /// Checks a grant's reply, which means that the caller holds what it asked for, in the form and for the time that
    /// it asked for.
    pub(super) fn check_reported(&self, site: usize, asked: &Asked, token: u64) {
        let now = self.now_at(site);
        for place in &asked.places {
            let raw = self.raw(site, place);
            let own = raw.holder(token).filter(|holder| holder.id == asked.id);
            let own = own.unwrap_or_else(|| panic!("{asked:?} gets {token}, which is not in {place:?}, {raw:?}"));
            let is_long = own.timestamp >= now.wall + asked.lease + now.margin;
            assert!(is_long, "{asked:?} gets {token} at {now:?}, which has ended by then: {raw:?}");
            let is_alone = matches!(raw, Raw::One(_));
            assert_eq!(
                is_alone,
                asked.share == Share::Alone,
                "{asked:?} gets {token}, which holds in another form: {raw:?}"
            );
        }
    }

    pub(super) fn remember(&mut self, site: usize, asked: &Asked, token: u64) {
        self.known.retain(|known| (known.token, known.site) != (token, site));
        self.known.push_back(Known { token, places: asked.places.clone(), site });
        if self.known.len() > REMEMBERED {
            self.known.pop_front();
        }
    }

    /// `queue`: the clients that waited before the command, if it may have served some of them.
    fn refused(&mut self, site: usize, asked: &Asked, own: &[Attempt], keys: &[Raw], queue: Option<&[Attempt]>) {
        self.tally.refusals += 1;
        let now = self.now_at(site);
        if now.longest_lease.is_none() || self.courts[site].gate_is_open {
            let is_own = keys.iter().any(|key| key.is_held_by(asked.id, now.wall));
            if !is_own && !self.is_unsure(site, &asked.places) {
                let timer = self.sites[site].timer_in_ms();
                self.courts[site].refused(asked, own, keys, queue, timer, now);
            }
        }
    }

    pub(super) fn is_unsure(&self, site: usize, places: &[OwnedKeyName]) -> bool {
        let monotonic = Site::monotonic(self.now);
        let excused = &self.courts[site].excused;
        places.iter().any(|place| excused.get(place).is_some_and(|until| monotonic < *until))
    }

    pub(super) fn recover(&mut self, client: Number, key: Number, lease: Ms, id: Option<Number>) {
        let Some((conn, site)) = self.sender(client) else { return };
        let id = id.map(|id| 1 + u64::from(id % IDS));
        let places = vec![place(key)];
        let asked = Asked {
            conn,
            places,
            share: Share::Alone,
            lease: us(lease),
            wait: 0,
            id,
            session: false,
            notify: None,
            wants_result: false,
        };
        if self.is_lost(site, &asked.places) || self.sites[site].node.world.borrow().is_out_of_memory {
            return;
        }
        let before = self.raw(site, &asked.places[0]);
        let own = self.courts[site].attempts_of(&asked, self.now_at(site));
        let is_barred = self.courts[site].is_barred(&asked, self.now_at(site));
        let request =
            Request { share: request::Share::Alone, lease: Micros(asked.lease), id: id.map(id_of), owner: None };
        let ask = Ask {
            request,
            wait: Micros(0),
            shape: ReplyShape::Details,
            session: false,
            wants_result: false,
            notify: None,
        };
        let outcome = self.sites[site].node.command(conn, |entry| entry.recover(&asked.places[0].1, &ask));
        let granted_token = if let Ok(Some(granted)) = &outcome { Some(granted.token.get()) } else { None };
        let cause = Cause { asks: asked.id, granted: granted_token, ..Cause::default() };
        let mut writes = self.after(site, &cause);
        let now = self.now_at(site);
        match outcome {
            Ok(Some(granted)) => {
                assert!(before.is_expired(now.wall), "{before:?} was recovered at {now:?}");
                self.granted(site, &mut writes, &asked, &own, &reported(&granted, &asked));
            }
            Ok(None) => {
                if before.is_expired(now.wall) && is_barred == Some(false) {
                    self.refused(site, &asked, &own, &[before], None);
                }
            }
            Err(Error::Grace(_) | Error::NoReplicas | Error::LeaseBeyondGrace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
            }
            Err(error) => panic!("{error}"),
        }
        Court::assert_everything_was_reported(&writes);
    }
}
