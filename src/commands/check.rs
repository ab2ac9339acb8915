//! `LOCK.CHECK key token`
//!
//! Made for MULTI, scripts and functions: write only if you still hold.
//!
//! Reply: milliseconds of lease left to the holder of that token, without the margin, rounded down;
//! 0 when it holds no longer. Readonly. Errors: `ERR`, `WRONGTYPE`. O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments};
use crate::lock::error::Error;
use crate::lock::rules;
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::{clock, settings};

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.check",
    summary: c"Returns the milliseconds of lease left to the holder of that token, or 0.",
    complexity: c"O(1)",
    arity: 3,
    flags: Flags::Read,
    keys: Keys::First(KeyAccess::Access),
    args: &[doc::KEY, doc::TOKEN],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(key), Some(token), 2) = (args.string(0), args.at(1), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let token = parse::token(token)?;
    let now = clock::of_command();
    let key = Key::open_read_only(context, key, now)?.with_grant(token)?;
    let left = rules::check(key.state(), token, settings::terms(), now);
    context.reply_count(left.as_ms());
    Ok(())
}
