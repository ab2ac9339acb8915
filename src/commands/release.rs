//! `LOCK.RELEASE key token`
//!
//! Gives the lock back, only if that grant still stands: a late or a foreign holder changes nothing.
//! If somebody waits, the first gets it in the same change of the key.
//!
//! Reply: 1 released in time; -1 released after its timestamp, nobody had taken it; 0 that grant was
//! over. Errors: `ERR`, `WRONGTYPE`. O(1) without waiters,
//! O(log n) in them.

use super::parse::{self, Arguments};
use crate::lock::error::Error;
use crate::lock::rules::{self, Release, State};
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::{clock, waiting};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(key), Some(token), 2) = (args.string(0), args.at(1), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let token = parse::token(token)?;
    let key = Key::open(context, key)?;
    let released = rules::release(State::of(key.value(), clock::now()), token);
    let reply = match released {
        Release::InTime => 1,
        Release::Late => -1,
        Release::Over => 0,
    };
    if released != Release::Over {
        waiting::pass_on(context, key, token)?;
    }
    context.reply_integer(reply);
    Ok(())
}
