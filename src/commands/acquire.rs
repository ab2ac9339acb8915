//! `LOCK.ACQUIRE key EX seconds|PX milliseconds [WAIT milliseconds] [ID id] [OWNER name]
//! [SESSION] [DETAILS] [SHARED|LIMIT n]`
//!
//! Takes the lock if nobody has it: a free key, or one whose timestamp has passed. With `WAIT` the
//! client blocks until it is its turn; not in a transaction or a script. With `SESSION` the lock
//! expires when the connection ends: its timestamp becomes that time and the margin. With `SHARED` it
//! shares the lock with all others who ask so, with `LIMIT` with fewer than n others.
//!
//! Reply: the token (integer), nil when somebody else has it, after the wait if any; with `DETAILS`
//! an array of token, overdue-ms, previous token, previous owner. Sent again with the ID of the
//! holder: its token, and a lease that is never shorter; with the ID of a waiter: its place.
//! Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `OOM`, `BUSYLOCKS`, `DEADLOCK`, `GRACE`, `NOREPLICAS`, `UNBLOCKED`. O(1) without waiters,
//! O(log n) in them and in the holders.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments, Name, Options};
use crate::lock::error::Error;
use crate::lock::rules::{self, Acquire};
use crate::server::context::{Args, Context};
use crate::server::grant::Plan;
use crate::server::key::Key;
use crate::server::waiting::{self, Asked, Wish};
use crate::server::{clock, failover, session, settings, state, stats};

const NAME: &str = "LOCK.ACQUIRE";
const OPTIONS: [Name; 9] =
    [Name::Ex, Name::Px, Name::Wait, Name::Id, Name::Owner, Name::Session, Name::Details, Name::Shared, Name::Limit];

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.acquire",
    summary: c"Takes the lock if nobody has it, or waits for it in line. Returns a fencing token.",
    complexity: c"O(1) without waiters, O(log N) in them and in the holders",
    arity: -4,
    flags: Flags::WriteDenyOomBlocking,
    keys: Keys::First(KeyAccess::AccessUpdate),
    args: &[doc::KEY, doc::LEASE, doc::WAIT, doc::ID, doc::OWNER, doc::SESSION, doc::DETAILS, doc::SHARE],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(name), 3..) = (args.string(0), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    parse::key_to_take(name.as_bytes())?;
    let options = Options::parse(&args, 1, NAME, &OPTIONS)?;
    let request = options.request()?;
    if options.session {
        session::prepare(context)?;
    }
    failover::check_lease(context, request.lease)?;
    let may_grant = failover::may_grant(context);
    let now = clock::of_command();
    let key = Key::open(context, name, now)?.with_attempt(request.id)?;
    let lock = key.state();
    let decision = state::with(|state| {
        let ahead = may_grant.is_err() || state.others_ahead(context, name, request.id);
        rules::acquire(lock, &request, ahead, settings::terms(), &mut state.tokens, now)
    })??;
    if decision == Acquire::Refuse {
        stats::refused(lock);
        let too_early = may_grant.err().filter(|_| rules::could_have(lock, &request, now));
        let names = [name];
        let asked = Asked::of(&names, 0, lock, request.share, &key);
        drop(key);
        let wish = Wish { request, wait: options.wait(), details: options.details, session: options.session };
        return waiting::refused(context, &asked, &wish, too_early);
    }
    if matches!(decision, Acquire::Prolong(_)) {
        failover::may_extend(context)?;
    }
    let plan = Plan::of(&decision);
    if let Some(mut taken) = plan.carry_out(key)? {
        waiting::got(context, (0, name), request.id, &mut taken, options.session)?;
        waiting::stands_no_longer(context, &[name], request.id)?;
        taken.reply(context, options.details);
    }
    Ok(())
}
