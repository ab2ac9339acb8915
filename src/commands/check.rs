//! `LOCK.CHECK key token`
//!
//! Returns how much of the lease is left. Lets MULTI, scripts and functions write only while the lock is held.
//!
//! Reply: the milliseconds left on the lease of the token's holder, without the margin, rounded down; 0 if the grant
//! has ended. Read-only. Errors: `ERR`, `WRONGTYPE`. O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::entries::{Command, Entry};

pub struct Check;

impl Command for Check {
    const DOC: &'static Doc = &Doc {
        name: c"lock.check",
        summary: c"Returns the milliseconds of lease left to the holder of that token, or 0.",
        complexity: c"O(1)",
        arity: 3,
        flags: Flags::Read,
        keys: Keys::First(KeyAccess::Access),
        args: &[doc::KEY, doc::TOKEN],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), Some(token), 2) = (args.string(0), args.at(1), args.count()) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        context.reply_count(entry.check(name, parse::token(token)?)?.as_ms());
        Ok(())
    }
}
