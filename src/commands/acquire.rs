//! `LOCK.ACQUIRE key EX seconds|PX milliseconds [ID id] [OWNER name] [DETAILS]`
//!
//! Takes the lock if nobody has it: a free key, or one whose timestamp has passed.
//!
//! Reply: the token (integer), nil when somebody else has it; with `DETAILS` an array of token,
//! overdue-ms, previous token, previous owner. Sent again with the ID of the holder: its token, and
//! a lease that is never shorter. Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `OOM`. O(1).

use super::grant::Plan;
use super::parse::{Arguments, Name, Options};
use crate::lock::error::Error;
use crate::lock::rules::{self, State};
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::{clock, settings, state};

const NAME: &str = "LOCK.ACQUIRE";
const OPTIONS: [Name; 5] = [Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Details];

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(key), 3..) = (args.string(0), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let options = Options::parse(&args, 1, NAME, &OPTIONS)?;
    let request = options.request()?;
    let key = Key::open(context, key)?;
    let now = clock::now();
    let decision = state::with(|state| {
        rules::acquire(State::of(key.value(), now), &request, settings::terms(), &mut state.tokens, now)
    })??;
    let plan = Plan::of(&decision);
    match plan.carry_out(key)? {
        None if options.details => context.reply_nil_array(),
        None => context.reply_nil(),
        Some(taken) if options.details => taken.reply_details(context),
        Some(taken) => context.reply_integer(taken.token.as_i64()),
    }
    Ok(())
}
