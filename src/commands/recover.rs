//! `LOCK.RECOVER key EX seconds|PX milliseconds [ID id] [OWNER name] [SESSION]`
//!
//! Takes the lock over only if it has expired: its holder never released it, and the work may be half done.
//!
//! Reply: an array of token, overdue-ms, previous token, previous owner (the last two nil if unknown), or nil if the
//! lock has not expired or clients wait for it. Errors: `ERR`, `WRONGTYPE`, `CLOCK`, `OOM`, `GRACE`, `NOREPLICAS`.
//! O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Name};
use crate::engine::queue::ReplyShape;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::clients::reply;
use crate::server::entries::{Command, Entry};

const NAME: &str = "LOCK.RECOVER";
const OPTIONS: [Name; 5] = [Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Session];

pub struct Recover;

impl Command for Recover {
    const DOC: &'static Doc = &Doc {
        name: c"lock.recover",
        summary: c"Takes the lock over only if it has expired. Returns token, overdue-ms, previous token and owner.",
        complexity: c"O(1)",
        arity: -4,
        flags: Flags::WriteDenyOom,
        keys: Keys::First(KeyAccess::AccessUpdate),
        args: &[doc::KEY, doc::LEASE, doc::ID, doc::OWNER, doc::SESSION],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), 3..) = (args.string(0), args.count()) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        parse::key_to_take(name.as_bytes())?;
        let ask = parse::ask(&args, 1, NAME, &OPTIONS)?;
        match entry.recover(name, &ask)? {
            Some(granted) => reply::granted(context, &granted, ReplyShape::Details),
            None => reply::not_granted(context, ReplyShape::Details),
        }
        Ok(())
    }
}
