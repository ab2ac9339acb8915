//! LOCK.RELEASE, LOCK.MRELEASE and LOCK.CANCEL: a grant ends, and the lock passes to the next waiter.

use super::edge::{Access, Edge, Expected, Key, Permit, Span};
use super::entry::Entry;
use super::hand_off::held_for;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::queue::{Channel, Leaving, Of, QueueId};
use crate::engine::result::LockResult;
use crate::engine::{GivenUp, KeyName, Shape};
use crate::lock::error::Error;
use crate::lock::held::{self, Release};
use crate::lock::record::Id;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::rc::Rc;

impl<E: Edge> Entry<'_, E> {
    /// LOCK.RELEASE.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn release(&mut self, name: E::Name<'_>, token: Token) -> Result<Release, Error> {
        self.release_with(name, token, None)
    }

    /// LOCK.RELEASE with a result: if the lock is released in time, the attempts in its queue that want the result get
    /// it.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn release_with(&mut self, name: E::Name<'_>, token: Token, result: Option<&[u8]>) -> Result<Release, Error> {
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        let key = self.edge.open(name, Access::Caller, Expected::Grant(token), now)?;
        if result.is_some() && key.shape() == Shape::Several {
            return Err(Error::ResultOfSeveral);
        }
        let (release, is_overrun) = held::release_from(key.lock(), token, terms, now);
        if release != Release::Over {
            let key_name = self.known_name(name);
            // Checked before the grant ends.
            let is_overrun = is_overrun && self.counts_as_overrun(name, token);
            let mut budget = Budget::COMMAND;
            let result = result.filter(|_| release == Release::InTime);
            let result = result.and_then(|bytes| self.result_for(key_name, token, bytes));
            let leaving = result.as_ref().map_or(Leaving::Nobody, |(_, leaving)| *leaving);
            let queue = self.pass_on(key_name, key, token, Some(Of::Head(leaving)), &mut budget)?;
            if let Some((result, leaving)) = result {
                self.engine().share_result(key_name, result, leaving);
            }
            self.pass_on_parked(queue.as_slice(), &mut budget);
            self.count_overruns(usize::from(is_overrun));
        }
        self.engine().count_release(release);
        Ok(release)
    }

    /// The result for the attempts in a key's queue that want it, and which of them leave with it. A grant that nobody
    /// has claimed has no result.
    fn result_for(&mut self, key: KeyName<'_>, token: Token, bytes: &[u8]) -> Option<(Rc<LockResult>, Leaving)> {
        if self.engine().is_unclaimed(key, token) {
            return None;
        }
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let is_out_of_memory = self.edge.is_out_of_memory();
        self.engine().result_for(key, bytes, is_out_of_memory, limits, clock)
    }

    /// LOCK.MRELEASE. Returns how many locks were released.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed, unless the server refused a write. In that case, the locks
    /// already written are released and counted, and the rest are unchanged.
    pub fn release_all<'n>(&mut self, names: &[E::Name<'n>], token: Token) -> Result<usize, Error> {
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        // All keys are opened first, so that a key of another type is found before anything has changed.
        let open = |name: &E::Name<'n>| self.edge.open(*name, Access::Caller, Expected::Grant(token), now);
        let keys: Vec<E::Key<'n>> = names.iter().map(open).collect::<Result<_, _>>()?;
        // The keys that only have to be deleted (usually all), the indexes of the others, and the keys with waiters or
        // several holders. Each release is counted once it is written.
        let (mut gone, mut others, mut awaited) = (Vec::with_capacity(keys.len()), Vec::new(), Vec::new());
        let mut releases = Vec::with_capacity(keys.len());
        for (at, (name, key)) in names.iter().zip(&keys).enumerate() {
            let (release, is_overrun) = held::release_from(key.lock(), token, terms, now);
            let key_name = self.known_name(*name);
            let is_overrun = is_overrun && self.counts_as_overrun(*name, token);
            let mut engine = self.engine();
            if release == Release::Over {
                others.push(at);
            } else if key.shape() == Shape::Several
                || engine.awaited_queue(key_name).is_some()
                || engine.unclaimed_before(key_name, || key.lock(), token).is_some()
            {
                others.push(at);
                awaited.push((*name, (release, is_overrun)));
            } else {
                engine.given_back(token, now);
                gone.push(key_name);
                releases.push((release, is_overrun));
            }
        }
        let released = names.len().saturating_sub(others.len()).saturating_add(awaited.len());
        let gone_keys = if others.is_empty() {
            keys
        } else {
            let keys = keys.into_iter().enumerate();
            keys.filter(|(at, _)| others.binary_search(at).is_err()).map(|(_, key)| key).collect()
        };
        let deleted = if gone_keys.is_empty() { 0 } else { self.delete_all(token, &gone, gone_keys) };
        for released in releases.into_iter().take(deleted) {
            self.edge.record(Span::Hold, held_for(token, now));
            self.count_released(released);
        }
        if deleted < gone.len() {
            return Err(Error::Internal);
        }
        // When everything is released, the waiters are served in order of arrival, whatever queue they are in.
        let has_parked = awaited.iter().any(|(name, _)| {
            let key = self.edge.key_name(*name);
            self.engine().queues().has_parked(key)
        });
        let heirs = (!has_parked).then_some(Of::Head(Leaving::Nobody));
        // A module that receives one key's event may change others, so each remaining key is opened again.
        let (mut queues, mut budget) = (Vec::new(), Budget::COMMAND);
        let over = others.len().saturating_sub(awaited.len());
        let mut result = Ok(released);
        for (name, released) in awaited {
            match self.release_one_of(name, token, heirs, now, &mut budget) {
                Ok(queue) => queues.extend(queue),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            self.count_released(released);
        }
        // This happens after a refusal too, because these locks have become free.
        self.pass_on_parked(&queues, &mut budget);
        if result.is_ok() {
            (0..over).for_each(|_| self.engine().count_release(Release::Over));
        }
        result
    }

    fn release_one_of(
        &mut self,
        name: E::Name<'_>,
        token: Token,
        heirs: Option<Of>,
        now: UnixMicros,
        budget: &mut Budget,
    ) -> Result<Option<QueueId>, Error> {
        let key = self.edge.open(name, Access::Caller, Expected::Grant(token), now)?;
        if held::release(key.lock(), token) == Release::Over {
            return Ok(None);
        }
        let key_name = self.edge.key_name(name);
        self.pass_on(key_name, key, token, heirs, budget)
    }

    /// Counts a release, and whether its holder had overrun its lease.
    fn count_released(&mut self, (release, is_overrun): (Release, bool)) {
        self.count_overruns(usize::from(is_overrun));
        self.engine().count_release(release);
    }

    /// LOCK.CANCEL CHANNEL, for the ordinary and the sharded channel of this name. Returns how many attempts it ended.
    pub fn cancel_channel(&mut self, name: E::Name<'_>, channel: &[u8]) -> usize {
        let (key_name, limits, clock) = (self.edge.key_name(name), self.edge.limits(), self.edge.clock());
        let (mut ended, mut all_given_up) = (0_usize, Vec::new());
        for is_sharded in [false, true] {
            let channel = Rc::new(Channel { name: channel.into(), is_sharded });
            let (number, given_up) = self.engine().cancel_channel(key_name, &channel, limits, clock);
            ended = ended.saturating_add(number);
            all_given_up.extend(given_up);
        }
        // This waits until all of them have ended, because the next in the queue may be one of them.
        self.pass_on_given_up(all_given_up);
        ended
    }

    /// LOCK.CANCEL. Returns whether the attempt was waiting, had a place or held the lock.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn cancel(&mut self, name: E::Name<'_>, id: Id) -> Result<bool, Error> {
        let now = self.edge.command_time();
        let key_name = self.edge.key_name(name);
        self.deliver_result_to(name, id);
        let unclaimed = self.engine().unclaimed_by(key_name, id);
        let expected = unclaimed.as_ref().map_or(Expected::Attempt(Some(id)), |(_, token, _)| Expected::Grant(*token));
        let key = self.edge.open(name, Access::Caller, expected, now)?;
        // The part that can fail comes first: the attempt's grant of this key ends and is passed on to another attempt.
        let ends = match &unclaimed {
            Some((_, token, written)) => {
                Some(*token).filter(|token| held::is_unchanged(key.lock(), &written.record(*token)))
            }
            None => held::held_by(key.lock(), id),
        };
        let mut budget = Budget::COMMAND;
        let queue = if let Some(token) = ends {
            if let Some((ticket, ..)) = unclaimed {
                // The end is announced before what follows from it.
                self.edge.check_writable(Permit::COMMAND, &key)?;
                self.engine().announce_end(ticket);
                self.publish_notices();
            }
            let own = self.engine().queues().ticket(key_name, id);
            self.pass_on(key_name, key, token, Some(Of::Head(own.map_or(Leaving::Nobody, Leaving::One))), &mut budget)?
        } else {
            drop(key);
            None
        };
        let has_ended = ends.is_some();
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let takes_room = self.edge.is_nearly_out_of_memory() && !(has_ended && unclaimed.is_some());
        let (was_there, given_up) = self.engine().cancel(key_name, id, takes_room, limits, clock);
        let mut was_there = was_there || has_ended;
        self.pass_on_parked(queue.as_slice(), &mut budget);
        // The other keys of an unclaimed grant.
        self.pass_on_given_up(given_up);
        if unclaimed.is_some() {
            // RENAME or COPY may have brought a grant with the same ID here from another key.
            let key = self.edge.open(name, Access::Caller, Expected::Attempt(Some(id)), now)?;
            if let Some(token) = held::held_by(key.lock(), id) {
                was_there = true;
                let queue = self.pass_on(key_name, key, token, Some(Of::Head(Leaving::Nobody)), &mut budget)?;
                self.pass_on_parked(queue.as_slice(), &mut budget);
            }
        }
        if was_there {
            self.engine().count(Counter::Cancels);
        }
        Ok(was_there)
    }

    /// Passes on grants that a command ended before anybody had claimed them. A grant that cannot be passed on now is
    /// passed on soon.
    pub(super) fn pass_on_given_up(&mut self, given_up: impl IntoIterator<Item = GivenUp>) {
        let (now, mut budget) = (self.edge.command_time(), Budget::COMMAND);
        // The end is announced before what follows from it.
        self.publish_notices();
        for GivenUp { db, keys, token, .. } in given_up {
            for name in keys.iter() {
                if !budget.is_left(self.edge.clock()) {
                    return;
                }
                budget.spend_names(1, name.len());
                let key_name = KeyName { db, name };
                let Some(name) = self.edge.name(key_name) else { continue };
                let opened = self.edge.open(E::lend(&name), Access::Caller, Expected::Grant(token), now);
                let Ok(key) = opened else { continue };
                let is_given_up = self.engine().given_up(key_name, || key.lock(), token).is_some();
                if is_given_up {
                    if let Ok(queue) = self.pass_on(key_name, key, token, Some(Of::Head(Leaving::Nobody)), &mut budget)
                    {
                        self.pass_on_parked(queue.as_slice(), &mut budget);
                    }
                }
            }
        }
    }
}
