//! `LOCK.RELEASE key token [RESULT value]`
//!
//! Releases the lock if the grant is still in force: another grant's token changes nothing. If clients wait, the same
//! change to the key grants the lock to the first of them. With `RESULT`, those that asked for a result get this one
//! and leave the queue, if the lock is released in time.
//!
//! Reply: 1, released in time; -1, released after it had expired, but before anybody took it; 0, the grant had ended.
//! Errors: `ERR`, `WRONGTYPE`. O(1) without waiters, O(log n) in the waiters.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse;
use crate::driver::Operator;
use crate::lock::error::Error;
use crate::lock::held::Release as Released;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::entries::{Command, Entry};

const NAME: &str = "LOCK.RELEASE";

pub struct Release;

impl Command for Release {
    const DOC: &'static Doc = &Doc {
        name: c"lock.release",
        summary: c"Releases the lock. The first waiter gets it.",
        complexity: c"O(1) without waiters, O(log N) in them",
        arity: -3,
        flags: Flags::Write,
        keys: Keys::First(KeyAccess::Delete),
        args: &[doc::KEY, doc::TOKEN, doc::RESULT],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), Some(token)) = (args.string(0), args.at(1)) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        let token = parse::token(token)?;
        let most = entry.edge().limits().result;
        let result = parse::result(&args, 2, NAME, most)?;
        context.reply_integer(match entry.release_with(name, token, result)? {
            Released::InTime => 1,
            Released::Late => -1,
            Released::Over => 0,
        });
        Ok(())
    }
}
