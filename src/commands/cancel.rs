//! `LOCK.CANCEL key id`
//!
//! Ends an attempt. If it waits, its client gets nil. If it keeps a place in line, the place is gone. If it holds the
//! lock, the lock passes on as in LOCK.RELEASE.
//!
//! Reply: 1 if that ID waited, kept a place, or held the lock; else 0. Errors: `ERR`, `WRONGTYPE`. O(log n) in the
//! waiters.

use super::doc::{self, Arg, Doc, Flags, KeyAccess, Keys, Kind};
use super::parse;
use crate::lock::error::Error;
use crate::server::args::Args;
use crate::server::call::{Command, Entry};
use crate::server::context::Context;

/// The command.
pub struct Cancel;

impl Command for Cancel {
    const DOC: &'static Doc = &Doc {
        name: c"lock.cancel",
        summary: c"Ends an attempt, whether it waits, keeps a place or holds the lock.",
        complexity: c"O(log N) in the waiters",
        arity: 3,
        flags: Flags::Write,
        keys: Keys::First(KeyAccess::Delete),
        args: &[doc::KEY, Arg { name: c"id", kind: Kind::Integer, token: None, optional: false }],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), Some(id), 2) = (args.string(0), args.at(1), args.count()) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        context.reply_integer(i64::from(entry.cancel(name, parse::id(id)?)?));
        Ok(())
    }
}
