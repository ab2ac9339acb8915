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
use super::grant::Plan;
use super::key::Key;
use super::parked::{self, Budget, Tried, Writer};
use super::state::{self, State};
use super::stats::{self, Counter};
use super::{clock, failover, leases, session, settings, waiting};
use crate::broken::{self, Mutant};
use crate::engine::queue::{Cause, LineId, Next, Ticket};
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::rules::{self, Acquire, Holds, Share, State as LockState};
use crate::lock::time::{Micros, MonotonicMicros};
use redis_module::raw;

/// How many waits end, grants pass on and lines are looked at in one turn of the server's loop.
const PER_TURN: usize = 128;
/// After so long a turn ends too: a piece can be a set of holders that has to be read as a whole.
const TURN: Micros = Micros(2_000);
/// When to try again what the server does not allow now.
const RETRY: Micros = Micros(20_000);

/// One turn: called by the timer.
pub fn turn(context: &Context) {
    end_waits();
    leases::sweep(context);
    let has_work = state::with(|state| {
        // Before anything else: what is due would fire the timer again and again.
        state.queues.set_due_ready(clock::now());
        if state.postponed.is_some_and(|at| at > clock::monotonic()) {
            return false;
        }
        state.postponed = None;
        state.queues.begin_iteration();
        state.has_work()
    });
    if has_work != Ok(true) {
        return;
    }
    if !may_write(context) {
        end_lines_of_lost_slots(context);
        postpone(|state, until| state.postponed = Some(until));
        return;
    }
    let mut rest = Rest::of_turn();
    let mut budget = Budget::of(Budget::ITERATION);
    let begun = clock::monotonic();
    for _ in 0..PER_TURN {
        let is_over = !budget.is_left() || clock::monotonic().since(begun) >= TURN;
        if is_over || !serve_one(context, &mut rest, &mut budget) {
            break;
        }
    }
    if rest.is_refused {
        postpone(|state, until| state.rest_postponed = Some(until));
    }
}

/// What cannot be done now is tried again in a moment: at once, the server would do nothing else.
fn postpone(what: impl FnOnce(&mut State, MonotonicMicros)) {
    let _ = state::with(|state| {
        what(state, clock::monotonic().after(RETRY));
        state.stats.add(Counter::Postponed);
    });
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

/// Ends waits whose time is over; the timer comes back for more.
fn end_waits() {
    let now = clock::monotonic();
    for _ in 0..PER_TURN {
        let over = state::with(|state| state.queues.time_out(now, waiting::kept_until(), waiting::most_places()));
        match over {
            Ok(Some(waiter)) => {
                stats::add(Counter::TimeOuts);
                let details = waiter.details;
                waiter.handle.answer(Answer::Nil(details));
            }
            _ => return,
        }
    }
}

/// How many grants were lost and how many sessions have ended when a turn began: each is tried once in it, so that one
/// that the server refuses to write holds up no other.
struct Rest {
    lost: usize,
    ended: usize,
    /// Some of them stay to be done.
    is_refused: bool,
}

impl Rest {
    fn of_turn() -> Self {
        let (lost, ended) = state::with(|state| {
            if state.rest_postponed.is_some_and(|at| at > clock::monotonic()) {
                return (0, 0);
            }
            state.rest_postponed = None;
            (state.lost.len(), state.ended.len())
        })
        .unwrap_or_default();
        Self { lost, ended, is_refused: false }
    }
}

/// Passes one grant on that was lost, ends one session, or looks at one line; whether there was one.
fn serve_one(context: &Context, rest: &mut Rest, budget: &mut Budget) -> bool {
    if let Some(left) = rest.lost.checked_sub(1) {
        rest.lost = left;
        let Ok(Some(lost)) = state::with(|state| state.lost.pop_front()) else { return true };
        if pass_on_lost(context, &lost) == Err(WriteRefused::ForNow) {
            let _ = state::with(|state| state.lost.push_back(lost));
            rest.is_refused = true;
        }
        return true;
    }
    if let Some(left) = rest.ended.checked_sub(1) {
        rest.ended = left;
        let Ok(Some((lock, ended))) = state::with(State::next_ended) else { return true };
        if session::end(context, &lock, &ended) == Err(WriteRefused::ForNow) {
            let _ = state::with(|state| state.ended.insert(lock, ended));
            rest.is_refused = true;
        }
        return true;
    }
    let taken = state::with(|state| {
        let (line, cause) = state.queues.take_ready()?;
        // One that is due now was not forgotten: the timer comes in this moment.
        let is_due = state.queues.due(line).is_some_and(|due| due <= clock::now());
        Some((line, cause == Cause::Scan && !is_due))
    });
    let Ok(Some((line, is_scan))) = taken else { return false };
    match look_at(context, line, budget) {
        Ok(true) if is_scan => stats::add(Counter::MissedWakeups),
        Ok(_) | Err(WriteRefused::NotOurs) => {}
        Err(WriteRefused::ForNow) => {
            // Not at once: in the order of the line it would come first again.
            let again = clock::now().after(RETRY);
            let _ = state::with(|state| state.queues.set_due(line, Some(again)));
        }
    }
    true
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
    Try(Ticket),
    /// It may not have a lease that long.
    End(u64, Error),
    /// Nobody else can have it now.
    Over,
}

/// Looks at the lock of a line for the first who waits; whether it was granted. The others come after those of
/// other lines who came before them.
fn look_at(context: &Context, line: LineId, budget: &mut Budget) -> Result<bool, WriteRefused> {
    let Ok(Some((db, bytes))) = state::with(|state| state.queues.key(line)) else { return Ok(false) };
    let Some(name) = OwnString::in_db(context, db, &bytes) else { return Ok(false) };
    if !is_served_here(context, name.as_arg()) {
        end_line(line, Error::SlotLost);
        return Ok(false);
    }
    // A value of another type is waited for as a foreign one is.
    let Ok(key) = Key::open_read_only(context, name.as_arg(), clock::now()) else { return Ok(false) };
    let grace = state::grace_settings(context);
    match state::with(|state| look(state, &key, line, &grace)) {
        Ok(Look::Give(ticket, plan)) => {
            let is_last = plan.is_alone();
            give(key, line, ticket, plan)?;
            if !is_last {
                let _ = state::with(|state| state.queues.go_on(line));
            }
            Ok(true)
        }
        Ok(Look::Try(ticket)) => {
            drop(key);
            let tried = parked::try_one(context, ticket, Writer::Timer, budget)
                .inspect_err(|refused| slot_lost(line, *refused))?;
            if tried == Tried::Moved {
                let _ = state::with(|state| state.queues.go_on(line));
            }
            Ok(tried == Tried::Granted)
        }
        Ok(Look::End(client, error)) => {
            drop(key);
            waiting::end(client, Answer::Failed(error));
            let _ = state::with(|state| state.queues.go_on(line));
            Ok(false)
        }
        Ok(Look::Over) | Err(_) => Ok(false),
    }
}

fn look(state: &mut State, key: &Key<'_>, line: LineId, grace: &grace::Settings) -> Look {
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
    let due = match queues.next(line, is_nobodys) {
        Next::Parked(ticket) => return Look::Try(ticket),
        Next::Single(ticket, waiter) => {
            if let Err(error) = grace.check(waiter.lease) {
                return Look::End(waiter.client, error);
            }
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
        Next::Later | Next::Nobody if is_nobodys => None,
        Next::Later | Next::Nobody => waiting::due(lock, Share::Alone, key),
    };
    queues.set_due(line, due);
    Look::Over
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
