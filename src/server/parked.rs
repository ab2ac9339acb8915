//! Trying a waiter for several locks, when the one that it is parked at may have come free: it gets all of them, or
//! is parked at another that it cannot have.

use super::blocked::{Answer, Lost};
use super::closed::{is_served_here, Closed, WriteRefused};
use super::context::{Context, OwnString};
use super::grant::{Plan, Taken};
use super::key::Key;
use super::waiting::{self, due};
use super::{clock, settings, state};
use crate::broken::{self, Mutant};
use crate::engine::queue::{Keys, LineId, Ticket};
use crate::lock::error::Error;
use crate::lock::rules::{self, Share, State};
use crate::lock::time::UnixMicros;
use std::collections::BTreeSet;

/// How many keys may still be read or written before the server gets its turn. Checked before each try, so that one
/// try may exceed it: by the 1,024 keys of a command.
#[derive(Debug)]
pub struct Budget(usize);

impl Budget {
    /// What fits in one event-loop iteration beside other work: about a millisecond.
    pub const ITERATION: usize = 2_048;
    /// What a command adds to its own work, to pass on what it released.
    const COMMAND: usize = 256;

    /// So many keys.
    #[must_use]
    pub const fn of(keys: usize) -> Self {
        Self(keys)
    }

    /// Whether there is some left.
    #[must_use]
    pub const fn is_left(&self) -> bool {
        self.0 > 0
    }

    fn spend(&mut self, keys: usize) {
        self.0 = self.0.saturating_sub(keys);
    }
}

/// Who tries, which decides how the locks are written. What a command has written already is replicated first only if
/// the rest is written in the same way: Redis 6.2 replicates what is written by a call to its own commands before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A command that passes on what it released.
    Command,
    /// The timer.
    Timer,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It got all of its locks.
    Granted,
    /// It is parked in another line, or waits no longer.
    Moved,
    /// It stays where it is: that lock is not free.
    Stays,
}

/// Tries one waiter for several locks.
///
/// # Errors
/// Why the server does not let the locks be written.
pub fn try_one(context: &Context, ticket: Ticket, writer: Writer, budget: &mut Budget) -> Result<Tried, WriteRefused> {
    let now = clock::now();
    let found = state::with(|state| {
        let waiter = state.queues.waiter(ticket)?;
        Some((waiter.client, waiter.lease, state.queues.keys(ticket)?))
    });
    let Ok(Some((client, lease, (db, keys)))) = found else { return Ok(Tried::Moved) };
    if let Err(error) = state::grace_settings(context).check(lease) {
        waiting::end(client, Answer::Failed(error));
        return Ok(Tried::Moved);
    }
    match first_blocked(context, ticket, db, &keys, now, budget) {
        Some(Blocked::At(blocked)) => return Ok(park(ticket, &blocked)),
        Some(Blocked::SlotLost) => {
            waiting::end(client, Answer::Failed(Error::SlotLost));
            return Ok(Tried::Moved);
        }
        None => {}
    }
    budget.spend(keys.len().saturating_mul(2));
    let granted = grant(context, ticket, writer, db, &keys, now)?;
    Ok(if granted { Tried::Granted } else { Tried::Stays })
}

/// Why a waiter cannot have all of its keys.
enum Blocked {
    /// One of them is not served here, as while a slot moves.
    SlotLost,
    /// It cannot have this one.
    At(Held),
}

/// A key that a waiter cannot have.
struct Held {
    at: usize,
    /// When it comes free by itself, and when its last holder ends; as far as it is known.
    due: Option<UnixMicros>,
    last_end: Option<UnixMicros>,
}

fn first_blocked(
    context: &Context,
    ticket: Ticket,
    db: i32,
    keys: &Keys,
    now: UnixMicros,
    budget: &mut Budget,
) -> Option<Blocked> {
    for (at, name) in keys.iter().enumerate() {
        budget.spend(1);
        if state::with(|state| state.queues.is_held_up(db, name, ticket, now)) != Ok(false) {
            return Some(Blocked::At(Held { at, due: None, last_end: None }));
        }
        let string = OwnString::in_db(context, db, name)?;
        let Ok(key) = Key::open_read_only(context, string.as_arg(), now) else {
            return Some(Blocked::At(Held { at, due: None, last_end: None }));
        };
        let lock = key.state();
        if !lock.is_nobodys() {
            return Some(Blocked::At(Held { at, due: due(lock, Share::Alone, &key), last_end: lock.last_end() }));
        }
        drop(key);
        if !is_served_here(context, string.as_arg()) {
            return Some(Blocked::SlotLost);
        }
    }
    None
}

fn park(ticket: Ticket, blocked: &Held) -> Tried {
    let at = if broken::is(Mutant::FirstKeyOnly) { 0 } else { blocked.at };
    let moved = state::with(|state| {
        let before = state.queues.line_of_ticket(ticket);
        let line = state.queues.park(ticket, at)?;
        if let Some(due) = blocked.due {
            state.queues.set_due_by(line, due);
        }
        if blocked.last_end.is_some() {
            state.queues.set_last_end(line, blocked.last_end);
        }
        Some(before != Some(line))
    });
    if moved == Ok(Some(false)) {
        Tried::Stays
    } else {
        Tried::Moved
    }
}

/// Grants all of the keys, which nobody holds; whether that was done.
fn grant(
    context: &Context,
    ticket: Ticket,
    writer: Writer,
    db: i32,
    keys: &Keys,
    now: UnixMicros,
) -> Result<bool, WriteRefused> {
    let names: Option<Vec<OwnString>> = keys.iter().map(|name| OwnString::in_db(context, db, name)).collect();
    let Some(names) = names else { return Ok(false) };
    let open = match writer {
        Writer::Command => Key::open,
        Writer::Timer => Key::open_read_only,
    };
    let opened: Result<Vec<Key<'_>>, Error> = names.iter().map(|name| open(context, name.as_arg(), now)).collect();
    let Ok(opened) = opened else { return Ok(false) };
    let plans = state::with(|state| {
        let waiter = state.queues.waiter(ticket)?;
        let states: Vec<State<'_>> = opened.iter().map(Key::state).collect();
        let terms = settings::terms();
        let decisions = rules::acquire_all(&states, &waiter.request(), false, terms, &mut state.tokens, now).ok()??;
        Some(decisions.iter().map(Plan::of).collect::<Vec<Plan>>())
    });
    let Ok(Some(plans)) = plans else { return Ok(false) };
    if writer == Writer::Command {
        let granted = Plan::carry_all_out(plans.into_iter().zip(opened).collect());
        let taken = granted.map_err(|_| WriteRefused::ForNow)?;
        let _ = waiting::answer(ticket, taken);
        return Ok(true);
    }
    // All are closed before one is written: who is told of that may touch the others.
    let closed: Vec<Closed<'_>> = opened.into_iter().map(Key::close).collect();
    let mut taken: Option<Taken> = None;
    for ((at, plan), key) in plans.into_iter().enumerate().zip(closed) {
        match plan.carry_out_outside_command(key) {
            Ok(done) => taken = Taken::join(taken, done, at),
            Err(refused) => {
                give_back(db, keys, at, taken);
                return Err(refused);
            }
        }
    }
    let _ = waiting::answer(ticket, taken);
    Ok(true)
}

/// All or nothing: what was written of a grant already goes back.
fn give_back(db: i32, keys: &Keys, written: usize, taken: Option<Taken>) {
    let Some(taken) = taken else { return };
    let lost = keys.iter().take(written).enumerate().map(|(at, name)| Lost {
        db,
        name: name.into(),
        token: taken.token,
        succeeds: taken.before(at).cloned(),
    });
    let _ = state::with(|state| state.lost.extend(lost));
}

/// A command released the locks of these lines: waiters for several locks who are first in line are tried at once, so
/// that a lock is not refused to others for their sake. The timer serves the rest.
pub fn pass_on(context: &Context, lines: &[LineId]) {
    let head = |line: LineId| Some((state::with(|state| state.queues.parked_head(line)).ok()??, line));
    let mut heads: BTreeSet<(Ticket, LineId)> = lines.iter().filter_map(|line| head(*line)).collect();
    let mut budget = Budget::of(Budget::COMMAND);
    while budget.is_left() {
        let Some((ticket, line)) = heads.pop_first() else { break };
        if matches!(try_one(context, ticket, Writer::Command, &mut budget), Ok(Tried::Moved)) {
            heads.extend(head(line));
        }
    }
    let _ = state::with(|state| {
        for line in lines {
            state.queues.set_ready(*line);
        }
    });
}
