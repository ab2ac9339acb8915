//! `LOCK.MACQUIRE numkeys key [key ...] EX seconds|PX milliseconds [WAIT milliseconds] [ID id]
//! [OWNER name] [SESSION]`
//!
//! Takes several locks at once: all or nothing. While it waits it holds none and reserves none: it stands in the
//! line of one key that it cannot have, and is tried when that comes free. So it can neither deadlock nor hold
//! others up.
//!
//! Reply: one token for all the keys, or nil, after the wait if any. Sent again with the ID that holds
//! them all: its token. In a cluster the keys share a slot. Errors: as LOCK.ACQUIRE. O(k) in the keys, and O(log n)
//! in the waiters of one of them.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments, Name, Options};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::rules::{self, Acquire, Request, State};
use crate::server::context::{Arg, Args, Context};
use crate::server::grant::Plan;
use crate::server::key::Key;
use crate::server::waiting::{self, Asked, Wish};
use crate::server::{clock, failover, session, settings, state, stats};

const NAME: &str = "LOCK.MACQUIRE";
const OPTIONS: [Name; 6] = [Name::Ex, Name::Px, Name::Wait, Name::Id, Name::Owner, Name::Session];
/// `EX seconds`
const BEHIND: usize = 2;

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.macquire",
    summary: c"Takes several locks at once, all or nothing, or waits for them. Returns one fencing token.",
    complexity: c"O(K + log N) with K keys, N the waiters of one of them",
    arity: -5,
    flags: Flags::WriteDenyOomBlocking,
    keys: Keys::Counted(KeyAccess::AccessUpdate),
    args: &[doc::NUMKEYS, doc::KEYS, doc::LEASE, doc::WAIT, doc::ID, doc::OWNER, doc::SESSION],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    if context.is_asked_for_keys() {
        context.tell_keys(parse::keys(&args, BEHIND), DOC.keys);
        return Ok(());
    }
    if args.count() < 4 {
        context.reply_wrong_arity();
        return Ok(());
    }
    let keys = parse::keys(&args, BEHIND)?;
    parse::keys_to_take(&args, keys.clone())?;
    let options = Options::parse(&args, keys.end, NAME, &OPTIONS)?;
    let request = options.request()?;
    if options.session {
        session::prepare(context)?;
    }
    failover::check_lease(context, request.lease)?;
    let may_grant = failover::may_grant(context);
    let now = clock::of_command();
    let names: Vec<Arg<'_>> = keys.filter_map(|at| args.string(at)).collect();
    let opened: Result<Vec<Key<'_>>, Error> =
        names.iter().map(|name| Key::open(context, *name, now)?.with_attempt(request.id)).collect();
    let opened = opened?;
    let states: Vec<State<'_>> = opened.iter().map(Key::state).collect();
    let (behind, decisions) = state::with(|state| {
        let behind = state.first_ahead(context, &names, request.id);
        let ahead = may_grant.is_err() || behind.is_some();
        (behind, rules::acquire_all(&states, &request, ahead, settings::terms(), &mut state.tokens, now))
    })?;
    let decisions = decisions?;
    let Some(decisions) = decisions else {
        let met = states.iter().position(|lock| !lock.is_nobodys());
        let lock = |at: usize| states.get(at).copied().unwrap_or(State::Free);
        stats::refused(met.map_or(State::Free, lock));
        let too_early = may_grant.err().filter(|_| met.is_none());
        // One that it cannot have, where it is going to wait.
        let at = met.or(behind).unwrap_or(0);
        let Some(key) = opened.get(at) else { return Err(Error::NumKeys) };
        let asked = Asked::of(&names, at, lock(at), request.share, key);
        if broken::is(Mutant::KeepsPart) {
            keep_first(opened, &request)?;
        } else {
            drop(opened);
        }
        let wish = Wish { request, wait: options.wait(), details: false, session: options.session };
        return waiting::refused(context, &asked, &wish, too_early);
    };
    if decisions.iter().any(|decision| matches!(decision, Acquire::Prolong(_))) {
        failover::may_extend(context)?;
    }
    let plans: Vec<Plan> = decisions.iter().map(Plan::of).collect();
    let taken = Plan::carry_all_out(plans.into_iter().zip(opened).collect())?;
    if let Some(mut taken) = taken {
        waiting::stands_no_longer(context, &names, request.id)?;
        for name in names.into_iter().enumerate() {
            waiting::got(context, name, request.id, &mut taken, options.session)?;
        }
        taken.reply(context, false);
    }
    Ok(())
}

/// What [`Mutant::KeepsPart`] does.
fn keep_first(mut opened: Vec<Key<'_>>, request: &Request<'_>) -> Result<(), Error> {
    let first = opened.swap_remove(0);
    let now = first.now();
    let decision =
        state::with(|state| rules::acquire(first.state(), request, false, settings::terms(), &mut state.tokens, now))??;
    let plan = Plan::of(&decision);
    plan.carry_out(first).map(drop)
}
