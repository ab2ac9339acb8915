//! What the module does outside of commands: ends waits, and gives locks that came free by
//! themselves, or by others, to the first who waits.
//!
//! The server's rules for writing outside of a command are kept here: never as a replica, while
//! loading, while paused or failing over, or short of good replicas; never in a slot that is not
//! ours. What cannot be done now stays to be done. A turn does a bounded amount of work.

use super::api::api;
use super::blocked::{Answer, Lost};
use super::closed::{is_served_here, WriteRefused};
use super::context::{Context, OwnString};
use super::grant::{Plan, Taken};
use super::key::Key;
use super::state::{self, State};
use super::stats::{self, Counter};
use super::{clock, failover, session, settings, timer, waiting};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::queue::{LineId, Ticket};
use crate::lock::rules::{self, Acquire, Holds, Share, State as LockState};
use crate::lock::time::Micros;
use redis_module::raw;

/// How many waits end, grants pass on and lines are looked at in one turn of the server's loop.
const PER_TURN: usize = 128;
/// After so long a turn ends too: a piece can be a set of holders that has to be read as a whole.
const TURN: Micros = Micros(2_000);
/// When to try again what the server does not allow now.
const RETRY: Micros = Micros(20_000);

/// One turn: called by the timer.
pub fn turn(context: &Context) {
    let waits_left = end_waits();
    let _ = state::with(|state| state.queues.set_due_ready(clock::now()));
    if !state::with(|state| state.has_work()).unwrap_or(false) {
        if waits_left {
            timer::arm(context, Micros(0));
        }
    } else if may_write(context) {
        let begun = clock::monotonic();
        for _ in 0..PER_TURN {
            if clock::monotonic().since(begun) >= TURN {
                break;
            }
            match serve_one(context) {
                Served::One => {}
                Served::Nobody => break,
                Served::NotNow => {
                    timer::arm(context, RETRY);
                    return;
                }
            }
        }
    } else {
        end_lines_of_lost_slots(context);
        timer::arm(context, RETRY);
        return;
    }
    waiting::schedule(context);
}

/// Whether the server lets a module write now, outside of a command.
fn may_write(context: &Context) -> bool {
    let never = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_READONLY
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: takes nothing, tells whether clients are paused.
    let is_paused = unsafe { (api().avoid_replica_traffic)() } != 0 && !broken::is(Mutant::GrantInPause);
    !is_paused && !context.has_flags(never) && has_good_replicas(context) && failover::may_grant(context).is_ok()
}

/// Whether there are as many good replicas as `min-replicas-to-write` asks for.
fn has_good_replicas(context: &Context) -> bool {
    let wanted = state::min_replicas(context);
    if wanted == 0 || broken::is(Mutant::NoMinReplicas) {
        return true;
    }
    // The field is there only while the server obeys the setting.
    match context.server_info(c"replication", c"min_slaves_good_slaves") {
        Some(good) => good.trim().parse::<u64>().is_ok_and(|good| good >= wanted),
        None => true,
    }
}

/// Ends waits whose time is over; whether there are more.
fn end_waits() -> bool {
    let now = clock::monotonic();
    for _ in 0..PER_TURN {
        let over = state::with(|state| state.queues.time_out(now, waiting::kept_until(), settings::max_waiters()));
        match over {
            Ok(Some(waiter)) => {
                stats::add(Counter::TimeOuts);
                let details = waiter.details;
                waiter.handle.answer(Answer::Nil(details));
            }
            _ => return false,
        }
    }
    true
}

/// What came of one piece of work.
enum Served {
    One,
    Nobody,
    /// The server does not let it be done: it stays to be done.
    NotNow,
}

/// Passes one grant on that was lost, or looks at one line.
fn serve_one(context: &Context) -> Served {
    let lost = state::with(|state| state.lost.pop_front()).ok().flatten();
    if let Some(lost) = lost {
        let result = pass_on_lost(context, &lost);
        if result == Err(WriteRefused::ForNow) {
            let _ = state::with(|state| state.lost.push_back(lost));
            return Served::NotNow;
        }
        return Served::One;
    }
    let ended = state::with(|state| state.ended.pop_first()).ok().flatten();
    if let Some((lock, ended)) = ended {
        let result = session::end(context, &lock, &ended);
        if result == Err(WriteRefused::ForNow) {
            let _ = state::with(|state| state.ended.insert(lock, ended));
            return Served::NotNow;
        }
        return Served::One;
    }
    let Ok(Some((line, behind))) = state::with(|state| state.queues.take_ready()) else { return Served::Nobody };
    if look_at(context, line, behind) == Err(WriteRefused::ForNow) {
        let _ = state::with(|state| state.queues.set_ready(line));
        return Served::NotNow;
    }
    Served::One
}

/// Who may not be granted a lock now can be told all the same that its slot is not served here.
fn end_lines_of_lost_slots(context: &Context) {
    let not_here = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if !context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) || context.has_flags(not_here) {
        return;
    }
    let mut kept = Vec::new();
    for _ in 0..PER_TURN {
        let Ok(Some((line, _))) = state::with(|state| state.queues.take_ready()) else { break };
        let key = state::with(|state| state.queues.key(line)).ok().flatten();
        let name = key.and_then(|(db, bytes)| OwnString::in_db(context, db, &bytes));
        match name {
            Some(name) if !is_served_here(context, name.as_arg()) => end_line(line, Error::SlotLost),
            _ => kept.push(line),
        }
    }
    let _ = state::with(|state| {
        for line in kept {
            state.queues.set_ready(line);
        }
    });
}

/// Ends the wait of everybody in a line.
fn end_line(line: LineId, error: Error) {
    for waiter in state::with(|state| state.queues.dissolve(line)).unwrap_or_default() {
        waiter.handle.answer(Answer::Failed(error));
    }
}

/// Ends all waits and sessions: this server is a replica now.
pub fn end_all(error: Error) {
    let _ = state::with(|state| {
        state.lost.clear();
        state.ended.clear();
        state.sessions.clear();
        state.kept.clear();
    });
    for waiter in state::with(|state| state.queues.dissolve_all()).unwrap_or_default() {
        waiter.handle.answer(Answer::Failed(error));
    }
}

/// A grant that nobody received, if it still stands, goes to the next in line or is released.
fn pass_on_lost(context: &Context, lost: &Lost) -> Result<(), WriteRefused> {
    let Some(name) = OwnString::in_db(context, lost.db, &lost.name) else { return Ok(()) };
    let now = clock::now();
    let key = Key::open_read_only(context, name.as_arg(), now).and_then(|key| key.with_grant(lost.token));
    let Ok(mut key) = key else { return Ok(()) };
    if rules::release(key.state(), lost.token) == rules::Release::Over {
        return Ok(());
    }
    // As if the grant had never been: a predecessor that never released is still to be told of.
    let before = lost.succeeds.as_ref().map(|before| before.record(lost.token));
    waiting::end_leases_beyond_grace(context, lost.db, &lost.name);
    key.end(lost.token);
    if let Some(before) = before.filter(|_| key.has_holders()) {
        key.put_back(&before);
    }
    let next = state::with(|State { queues, tokens, .. }| {
        let line = queues.waited_line(lost.db, &lost.name)?;
        let (ticket, head) = queues.single_head(line)?;
        let (request, terms) = (head.request(), settings::terms());
        let decision = match before {
            _ if key.has_holders() => rules::acquire(key.state(), &request, false, terms, tokens, now),
            Some(record) => {
                let lock = LockState::Expired(record.timestamp, Some(record));
                rules::acquire(lock, &request, false, terms, tokens, now)
            }
            None => rules::pass_on(lost.token, &request, terms, tokens, now),
        };
        let decision = decision.ok().filter(|decision| *decision != Acquire::Refuse)?;
        Some((line, ticket, Plan::of(&decision)))
    });
    if let Ok(Some((line, ticket, plan))) = next {
        return give(key, line, ticket, plan);
    }
    match before {
        Some(record) => {
            let holds = if key.has_holders() { Holds::AsBefore } else { Holds::Alone };
            key.close().store(&record.encode(), holds, &[])
        }
        None => key.close().release(),
    }?;
    let _ = state::with(|state| {
        if let Some(line) = state.queues.waited_line(lost.db, &lost.name) {
            state.queues.set_ready(line);
        }
    });
    Ok(())
}

/// What a look at the next who waits in a line comes to.
#[allow(clippy::large_enum_variant, reason = "it lives as long as one look")]
enum Look {
    /// It gets the lock.
    Give(Ticket, Plan),
    /// It wants others besides, and this one could be had.
    TryAll(Ticket),
    /// Nobody else can have it now.
    Over,
}

/// Looks at the lock of a line for the first who waits behind a ticket. The others come after those of other
/// lines who came before them.
fn look_at(context: &Context, line: LineId, behind: Option<Ticket>) -> Result<(), WriteRefused> {
    let Ok(Some((db, bytes))) = state::with(|state| state.queues.key(line)) else { return Ok(()) };
    let Some(name) = OwnString::in_db(context, db, &bytes) else { return Ok(()) };
    waiting::end_leases_beyond_grace(context, db, &bytes);
    if !is_served_here(context, name.as_arg()) {
        end_line(line, Error::SlotLost);
        return Ok(());
    }
    // A value of another type is waited for as a foreign one is.
    let Ok(key) = Key::open_read_only(context, name.as_arg(), clock::now()) else { return Ok(()) };
    let behind = match state::with(|state| look(state, &key, line, behind)) {
        Ok(Look::Give(ticket, plan)) => {
            let is_last = plan.is_alone();
            give(key, line, ticket, plan)?;
            if is_last {
                return Ok(());
            }
            behind
        }
        Ok(Look::TryAll(ticket)) => {
            drop(key);
            if try_all(context, line, ticket)? {
                return Ok(());
            }
            Some(ticket)
        }
        Ok(Look::Over) | Err(_) => return Ok(()),
    };
    let _ = state::with(|state| state.queues.go_on(line, behind));
    Ok(())
}

fn look(state: &mut State, key: &Key<'_>, line: LineId, behind: Option<Ticket>) -> Look {
    let State { queues, tokens, .. } = state;
    let (lock, now) = (key.state(), key.now());
    let evicted_until = queues.evicted_until(line).filter(|until| *until > now);
    if lock == LockState::Free && evicted_until.is_some() {
        queues.set_due(line, evicted_until);
        return Look::Over;
    }
    let is_nobodys = lock.is_nobodys();
    queues.set_last_end(line, lock.last_end());
    if !is_nobodys {
        queues.seen(line);
    }
    let due = match queues.next(line, behind, !is_nobodys) {
        Some((ticket, _, true)) => return Look::TryAll(ticket),
        Some((ticket, waiter, false)) => {
            let request = waiter.request();
            let may_have_it = is_nobodys || matches!(lock, LockState::Several(_));
            let decision = rules::acquire(lock, &request, !may_have_it, settings::terms(), tokens, now);
            match decision {
                Ok(decision) if may_have_it && decision != Acquire::Refuse => {
                    return Look::Give(ticket, Plan::of(&decision));
                }
                _ if is_nobodys => None,
                _ => waiting::due(lock, request.share, key),
            }
        }
        // Those who are left want other locks besides, which are taken.
        None if is_nobodys => None,
        None => waiting::due(lock, Share::Alone, key),
    };
    queues.set_due(line, due);
    Look::Over
}

/// Tries to give one who waits for several locks all of them; whether it got them.
fn try_all(context: &Context, line: LineId, ticket: Ticket) -> Result<bool, WriteRefused> {
    let now = clock::now();
    let keys = state::with(|state| {
        let keys = state.queues.keys(ticket);
        keys.filter(|_| !state.queues.is_held_up(ticket, now))
    });
    let Ok(Some((db, names))) = keys else { return Ok(false) };
    if broken::is(Mutant::FirstKeyOnly) {
        let first = state::with(|state| names.as_slice().first().and_then(|name| state.queues.waited_line(db, name)));
        if first != Ok(Some(line)) {
            return Ok(false);
        }
    }
    let names: Option<Vec<OwnString>> =
        names.as_slice().iter().map(|name| OwnString::in_db(context, db, name)).collect();
    let Some(names) = names else { return Ok(false) };
    let open = |name| Key::open_read_only(context, name, now).ok().filter(|key| key.state().is_nobodys());
    let keys: Option<Vec<Key<'_>>> = names.iter().map(|name| open(name.as_arg())).collect();
    let Some(keys) = keys else { return Ok(false) };
    let grace = state::grace_settings(context);
    let plans = state::with(|State { queues, tokens, .. }| {
        let waiter = queues.waiter(ticket)?;
        grace.check(waiter.lease).ok()?;
        let states: Vec<LockState<'_>> = keys.iter().map(Key::state).collect();
        let decisions =
            rules::acquire_all(&states, &waiter.request(), false, settings::terms(), tokens, now).ok()??;
        Some(decisions.iter().map(Plan::of).collect::<Vec<Plan>>())
    });
    let Ok(Some(plans)) = plans else { return Ok(false) };
    let mut taken: Option<Taken> = None;
    // All are closed before one is written: who is told of that may touch the others.
    let keys: Vec<_> = keys.into_iter().map(Key::close).collect();
    for ((at, plan), key) in plans.into_iter().enumerate().zip(keys) {
        match plan.carry_out_outside_command(key) {
            Ok(done) => taken = Taken::join(taken, done, at),
            Err(refused) => {
                // All or nothing: what was written already goes back.
                let written = names.iter().take(at).map(|name| name.as_arg().as_bytes().into()).enumerate();
                let lost = taken.iter().flat_map(|taken| {
                    let token = taken.token;
                    written.clone().map(move |(at, name)| Lost { db, name, token, succeeds: taken.before(at).cloned() })
                });
                let _ = state::with(|state| state.lost.extend(lost));
                slot_lost(line, refused);
                return Err(refused);
            }
        }
    }
    let _ = waiting::answer(ticket, taken);
    Ok(true)
}

fn slot_lost(line: LineId, refused: WriteRefused) {
    if refused == WriteRefused::NotOurs {
        end_line(line, Error::SlotLost);
    }
}

/// Carries a plan for one who waits in a line out.
fn give(key: Key<'_>, line: LineId, ticket: Ticket, plan: Plan) -> Result<(), WriteRefused> {
    let taken = plan.carry_out_outside_command(key.close()).inspect_err(|refused| slot_lost(line, *refused))?;
    let _ = waiting::answer(ticket, taken);
    Ok(())
}
