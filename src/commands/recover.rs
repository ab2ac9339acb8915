//! `LOCK.RECOVER key EX seconds|PX milliseconds [ID id] [OWNER name] [SESSION]`
//!
//! Takes the lock over, only if its timestamp has passed: its holder never released it, and its
//! work may be half done.
//!
//! Reply: array of token, overdue-ms, previous token, previous owner (the last two nil where
//! unknown); nil when there is nothing expired. Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `OOM`. O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments, Name, Options};
use crate::lock::error::Error;
use crate::lock::rules::{self, Acquire};
use crate::server::context::{Args, Context};
use crate::server::grant::Plan;
use crate::server::key::Key;
use crate::server::{clock, failover, session, settings, state, stats, waiting};

const NAME: &str = "LOCK.RECOVER";
const OPTIONS: [Name; 5] = [Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Session];

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.recover",
    summary: c"Takes the lock over, only if it is expired. Returns token, overdue-ms, previous token and owner.",
    complexity: c"O(1)",
    arity: -4,
    flags: Flags::WriteDenyOom,
    keys: Keys::First(KeyAccess::AccessUpdate),
    args: &[doc::KEY, doc::LEASE, doc::ID, doc::OWNER, doc::SESSION],
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
    let key = Key::open(context, name, now)?;
    let lock = key.state();
    let decision = state::with(|state| {
        let ahead = may_grant.is_err() || state.others_ahead(context, name, request.id);
        rules::recover(lock, &request, ahead, settings::terms(), &mut state.tokens, now)
    })??;
    if decision == Acquire::Refuse {
        stats::refused(lock);
        if lock.is_expired() {
            may_grant?;
        }
    }
    let plan = Plan::of(&decision).as_recovery();
    match plan.carry_out(key)? {
        Some(mut taken) => {
            waiting::got(context, (0, name), request.id, &mut taken, options.session)?;
            waiting::stands_no_longer(context, &[name], request.id)?;
            taken.reply_details(context);
        }
        None => context.reply_nil_array(),
    }
    Ok(())
}
