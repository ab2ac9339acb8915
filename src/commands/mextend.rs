//! `LOCK.MEXTEND numkeys key [key ...] token EX seconds|PX milliseconds`
//!
//! Sets a new lease, counted from now, on several locks that one grant still holds: on all of them or on none.
//!
//! Reply: 1, or 0 if any of the grants has ended, in which case nothing has changed. Errors: `ERR`, `WRONGTYPE`,
//! `CLOCK`, `GRACE`, `NOREPLICAS`. O(k) in the keys.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::{Arg, Context};
use crate::server::entries::{Command, Entry};
use crate::server::keys::served;
use std::ops::Range;

const NAME: &str = "LOCK.MEXTEND";
/// `token EX seconds`
const BEHIND: usize = 3;

pub struct Mextend;

impl Command for Mextend {
    const DOC: &'static Doc = &Doc {
        name: c"lock.mextend",
        summary: c"Sets a new lease on several locks, if all of them are still held.",
        complexity: c"O(K) in the keys",
        arity: -6,
        flags: Flags::WriteSlow,
        keys: Keys::Counted(KeyAccess::Update),
        args: &[doc::NUMKEYS, doc::KEYS, doc::TOKEN, doc::LEASE],
    };

    fn keys(args: &Args<'_>) -> Result<Range<usize>, Error> {
        parse::keys(args, BEHIND)
    }

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        if args.count() < 5 {
            context.reply_wrong_arity();
            return Ok(());
        }
        let keys = Self::keys(&args)?;
        parse::different_keys(&args, keys.clone())?;
        let token = parse::token(args.at(keys.end).unwrap_or_default())?;
        let lease = parse::lease_alone(&args, keys.end.saturating_add(1), NAME)?;
        let names: Vec<Arg<'_>> = keys.filter_map(|at| args.string(at)).collect();
        served::check_all(context, &names)?;
        context.reply_integer(i64::from(entry.extend_all(&names, token, lease)?));
        Ok(())
    }
}
