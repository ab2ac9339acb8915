//! `LOCK.CANCEL key id`
//!
//! Ends an attempt, wherever it stands: it waits no longer (its client gets nil), keeps no place,
//! and holds the lock no longer (which passes on as in LOCK.RELEASE).
//!
//! Reply: 1 when that ID stood in the queue, kept a place, or held the lock; else 0. Errors: `ERR`,
//! `WRONGTYPE`. O(log n) in the waiters.

use super::doc::{self, Arg, Doc, Flags, KeyAccess, Keys, Kind};
use super::parse::{self, Arguments};
use crate::lock::error::Error;
use crate::lock::rules;
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::stats::{self, Counter};
use crate::server::{clock, parked, waiting};

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.cancel",
    summary: c"Ends an attempt, whether it waits, keeps a place or holds the lock.",
    complexity: c"O(log N) in the waiters",
    arity: 3,
    flags: Flags::Write,
    keys: Keys::First(KeyAccess::Delete),
    args: &[doc::KEY, Arg { name: c"id", kind: Kind::Integer, token: None, optional: false }],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(name), Some(id), 2) = (args.string(0), args.at(1), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let id = parse::id(id)?;
    let key = Key::open(context, name, clock::of_command())?.with_attempt(Some(id))?;
    let stood = waiting::cancel(context, name, id)?;
    let held = rules::held_by(key.state(), id);
    if let Some(token) = held {
        // If the grant is still on its way and gets lost, the attempt has no place again.
        waiting::delivered(token);
        if let Some(line) = waiting::pass_on(context, key, token, true)? {
            parked::pass_on(context, &[line]);
        }
    }
    if stood || held.is_some() {
        stats::add(Counter::Cancels);
    }
    context.reply_integer(i64::from(stood || held.is_some()));
    Ok(())
}
