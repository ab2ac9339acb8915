//! Waiting for a lock, from the side of the commands: joining the queue, leaving it, passing on.

use super::blocked::{self, Answer, Grant, Lost};
use super::context::{Arg, Context};
use super::grant::{Plan, Taken};
use super::key::Key;
use super::state::{self, State};
use super::stats::{self, Counter};
use super::{clock, events, failover, session, settings, timer};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::queue::{LineId, Waiter};
use crate::lock::record::{Encoded, Id, Owner};
use crate::lock::rules::{self, Request, State as LockState};
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

/// When a lock that was refused comes free by itself, as far as the key tells.
#[must_use]
pub fn due(state: LockState<'_>, key: &Key<'_>, now: UnixMicros) -> Option<UnixMicros> {
    match state {
        LockState::Held(until, _) => Some(until),
        // A key is expired when the clock is past its expiry: one millisecond later.
        LockState::Foreign => key.expires_in_ms().map(|ms| now.after(Micros::from_ms(ms.saturating_add(1)))),
        // It is free already, but others come first.
        LockState::Free | LockState::Expired(..) => Some(now),
    }
}

/// A caller did not get the lock: it joins the queue if it wants to and may, else it keeps a place
/// if it has an ID. Whether it waits; if not it has to be answered.
///
/// # Errors
/// [`Error::BusyLocks`], [`Error::Deadlock`]
pub fn refused(context: &Context, name: Arg<'_>, wish: &Wish<'_>, due: Option<UnixMicros>) -> Result<bool, Error> {
    let db = context.selected_db();
    if wish.wait == Micros(0) || !blocked::may_block(context) {
        keep_place(context, db, name.as_bytes(), wish.request.id)?;
        return Ok(false);
    }
    let full = state::with(|state| state.queues.waiters() >= settings::max_waiters())?;
    if full && !is_waiting(db, name, wish.request.id)? {
        return Err(Error::BusyLocks);
    }
    if session::closes_circle(context, db, name)? {
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
        lease: wish.request.lease,
        id: wish.request.id,
        owner: wish.request.owner.map(Owner::to_boxed),
        details: wish.details,
        session: wish.session,
        since,
        until: since.after(wish.wait),
    };
    let earlier = state::with(|state| {
        let joined = state.queues.join(db, name.as_bytes(), waiter);
        state.queues.set_due(joined.line, due);
        if joined.resumed {
            state.stats.add(Counter::PlacesResumed);
        }
        joined.earlier
    })?;
    if let Some(earlier) = earlier {
        earlier.handle.answer(Answer::Failed(Error::Replaced));
    }
    schedule(context);
    Ok(true)
}

/// Whether the attempt waits already, so that it does not add to the waiters.
fn is_waiting(db: i32, name: Arg<'_>, id: Option<Id>) -> Result<bool, Error> {
    state::with(|state| id.is_some_and(|id| state.queues.is_waiting(db, name.as_bytes(), id)))
}

/// An attempt that was refused and does not wait has a place in line for a while.
fn keep_place(context: &Context, db: i32, name: &[u8], id: Option<Id>) -> Result<(), Error> {
    // The clock is not read for nothing: most refusals are of attempts without an ID.
    let Some(id) = id else { return Ok(()) };
    let Some(until) = kept_until() else { return Ok(()) };
    let earlier = state::with(|state| state.queues.keep_place(db, name, id, until, settings::max_waiters()))?;
    if let Some(earlier) = earlier {
        earlier.handle.answer(Answer::Failed(Error::Replaced));
    }
    schedule(context);
    Ok(())
}

/// Until when a place is kept from now on; not at all if the setting is 0.
#[must_use]
pub fn kept_until() -> Option<MonotonicMicros> {
    let place = settings::place();
    (place > Micros(0)).then(|| clock::monotonic().after(place))
}

/// An attempt got the lock without waiting: it ends with its connection or with none, it stands in
/// line no longer, and a grant of its that seemed lost is not.
///
/// # Errors
/// [`Error::Internal`]
pub fn got(context: &Context, name: Arg<'_>, id: Option<Id>, taken: &mut Taken, session: bool) -> Result<(), Error> {
    if session {
        session::bind(context.selected_db(), name.as_bytes(), blocked::client(context), taken)?;
    } else {
        session::released(context, name);
    }
    session::renewed(context, name);
    let Some(id) = id else { return Ok(()) };
    let token = taken.token;
    let earlier = state::with(|state| {
        state.on_their_way.remove(&token);
        state.lost.retain(|lost| lost.token != token || *lost.name != *name.as_bytes());
        state.remember_or_recall(name.as_bytes(), taken);
        if state.queues.is_empty() {
            return None;
        }
        state.queues.forget(context.selected_db(), name.as_bytes(), id).and_then(|(_, waiter)| waiter)
    })?;
    if let Some(earlier) = earlier {
        earlier.handle.answer(Answer::Failed(Error::Replaced));
    }
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

/// The holder of `token` gave the lock back: it goes to the first who waits, in one change of the
/// key; with nobody there the key is deleted.
///
/// # Errors
/// [`Error::Internal`]
pub fn pass_on(context: &Context, key: Key<'_>, token: Token, now: UnixMicros) -> Result<(), Error> {
    let db = context.selected_db();
    let name = key.name();
    let may_grant = failover::may_grant(context).is_ok();
    end_leases_beyond_grace(context, db, name.as_bytes());
    let next = state::with(|State { queues, tokens, stats, .. }| {
        // A token is the time of its grant.
        stats.holds.record(now.since(UnixMicros(token.get())));
        if !may_grant || broken::is(Mutant::NoHandOff) {
            return None;
        }
        let line = queues.waited_line(db, name.as_bytes())?;
        let request = queues.head(line)?.request();
        let decision = rules::pass_on(token, &request, settings::terms(), tokens, now).ok()?;
        Some((line, Plan::of(&decision).as_hand_off()))
    })?;
    match next {
        None => key.delete(),
        Some((line, plan)) => {
            let taken = plan.carry_out(key)?;
            answer_head(line, taken)
        }
    }
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

/// The first in a line got the lock: it waits no longer and is told.
///
/// # Errors
/// [`Error::Internal`]
pub(super) fn answer_head(line: LineId, taken: Option<Taken>) -> Result<(), Error> {
    let Some(mut taken) = taken else { return Ok(()) };
    let head = state::with(|state| {
        let (db, name) = state.queues.key(line)?;
        let (ticket, waiter) = state.queues.pop_head(line)?;
        state.on_their_way.insert(taken.token);
        state.stats.add(Counter::HandOffs);
        state.stats.waits.record(clock::monotonic().since(waiter.since));
        if waiter.id.is_some() {
            state.remember_or_recall(&name, &mut taken);
        }
        Some((db, name, ticket, waiter))
    })?;
    if broken::is(Mutant::Herd) {
        for waiter in state::with(|state| state.queues.dissolve(line))? {
            waiter.handle.answer(Answer::Nil(waiter.details));
        }
    }
    if let Some((db, name, ticket, Waiter { handle, client, details, session, id, .. })) = head {
        if session {
            session::bind(db, &name, client, &taken)?;
        }
        handle.answer(Answer::Granted(Grant { taken, details, db, name, id, ticket }));
    }
    Ok(())
}

/// A value of ours was written: when the lock comes free by itself, for those who wait, and whether
/// it still ends with a connection.
pub(super) fn written(context: &Context, name: Arg<'_>, value: &Encoded) {
    session::renewed(context, name);
    let news = state::with(|State { queues, sessions, latest, .. }| {
        *latest = value.timestamp().max(*latest);
        if queues.is_empty() && sessions.is_empty() {
            return false;
        }
        let (db, name) = (context.selected_db(), name.as_bytes());
        sessions.written(db, name, value.token(), value.timestamp());
        let line = queues.waited_line(db, name);
        if let Some(line) = line {
            queues.seen(line);
            queues.set_due(line, Some(value.timestamp()));
        }
        line.is_some()
    });
    if news == Ok(true) {
        schedule(context);
    }
}

/// A client that waited is gone, or was answered by the server: whether it had asked for details,
/// nothing when it did not wait.
pub(super) fn gone(context: &Context, client: u64) -> Option<bool> {
    if broken::is(Mutant::DeadWaiter) {
        return None;
    }
    let left = state::with(|state| state.queues.leave(client, kept_until(), settings::max_waiters())).ok().flatten();
    left.map(|Waiter { handle, details, .. }| {
        handle.release();
        schedule(context);
        details
    })
}

/// A grant has reached its client, or is no longer meant for it.
pub fn delivered(token: Token) {
    let _ = state::with(|state| state.on_their_way.remove(&token));
}

/// A grant did not reach its client: it passes on, and an attempt with an ID has its place again.
/// Not if that attempt has asked again meanwhile and was told of it, nor on a replica, where the
/// lease bounds it.
pub(super) fn undelivered(context: &Context, grant: Grant) {
    let Grant { taken, db, name, id, ticket, .. } = grant;
    let is_replica = context.is_replica();
    let _ = state::with(|state| {
        if !state.on_their_way.remove(&taken.token) || is_replica || broken::is(Mutant::LostGrant) {
            return;
        }
        if let (Some(id), Some(until)) = (id, kept_until()) {
            state.queues.restore_place(db, &name, id, ticket, until);
        }
        state.stats.add(Counter::Undelivered);
        state.lost.push_back(Lost { db, name, token: taken.token, succeeds: taken.succeeds });
    });
    schedule(context);
}

/// Sets the timer to what comes next.
pub(super) fn schedule(context: &Context) {
    let next = state::with(|state| {
        if state.has_work() {
            return Some(Micros(0));
        }
        let (now, wall) = (clock::monotonic(), clock::now());
        let end = state.queues.next_end().map(|end| end.since(now));
        let due = state.queues.next_due().map(|due| due.since(wall));
        end.into_iter().chain(due).min()
    });
    if let Ok(Some(delay)) = next {
        timer::arm(context, delay);
    }
}
