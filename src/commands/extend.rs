//! `LOCK.EXTEND key token EX seconds|PX milliseconds`
//!
//! Sets a new lease, counted from now, on a lock that is still held. The new lease may be shorter.
//!
//! Reply: 1, or 0 if the grant has ended. Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `GRACE`, `NOREPLICAS`. O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::entries::{Command, Entry};

const NAME: &str = "LOCK.EXTEND";

pub struct Extend;

impl Command for Extend {
    const DOC: &'static Doc = &Doc {
        name: c"lock.extend",
        summary: c"Sets a new lease on a lock that is still held.",
        complexity: c"O(1)",
        arity: 5,
        flags: Flags::Write,
        keys: Keys::First(KeyAccess::Update),
        args: &[doc::KEY, doc::TOKEN, doc::LEASE],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), Some(token), 4) = (args.string(0), args.at(1), args.count()) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        let token = parse::token(token)?;
        let lease = parse::lease_alone(&args, 2, NAME)?;
        context.reply_integer(i64::from(entry.extend(name, token, lease)?));
        Ok(())
    }
}
