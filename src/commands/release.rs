//! `LOCK.RELEASE key token`
//!
//! Gives the lock back, only if that grant still stands: a late or a foreign holder changes nothing.
//! If somebody waits, the first gets it in the same change of the key.
//!
//! Reply: 1 released in time; -1 released after its timestamp, nobody had taken it; 0 that grant was
//! over. Errors: `ERR`, `WRONGTYPE`. O(1) without waiters,
//! O(log n) in them.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments};
use crate::lock::error::Error;
use crate::lock::rules::{self, Release};
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::{clock, parked, stats, waiting};

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.release",
    summary: c"Gives the lock back, to the first who waits if there is one.",
    complexity: c"O(1) without waiters, O(log N) in them",
    arity: 3,
    flags: Flags::Write,
    keys: Keys::First(KeyAccess::Delete),
    args: &[doc::KEY, doc::TOKEN],
};

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
    let key = Key::open(context, key, clock::of_command())?.with_grant(token)?;
    let released = rules::release(key.state(), token);
    let reply = match released {
        Release::InTime => 1,
        Release::Late => -1,
        Release::Over => 0,
    };
    if released != Release::Over {
        if let Some(line) = waiting::pass_on(context, key, token, true)? {
            parked::pass_on(context, &[line]);
        }
    }
    stats::released(released);
    context.reply_integer(reply);
    Ok(())
}
