//! Calls of clients to a server, and their replies: each is compared with the keys before it.

use super::*;

/// What is extended of a grant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extends {
    /// The first of its locks, by EXTEND.
    First,
    /// All of them by MEXTEND, and another key.
    AllAnd(Option<Number>),
}

impl Run {
    /// A client that can send a command now: its connection, and the server.
    fn sender(&mut self, client: Number) -> Option<(u64, usize)> {
        let Client { conn, site } = self.clients[usize::from(client % CLIENTS)];
        let is_blocked = self.sites[site].node.world.borrow().blocked.contains(&Blocked(conn));
        (!is_blocked && self.takes_writes(site)).then_some((conn, site))
    }

    /// A server that stands still reads what was sent before anything else, when it goes on.
    fn send_later(&mut self, call: &Call, several: bool) {
        let Client { conn, site } = self.clients[usize::from(call.client % CLIENTS)];
        let site = &mut self.sites[site];
        let has_sent = site.backlog.iter().any(|(own, ..)| *own == conn);
        if !site.is_running(self.now) && !site.is_dead && !has_sent {
            site.backlog.push((conn, call.clone(), several));
        }
    }

    #[allow(clippy::too_many_lines, reason = "each outcome of a call is judged in its own way")]
    pub(super) fn acquire(&mut self, call: &Call, several: bool) {
        let Some((conn, site)) = self.sender(call.client) else {
            self.send_later(call, several);
            return;
        };
        let asked = Asked {
            conn,
            places: call.keys.iter().map(|key| place(*key)).collect(),
            share: call.share,
            lease: us(call.lease),
            wait: us(call.wait),
            id: call.id.map(|id| 1 + u64::from(id % IDS)),
            session: call.session,
            // Without a margin an unclaimed grant expires as its time to claim ends, and is a predecessor like any other.
            notify: call
                .notify
                .filter(|_| {
                    let settings = self.sites[site].node.world.borrow().settings;
                    call.id.is_some() && call.wait > 0 && settings.margin.0 > 0 && settings.limits.queued > 0
                })
                .map(|channel| channel % CHANNELS),
        };
        if self.is_lost(site, &asked.places) {
            return;
        }
        let in_transaction = std::mem::take(&mut self.is_multi) || call.in_transaction;
        // The server itself refuses a command that asks for a lock while it is out of memory.
        if self.sites[site].node.world.borrow().is_out_of_memory {
            return;
        }
        if asked.notify.is_some() {
            self.keep_call(call, several);
        }
        let keys: Vec<Raw> = asked.places.iter().map(|place| self.raw(site, place)).collect();
        let mut own = self.courts[site].stands_of(&asked, self.now_at(site));
        for stand in &own {
            self.courts[site].may_be_replaced(stand);
        }
        let claim = self.courts[site].claim_of(&asked, &keys, self.now_at(site));
        own.extend(self.courts[site].places_of_claims(&asked, self.now_at(site)));
        let has_claim = claim.is_some();
        let has_to_claim = claim.filter(|(_, has_to)| *has_to).map(|(unclaimed, _)| unclaimed);
        let is_barred = self.courts[site].is_barred(&asked, self.now_at(site));
        let share = match call.share {
            Share::Alone => rules::Share::Alone,
            Share::Shared => rules::Share::Shared,
            Share::Limit(most) => rules::Share::Limit(u64::from(most)),
        };
        let request = Request { share, lease: Micros(asked.lease), id: asked.id.map(id_of), owner: None };
        let channel = asked.notify.map(notify::channel);
        let notify =
            channel.as_ref().map(|channel| ChannelName { name: &channel.name, is_sharded: channel.is_sharded });
        let ask = Ask { request, wait: Micros(asked.wait), shape: ReplyShape::Details, session: asked.session, notify };
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
        let told_token = if let Ok(Outcome::Granted(granted)) = &outcome { Some(granted.token.get()) } else { None };
        let cause = Cause { asks: asked.id, told: told_token, ..Cause::default() };
        let mut writes = self.after(site, &cause);
        self.sites[site].node.world.borrow_mut().is_transaction = false;
        let now = self.now_at(site);
        if is_barred == Some(true) {
            self.tally.cancelled += 1;
            assert!(writes.is_nothing(), "{asked:?} was cancelled, and something is written");
            match outcome {
                Ok(Outcome::NotGranted) | Err(Error::LeaseBeyondGrace(_)) => return,
                outcome => panic!("{asked:?} was cancelled, and gets {outcome:?}"),
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
                    | Error::HeldAmongSeveral,
                ) => {
                    assert!(writes.is_nothing(), "{asked:?} gets {outcome:?}, and something is written");
                    return;
                }
                outcome => panic!("{asked:?} claims {unclaimed:?} at {now:?}, and gets {outcome:?}"),
            }
        }
        match outcome {
            Ok(Outcome::Granted(granted)) => {
                let told = told(&granted, &asked);
                if self.courts[site].claimed(told.token, &asked, &told, &keys, now) {
                    self.claimed(site, &asked, told.token);
                } else {
                    self.granted(site, &mut writes, &asked, &own, &told);
                }
            }
            Ok(Outcome::Queued) => {
                assert!(asked.wait > 0 && asked.notify.is_some(), "{asked:?} stands in line");
                self.refused(site, &asked, &own, &keys);
                self.courts[site].arrives(asked, &own, true, now);
            }
            Ok(Outcome::Waits) => {
                assert!(asked.wait > 0 && asked.notify.is_none() && !in_transaction, "{asked:?} waits");
                self.refused(site, &asked, &own, &keys);
                self.courts[site].arrives(asked, &own, true, now);
            }
            Ok(Outcome::NotGranted) => {
                let does_not_wait = asked.wait == 0 || (in_transaction && asked.notify.is_none());
                if is_barred.is_none() {
                    if does_not_wait {
                        self.courts[site].arrives_unless_barred(asked, now);
                    }
                } else {
                    assert!(does_not_wait, "{asked:?} does not wait");
                    self.refused(site, &asked, &own, &keys);
                    self.courts[site].arrives(asked, &own, false, now);
                }
            }
            Err(Error::Grace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
                self.tally.barred += 1;
                // One that holds the lock by an earlier master is told nothing, and nothing changes.
                if !keys.iter().all(|key| key.is_held_by(asked.id, now.wall)) {
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
                assert!(self.courts[site].had_session(conn), "a deadlock of one who holds nothing: {asked:?}");
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
        Court::all_is_told(&writes);
    }

    /// A grant was claimed: from now on its client relies on it.
    fn claimed(&mut self, site: usize, asked: &Asked, token: u64) {
        self.tally.claims += 1;
        let (now, reign) = (self.now_at(site), self.sites[site].reign);
        self.check_told(site, asked, token);
        for place in &asked.places {
            let end = self.raw(site, place).holder(token).map(|holder| holder.timestamp);
            assert_eq!(end, Some(now.wall + asked.lease + now.margin), "the lease of {asked:?} in {place:?}");
        }
        self.spans.granted(asked, token, reign, self.now);
        self.remember(site, asked, token);
    }

    pub(super) fn granted(&mut self, site: usize, writes: &mut Writes, asked: &Asked, own: &[Stand], told: &Told) {
        let now = self.now_at(site);
        let token = told.token;
        let is_known = self.known.iter().any(|known| known.token == token);
        self.courts[site].granted(writes, asked, own, told, now);
        Court::prolonged(writes, token, asked.lease, false, now);
        let reign = self.sites[site].reign;
        if is_known {
            self.prolong(site, token, &asked.places, asked.lease, false);
            self.spans.belongs_to(asked, token);
        } else {
            self.spans.granted(asked, token, reign, self.now);
        }
        self.check_told(site, asked, token);
        self.remember(site, asked, token);
    }

    /// Who is told of a grant holds what it asked for, in the way in which it asked, for as long as it asked.
    pub(super) fn check_told(&self, site: usize, asked: &Asked, token: u64) {
        let now = self.now_at(site);
        for place in &asked.places {
            let raw = self.raw(site, place);
            let own = raw.holder(token).filter(|holder| holder.id == asked.id);
            let own = own.unwrap_or_else(|| panic!("{asked:?} is told of {token}, which is not in {place:?}, {raw:?}"));
            let is_long = own.timestamp >= now.wall + asked.lease + now.margin;
            assert!(is_long, "{asked:?} is told of {token} at {now:?}, which ends before that: {raw:?}");
            let is_alone = matches!(raw, Raw::One(_));
            assert_eq!(
                is_alone,
                asked.share == Share::Alone,
                "{asked:?} is told of {token}, which holds otherwise: {raw:?}"
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

    fn refused(&mut self, site: usize, asked: &Asked, own: &[Stand], keys: &[Raw]) {
        self.tally.refusals += 1;
        let now = self.now_at(site);
        if now.longest_lease.is_none() || self.courts[site].gate_is_open {
            let is_own = keys.iter().any(|key| key.is_held_by(asked.id, now.wall));
            if !is_own && !self.is_unsure(site, &asked.places) {
                let timer = self.sites[site].timer_in_ms();
                self.courts[site].refused(asked, own, keys, timer, now);
            }
        }
    }

    fn is_unsure(&self, site: usize, places: &[Place]) -> bool {
        let monotonic = Site::monotonic(self.now);
        let excused = &self.courts[site].excused;
        places.iter().any(|place| excused.get(place).is_some_and(|until| monotonic < *until))
    }

    pub(super) fn recover(&mut self, client: Number, key: Number, lease: Ms, id: Option<Number>) {
        let Some((conn, site)) = self.sender(client) else { return };
        let id = id.map(|id| 1 + u64::from(id % IDS));
        let places = vec![place(key)];
        let asked =
            Asked { conn, places, share: Share::Alone, lease: us(lease), wait: 0, id, session: false, notify: None };
        if self.is_lost(site, &asked.places) || self.sites[site].node.world.borrow().is_out_of_memory {
            return;
        }
        let before = self.raw(site, &asked.places[0]);
        let own = self.courts[site].stands_of(&asked, self.now_at(site));
        let is_barred = self.courts[site].is_barred(&asked, self.now_at(site));
        let request =
            Request { share: rules::Share::Alone, lease: Micros(asked.lease), id: id.map(id_of), owner: None };
        let ask = Ask { request, wait: Micros(0), shape: ReplyShape::Details, session: false, notify: None };
        let outcome = self.sites[site].node.command(conn, |entry| entry.recover(&asked.places[0].1, &ask));
        let told_token = if let Ok(Some(granted)) = &outcome { Some(granted.token.get()) } else { None };
        let cause = Cause { asks: asked.id, told: told_token, ..Cause::default() };
        let mut writes = self.after(site, &cause);
        let now = self.now_at(site);
        match outcome {
            Ok(Some(granted)) => {
                assert!(before.is_expired(now.wall), "{before:?} was recovered at {now:?}");
                self.granted(site, &mut writes, &asked, &own, &told(&granted, &asked));
            }
            Ok(None) => {
                if before.is_expired(now.wall) && is_barred == Some(false) {
                    self.refused(site, &asked, &own, &[before]);
                }
            }
            Err(Error::Grace(_) | Error::NoReplicas | Error::LeaseBeyondGrace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
            }
            Err(error) => panic!("{error}"),
        }
        Court::all_is_told(&writes);
    }

    /// A grant that somebody remembers; its server, if that takes commands for its keys, or that of another client.
    fn known_grant(&mut self, grant: Number) -> Option<Known> {
        let at = self.known.len().checked_sub(1 + usize::from(grant) % REMEMBERED)?;
        let mut known = self.known[at].clone();
        // Some holders go to a new master at once, the others stay with theirs as long as it answers.
        if self.plan == Plan::Group && (grant % 2 == 1 || !self.takes_writes(known.site)) {
            known.site = self.newest();
        }
        let takes = self.takes_writes(known.site);
        (takes && !self.is_lost(known.site, &known.places)).then_some(known)
    }

    pub(super) fn extend(&mut self, grant: Number, what: Extends, lease: Ms) {
        let Some(mut known) = self.known_grant(grant) else { return };
        match what {
            Extends::First => known.places.truncate(1),
            Extends::AllAnd(more) => Self::add(&mut known.places, more),
        }
        let all = what != Extends::First;
        let (site, wall) = (known.site, self.now_at(known.site).wall);
        if self.is_lost(site, &known.places) {
            return;
        }
        let is_held = known
            .places
            .iter()
            .all(|place| self.raw(site, place).holder(known.token).is_some_and(|holder| holder.timestamp > wall));
        let was_never_claimed = known
            .places
            .iter()
            .map(|place| self.courts[site].was_never_claimed(known.token, place, &self.raw(site, place)));
        let was_never_claimed: Vec<Option<bool>> = was_never_claimed.collect();
        let is_held = is_held && !was_never_claimed.contains(&Some(true));
        let is_sure = !is_held || !was_never_claimed.contains(&None);
        let token = Token::new(known.token).unwrap();
        let names: Vec<&[u8]> = known.places.iter().map(|place| &place.1[..]).collect();
        let lease = us(lease);
        let outcome = self.sites[site].node.command(0, |entry| {
            if all {
                entry.extend_all(&names, token, Micros(lease))
            } else {
                entry.extend(names[0], token, Micros(lease))
            }
        });
        let cause = Cause { extended: Some(known.token), ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::all_is_told(&writes);
        let now = self.now_at(site);
        match outcome {
            Ok(extended) => {
                assert!(extended || writes.is_nothing(), "EXTEND says that it has done nothing");
                assert!(!is_sure || extended == is_held, "EXTEND of {} in {:?} at {now:?}", known.token, known.places);
                if extended {
                    assert!(now.longest_lease.is_none_or(|longest| lease <= longest), "a lease beyond the grace");
                    self.courts[site].extended(known.token, &known.places);
                    Court::prolonged(&writes, known.token, lease, true, now);
                    for place in &known.places {
                        let end = self.raw(site, place).holder(known.token).map(|holder| holder.timestamp);
                        assert_eq!(
                            end,
                            Some(now.wall + lease + now.margin),
                            "the lease of {} in {place:?}",
                            known.token
                        );
                    }
                    self.prolong(site, known.token, &known.places, lease, true);
                }
            }
            Err(Error::NoReplicas | Error::LeaseBeyondGrace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn add(places: &mut Vec<Place>, more: Option<Number>) {
        let more = more.map(place);
        places.extend(more.filter(|more| !places.contains(more)));
    }

    pub(super) fn release(&mut self, grant: Number, key: Number) {
        let Some(known) = self.known_grant(grant) else { return };
        let at = usize::from(key) % known.places.len();
        // No seed draws 15; steps that are written by hand name another key than its own with it.
        let place = if key % 16 == 15 { place(key) } else { known.places[at].clone() };
        if self.is_lost(known.site, std::slice::from_ref(&place)) {
            return;
        }
        let site = known.site;
        let (before, wall) = (self.raw(site, &place), self.now_at(site).wall);
        let next = self.next_alone(site, &place, &before.without(|token| token == known.token), wall);
        // Into a set its predecessor is put back first.
        let is_unclaimed = self.courts[site].was_never_claimed(known.token, &place, &before) != Some(false);
        let next = next.filter(|_| !is_unclaimed || matches!(before, Raw::One(_)));
        let token = Token::new(known.token).unwrap();
        let is_multi = std::mem::take(&mut self.is_multi);
        self.sites[site].node.world.borrow_mut().is_transaction = is_multi;
        let released = self.sites[site].node.command(0, |entry| entry.release(&place.1, token)).unwrap();
        self.spans.ended(known.token);
        let cause = Cause { ended: vec![(known.token, place.clone())], ..Cause::default() };
        let writes = self.after(site, &cause);
        self.sites[site].node.world.borrow_mut().is_transaction = false;
        Court::all_is_told(&writes);
        let expected = match before.holder(known.token) {
            None => Release::Over,
            Some(holder) if holder.timestamp <= wall => Release::Late,
            Some(_) => Release::InTime,
        };
        assert_eq!(released, expected, "RELEASE of {} in {place:?}, {before:?}", known.token);
        if expected != Release::Over {
            // A predecessor that had no token is there again with that of the grant.
            let is_left = self.raw(site, &place).holder(known.token).is_some_and(|holder| holder.timestamp > wall);
            // It may live again if the clock was set back.
            let may_be_left = is_unclaimed && self.courts[site].clock_set.is_some();
            assert!(!is_left || may_be_left, "{} is released and holds {place:?}", known.token);
            if let Some(next) = next.filter(|_| self.may_hand_off(site)) {
                let is_next = |stand: &&Stand| stand.waits && (stand.earliest, stand.latest) == next;
                let waits = self.courts[site].line.iter().filter(is_next);
                let waits = waits.filter(|stand| stand.asked.places == [place.clone()]).count();
                assert_eq!(waits, 0, "RELEASE of {place:?} does not pass on to {next:?}");
            }
        }
    }

    /// When he came at the earliest and at the latest who is surely first in line for a key, wants no others, and can
    /// have it.
    fn next_alone(&self, site: usize, place: &Place, left: &Raw, wall: u64) -> Option<(u64, u64)> {
        let monotonic = Site::monotonic(self.now);
        let waiting = self.courts[site]
            .line
            .iter()
            .filter(|stand| stand.waits && stand.shares_key_with(std::slice::from_ref(place)));
        let first = waiting.clone().min_by_key(|stand| stand.latest)?;
        let is_sure = waiting.clone().all(|stand| std::ptr::eq(stand, first) || stand.earliest > first.latest);
        let fits = first.asked.places.len() == 1 && left.admits(first.asked.share.most(), wall);
        let holds = left.is_held_by(first.asked.id, wall);
        let is_told = first.asked.notify.is_none() || monotonic >= self.courts[site].no_memory_until;
        (is_sure && fits && is_told && !holds && !self.is_unsure(site, std::slice::from_ref(place)))
            .then_some((first.earliest, first.latest))
    }

    fn may_hand_off(&self, site: usize) -> bool {
        let now = self.now_at(site);
        let court = &self.courts[site];
        now.monotonic >= court.all_excused && now.longest_lease.is_none()
    }

    pub(super) fn release_all(&mut self, grant: Number, more: Option<Number>) {
        let Some(mut known) = self.known_grant(grant) else { return };
        Self::add(&mut known.places, more);
        let site = known.site;
        if self.is_lost(site, &known.places) {
            return;
        }
        let held = known.places.iter().filter(|place| self.raw(site, place).holder(known.token).is_some()).count();
        let names: Vec<&[u8]> = known.places.iter().map(|place| &place.1[..]).collect();
        let token = Token::new(known.token).unwrap();
        let released = self.sites[site].node.command(0, |entry| entry.release_all(&names, token)).unwrap();
        self.spans.ended(known.token);
        let ended = known.places.iter().map(|place| (known.token, place.clone())).collect();
        let cause = Cause { ended, ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::all_is_told(&writes);
        assert_eq!(released, held, "MRELEASE of {} in {:?}", known.token, known.places);
        let wall = self.now_at(site).wall;
        let is_held =
            |place: &&Place| self.raw(site, place).holder(known.token).is_some_and(|holder| holder.timestamp > wall);
        let left = known.places.iter().find(is_held);
        assert_eq!(left, None, "{} is released", known.token);
    }

    pub(super) fn check(&mut self, grant: Number) {
        let Some(known) = self.known_grant(grant) else { return };
        let (site, now) = (known.site, self.now_at(known.site));
        let token = Token::new(known.token).unwrap();
        for place in &known.places {
            let raw = self.raw(site, place);
            let was_never_claimed = self.courts[site].was_never_claimed(known.token, place, &raw);
            let end = raw.holder(known.token).map_or(0, |holder| holder.timestamp);
            let end = if was_never_claimed == Some(true) { 0 } else { end };
            let left = self.sites[site].node.command(0, |entry| entry.check(&place.1, token)).unwrap();
            let is_open = was_never_claimed.is_none() && left.0 == 0;
            let is_right = is_open || left.0 == end.saturating_sub(now.wall + now.margin);
            assert!(is_right, "CHECK of {} in {place:?}: {left:?}", known.token);
        }
        self.after(site, &Cause::default());
    }

    pub(super) fn cancel(&mut self, key: Number, id: Number) {
        let (place, id) = (place(key), 1 + u64::from(id % IDS));
        let site = self.newest();
        if !self.takes_writes(site) || self.is_lost(site, std::slice::from_ref(&place)) {
            return;
        }
        let (before, now) = (self.raw(site, &place), self.now_at(site));
        // Two of them only after the clock was set back: then one of them ends.
        let own = before.holders().iter().filter(|holder| holder.id == Some(id) && holder.timestamp > now.wall);
        let own: Vec<u64> = own.map(|holder| holder.token).collect();
        let court = &self.courts[site];
        let stood = court.stands(&place, id).map(|stand| (stand.waits, stand.until));
        let is_own = |own: &&Unclaimed| own.stand.asked.id == Some(id) && own.stand.asked.places.contains(&place);
        let stood = court.unclaimed.iter().find(is_own).map(|own| (true, own.deadline)).or(stood);
        let was_there = self.sites[site].node.command(0, |entry| entry.cancel(&place.1, id_of(id))).unwrap();
        for own in &own {
            self.spans.ended(*own);
        }
        let ended = own.iter().map(|own| (*own, place.clone())).collect();
        let cause = Cause { ended, cancels: Some(id), at: Some(place.clone()), ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::all_is_told(&writes);
        self.courts[site].cancelled(&place, id, &cause.ended, now);
        if !own.is_empty() {
            assert!(was_there, "CANCEL of {id}, which holds {place:?}");
        } else if let Some((true, _)) = stood {
            assert!(was_there, "CANCEL of {id}, which waits for {place:?}");
        } else if stood.is_none() {
            assert!(!was_there, "CANCEL of {id}, which neither holds {place:?} nor waits for it");
        }
        if was_there && own.len() < 2 {
            let holds = self.raw(site, &place).is_held_by(Some(id), now.wall);
            let waits = self.courts[site].stands(&place, id).is_some();
            assert!(!holds && !waits, "{id} is cancelled");
        }
    }
}
