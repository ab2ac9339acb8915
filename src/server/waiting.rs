//! Waiting for a lock, from the side of the commands: joining the queue, leaving it, passing on.

use super::blocked::{self, Answer, Grant, Lost};
use super::context::{Arg, Context};
use super::grant::{Plan, Taken};
use super::key::Key;
use super::state::{self, State};
use super::stats::{self, Counter};
use super::{clock, deadlock, events, failover, session, settings};
use crate::broken::{self, Mutant};
use crate::engine::queue::{LineId, MostPlaces, Ticket, Waiter};
use crate::lock::error::Error;
use crate::lock::record::{Encoded, Id, Owner};
use crate::lock::rules::{self, Acquire, Request, Share, State as LockState};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Token;

/// Who wants to wait, and for how long.
pub struct Wish<'a> {
    /// What it asks for.
    pub request: Request<'a>,
    /// For how long; zero: it does not wait.
    pub wait: Micros,
    /// Whether the answer tells of the predecessor.
    pub details: bool,
    /// Whether the grant ends with the connection.
    pub session: bool,
}

/// The keys that a caller asked for, and the one among them that it cannot have.
pub struct Asked<'a> {
    /// All of them.
    pub names: &'a [Arg<'a>],
    /// Which one.
    pub at: usize,
    /// When its lock comes free for the caller by itself, as far as is known.
    pub due: Option<UnixMicros>,
    /// When its last holder ends.
    pub last_end: Option<UnixMicros>,
}

impl<'a> Asked<'a> {
    /// The one with that number is in that state.
    #[must_use]
    pub fn of(names: &'a [Arg<'a>], at: usize, state: LockState<'_>, share: Share, key: &Key<'_>) -> Self {
        Self { names, at, due: due(state, share, key), last_end: state.last_end() }
    }

    fn bytes(&self) -> Vec<&'a [u8]> {
        self.names.iter().map(|name| name.as_bytes()).collect()
    }
}

/// When a lock that was refused comes free by itself, as far as the key tells.
#[must_use]
pub fn due(state: LockState<'_>, share: Share, key: &Key<'_>) -> Option<UnixMicros> {
    match state {
        // A key is expired when the clock is past its expiry: one millisecond later.
        LockState::Foreign => key.expires_in_ms().map(|ms| key.now().after(Micros::from_ms(ms.saturating_add(1)))),
        // It is free already, but others come first.
        state => Some(state.free_at(share).unwrap_or_else(|| key.now())),
    }
}

/// A caller did not get the lock, or the locks: it waits if it wants to and may, else it is answered at once;
/// with `too_early`, if it would have got it but that nobody is granted locks now.
///
/// # Errors
/// [`Error::BusyLocks`], [`Error::BusyId`], [`Error::Deadlock`], and what it is too early for.
pub fn refused(context: &Context, asked: &Asked<'_>, wish: &Wish<'_>, too_early: Option<Error>) -> Result<(), Error> {
    match too_early {
        Some(Error::NoReplicas) => Err(Error::NoReplicas),
        _ if joins(context, asked, wish)? => Ok(()),
        Some(error) => Err(error),
        None => {
            context.reply_not_granted(wish.details);
            Ok(())
        }
    }
}

/// Who was refused joins the queue if it wants to and may, else it keeps a place if it has an ID. Whether it
/// waits.
fn joins(context: &Context, asked: &Asked<'_>, wish: &Wish<'_>) -> Result<bool, Error> {
    let db = context.selected_db();
    if wish.wait == Micros(0) || !blocked::may_block(context) {
        keep_place(db, asked, wish.request.id)?;
        return Ok(false);
    }
    let names = asked.bytes();
    let busy = state::with(|state| {
        let takes_id = names.len() == 1 || wish.request.id.is_none_or(|id| state.queues.takes_id(db, id));
        let is_full = state.queues.waiters() >= settings::max_waiters();
        if is_full {
            Some(Error::BusyLocks)
        } else {
            (!takes_id).then_some(Error::BusyId)
        }
    })?;
    if let Some(error) = busy {
        if !is_waiting(db, &names, wish.request.id)? {
            return Err(error);
        }
    }
    if deadlock::closes_circle(context, db, &names, &wish.request)? {
        stats::add(Counter::Deadlocks);
        return Err(Error::Deadlock);
    }
    events::listen(context);
    let Some(handle) = blocked::block(context) else {
        return Ok(false);
    };
    let since = clock::monotonic();
    let waiter = Waiter {
        handle,
        client: blocked::client(context),
        share: wish.request.share,
        lease: wish.request.lease,
        id: wish.request.id,
        owner: wish.request.owner.map(Owner::to_boxed),
        details: wish.details,
        session: wish.session,
        since,
        until: since.after(wish.wait),
    };
    let earlier = state::with(|state| {
        let at = if broken::is(Mutant::FirstKeyOnly) { 0 } else { asked.at };
        let joined = state.queues.join(db, &names, at, waiter);
        if let Some(line) = joined.line {
            state.queues.set_last_end(line, asked.last_end);
            // Others in the line may allow more holders: it may come free for them earlier.
            if let Some(due) = asked.due {
                state.queues.set_due_by(line, due);
            }
        }
        if joined.resumed {
            state.stats.add(Counter::PlacesResumed);
        }
        joined.earlier
    })?;
    replaced(earlier);
    Ok(true)
}

/// Those who waited with the ID of a newer call wait no longer.
fn replaced(earlier: Vec<blocked::Waiting>) {
    for earlier in earlier {
        earlier.handle.answer(Answer::Failed(Error::Replaced));
    }
}

/// Whether the attempt waits already, so that it does not add to the waiters.
fn is_waiting(db: i32, names: &[&[u8]], id: Option<Id>) -> Result<bool, Error> {
    let Some(id) = id else { return Ok(false) };
    state::with(|state| state.queues.is_waiting_for_any(db, names, id))
}

/// An attempt that was refused and does not wait has a place in line for a while.
fn keep_place(db: i32, asked: &Asked<'_>, id: Option<Id>) -> Result<(), Error> {
    // The clock is not read for nothing: most refusals are of attempts without an ID.
    let Some(id) = id else { return Ok(()) };
    let Some(until) = kept_until() else { return Ok(()) };
    replaced(state::with(|state| state.queues.keep_place(db, &asked.bytes(), id, until, most_places()))?);
    Ok(())
}

/// What reserved places may take in all.
#[must_use]
pub fn most_places() -> MostPlaces {
    /// Of names of several keys.
    const BYTES: usize = 64 << 20;
    MostPlaces { keys: settings::max_waiters(), bytes: BYTES }
}

/// Until when a place is kept from now on; not at all if the setting is 0.
#[must_use]
pub fn kept_until() -> Option<MonotonicMicros> {
    let place = settings::place();
    (place > Micros(0)).then(|| clock::monotonic().after(place))
}

/// An attempt got the lock without waiting: it ends with its connection or with none, it stands in
/// line no longer, and a grant of its that seemed lost is not. `lock` is the number of the lock in the grant.
///
/// # Errors
/// [`Error::Internal`]
pub fn got(
    context: &Context,
    (lock, name): (usize, Arg<'_>),
    id: Option<Id>,
    taken: &mut Taken,
    session: bool,
) -> Result<(), Error> {
    if session {
        session::bind(context.selected_db(), name.as_bytes(), blocked::client(context), taken)?;
    } else {
        session::released(context, name, Some(taken.token));
    }
    session::renewed(context, name, taken.token);
    if id.is_none() {
        return Ok(());
    }
    let token = taken.token;
    state::with(|state| {
        state.on_their_way.remove(&token);
        state.lost.retain(|lost| lost.token != token || *lost.name != *name.as_bytes());
        state.remember_or_recall(name.as_bytes(), lock, taken);
    })
}

/// An attempt got its locks without waiting: it stands in line for none of them any longer.
///
/// # Errors
/// [`Error::Internal`]
pub fn stands_no_longer(context: &Context, names: &[Arg<'_>], id: Option<Id>) -> Result<(), Error> {
    let Some(id) = id else { return Ok(()) };
    replaced(state::with(|state| {
        if state.queues.is_empty() {
            return Vec::new();
        }
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        state.queues.forget_all(context.selected_db(), &names, id)
    })?);
    Ok(())
}

/// LOCK.CANCEL: an attempt no longer stands in line; whether it did.
///
/// # Errors
/// [`Error::Internal`]
pub fn cancel(context: &Context, name: Arg<'_>, id: Id) -> Result<bool, Error> {
    let found = state::with(|state| state.queues.forget(context.selected_db(), name.as_bytes(), id))?;
    let stood = found.is_some();
    if let Some((_, Some(waiter))) = found {
        let details = waiter.details;
        waiter.handle.answer(Answer::Nil(details));
    }
    Ok(stood)
}

/// Whether a release of a lock changes more than its key: others hold it too, or somebody waits.
///
/// # Errors
/// [`Error::Internal`]
pub fn is_awaited(context: &Context, key: &Key<'_>) -> Result<bool, Error> {
    let awaits = |state: &mut State| {
        !state.queues.is_empty() && state.queues.waited_line(context.selected_db(), key.name().as_bytes()).is_some()
    };
    Ok(key.has_several() || state::with(awaits)?)
}

/// Whether somebody who wants other locks besides stands in the line of one of these keys.
///
/// # Errors
/// [`Error::Internal`]
pub fn has_parked(context: &Context, names: &[Arg<'_>]) -> Result<bool, Error> {
    let db = context.selected_db();
    state::with(|state| names.iter().any(|name| state.queues.has_parked(db, name.as_bytes())))
}

/// A lock is given back: a token is the time of its grant.
pub fn given_back(state: &mut State, token: Token, now: UnixMicros) {
    state.stats.holds.record(now.since(UnixMicros(token.get())));
    state.tokens.given_back(now, token);
}

/// The holder of `token` gave the lock back: it goes to the first who waits, in one change of the
/// key; with nobody there who may have it, or without `hands_off`, the grant is taken out of the key. The line, if
/// it may have come free for those in it who want other locks besides: for [`super::parked::pass_on`], when the
/// caller has released all.
///
/// # Errors
/// [`Error::Internal`]
pub fn pass_on(context: &Context, mut key: Key<'_>, token: Token, hands_off: bool) -> Result<Option<LineId>, Error> {
    let db = context.selected_db();
    let (name, now) = (key.name(), key.now());
    let may_grant = failover::may_grant(context).is_ok();
    end_leases_beyond_grace(context, db, name.as_bytes());
    let is_several = key.end(token);
    let (next, line) = state::with(|state| {
        given_back(state, token, now);
        let State { queues, tokens, .. } = state;
        let line = if queues.is_empty() { None } else { queues.waited_line(db, name.as_bytes()) };
        let head = line
            .filter(|_| hands_off && may_grant && !broken::is(Mutant::NoHandOff))
            .and_then(|line| queues.single_head(line));
        let next = head.and_then(|(ticket, head)| {
            let (request, terms) = (head.request(), settings::terms());
            let decision = if is_several {
                rules::acquire(key.state(), &request, false, terms, tokens, now)
            } else {
                rules::pass_on(token, &request, terms, tokens, now)
            };
            let decision = decision.ok().filter(|decision| *decision != Acquire::Refuse)?;
            Some((ticket, Plan::of(&decision).as_hand_off()))
        });
        (next, line)
    })?;
    if let Some((ticket, plan)) = next {
        let taken = plan.carry_out(key)?;
        answer(ticket, taken)?;
        return Ok(None);
    }
    let is_free = key.state().is_nobodys() || !is_several;
    key.release()?;
    let Some(line) = line else { return Ok(None) };
    state::with(|state| {
        if may_grant && is_free && !broken::is(Mutant::NoHandOff) {
            return Some(line);
        }
        state.queues.set_ready(line);
        None
    })
}

/// Ends waits at the head of a line for leases that the grace does not cover: it was set since.
pub(super) fn end_leases_beyond_grace(context: &Context, db: i32, name: &[u8]) {
    let settings = state::grace_settings(context);
    if settings.longest_lease().is_none() {
        return;
    }
    while let Ok(Some((waiter, error))) = state::with(|State { queues, .. }| {
        let line = queues.waited_line(db, name)?;
        let error = settings.check(queues.head(line)?.lease).err()?;
        queues.pop_head(line).map(|(_, waiter)| (waiter, error))
    }) {
        waiter.handle.answer(Answer::Failed(error));
    }
}

/// One who waited got the lock, or all of its locks: it waits no longer and is told.
///
/// # Errors
/// [`Error::Internal`]
pub(super) fn answer(ticket: Ticket, taken: Option<Taken>) -> Result<(), Error> {
    let Some(mut taken) = taken else { return Ok(()) };
    let head = state::with(|state| {
        let (db, keys) = state.queues.keys(ticket)?;
        let waiter = state.queues.serve(ticket)?;
        state.on_their_way.insert(taken.token);
        state.stats.add(Counter::HandOffs);
        state.stats.waits.record(clock::monotonic().since(waiter.since));
        if waiter.id.is_some() {
            keys.iter().enumerate().for_each(|(at, name)| state.remember_or_recall(name, at, &mut taken));
        }
        Some((db, keys, waiter))
    })?;
    if broken::is(Mutant::Herd) {
        for (db, name) in head.iter().flat_map(|(db, keys, _)| keys.iter().map(|name| (*db, name))) {
            let line = state::with(|state| state.queues.waited_line(db, name))?;
            for waiter in
                line.map(|line| state::with(|state| state.queues.dissolve(line))).transpose()?.unwrap_or_default()
            {
                waiter.handle.answer(Answer::Nil(waiter.details));
            }
        }
    }
    if let Some((db, keys, Waiter { handle, client, details, session, id, .. })) = head {
        if session {
            for name in keys.iter() {
                session::bind(db, name, client, &taken)?;
            }
        }
        handle.answer(Answer::Granted(Grant { taken, details, db, keys, id, ticket }));
    }
    Ok(())
}

/// A value of ours was written: when the lock comes free by itself, for those who wait, and whether
/// it still ends with a connection.
pub(super) fn written(context: &Context, name: Arg<'_>, value: &Encoded, is_among: bool) {
    let (token, until) = (value.token(), value.timestamp());
    session::renewed(context, name, token);
    let _ = state::with(|State { queues, sessions, latest, .. }| {
        *latest = until.max(*latest);
        if queues.is_empty() && sessions.is_empty() {
            return;
        }
        let (db, name) = (context.selected_db(), name.as_bytes());
        sessions.written(db, name, token, until);
        if !is_among {
            sessions.unbind_others(db, name, Some(token));
        }
        if let Some(line) = queues.waited_line(db, name) {
            queues.seen(line);
            if is_among {
                // With several holders it may come free earlier, or later; a look at it tells.
                queues.set_due_by(line, until);
                queues.set_last_end_after(line, until);
            } else {
                queues.set_due(line, Some(until));
                queues.set_last_end(line, Some(until));
            }
        }
    });
}

/// A client that waited is gone, or was answered by the server: whether it had asked for details,
/// nothing when it did not wait.
pub(super) fn gone(client: u64) -> Option<bool> {
    if broken::is(Mutant::DeadWaiter) {
        return None;
    }
    let left = state::with(|state| state.queues.leave(client, kept_until(), most_places())).ok().flatten();
    left.map(|Waiter { handle, details, .. }| {
        handle.release();
        details
    })
}

/// Ends the wait of a client, which keeps no place.
pub(super) fn end(client: u64, answer: Answer) {
    let left = state::with(|state| state.queues.leave(client, None, most_places())).ok().flatten();
    if let Some(waiter) = left {
        waiter.handle.answer(answer);
    }
}

/// A grant has reached its client, or is no longer meant for it.
pub fn delivered(token: Token) {
    let _ = state::with(|state| state.on_their_way.remove(&token));
}

/// A grant did not reach its client: it passes on, and an attempt with an ID has its place again.
/// Not if that attempt has asked again meanwhile and was told of it, nor on a replica, where the
/// lease bounds it.
pub(super) fn undelivered(context: &Context, grant: Grant) {
    let Grant { taken, db, keys, id, ticket, .. } = grant;
    let is_replica = context.is_replica();
    let _ = state::with(|state| {
        if !state.on_their_way.remove(&taken.token) || is_replica || broken::is(Mutant::LostGrant) {
            return;
        }
        if let (Some(id), Some(until)) = (id, kept_until()) {
            let names: Vec<&[u8]> = keys.iter().collect();
            state.queues.restore_place(db, &names, id, ticket, until, most_places());
        }
        state.stats.add(Counter::Undelivered);
        // Of several locks, each passes on by itself.
        state.lost.extend(keys.iter().enumerate().map(|(at, name)| {
            let (name, token, succeeds) = (name.into(), taken.token, taken.before(at).cloned());
            Lost { db, name, token, succeeds }
        }));
    });
}
