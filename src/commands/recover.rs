//! `LOCK.RECOVER key EX seconds|PX milliseconds [ID id] [OWNER name] [SESSION]`
//!
//! Takes the lock over, only if its timestamp has passed: its holder never released it, and its
//! work may be half done.
//!
//! Reply: array of token, overdue-ms, previous token, previous owner (the last two nil where
//! unknown); nil when there is nothing expired. Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `OOM`. O(1).

use super::parse::{Arguments, Name, Options};
use crate::lock::error::Error;
use crate::lock::rules::{self, State};
use crate::server::context::{Args, Context};
use crate::server::grant::Plan;
use crate::server::key::Key;
use crate::server::{clock, session, settings, state, waiting};

const NAME: &str = "LOCK.RECOVER";
const OPTIONS: [Name; 5] = [Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Session];

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(name), 3..) = (args.string(0), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let options = Options::parse(&args, 1, NAME, &OPTIONS)?;
    let request = options.request()?;
    if options.session {
        session::prepare(context)?;
    }
    let key = Key::open(context, name)?;
    let now = clock::now();
    let lock = State::of(key.value(), now);
    let decision = state::with(|state| {
        let ahead = state.others_ahead(context, name, request.id);
        rules::recover(lock, &request, ahead, settings::terms(), &mut state.tokens, now)
    })??;
    let plan = Plan::of(&decision);
    match plan.carry_out(key)? {
        Some(taken) => {
            waiting::got(context, name, request.id, &taken, options.session)?;
            taken.reply_details(context);
        }
        None => context.reply_nil_array(),
    }
    Ok(())
}
