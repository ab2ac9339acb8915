//! `LOCK.MRELEASE numkeys key [key ...] token`
//!
//! Releases those of several locks whose grants are still in force. Each lock is passed on as in LOCK.RELEASE.
//!
//! Reply: how many locks it released, in time or late. Errors: `ERR`, `WRONGTYPE`. O(k) in the keys without waiters,
//! O(k log n) with n waiters each.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::{Arg, Context};
use crate::server::entries::{Command, Entry};
use crate::server::keys::served;
use std::ops::Range;

/// `token`
const BEHIND: usize = 1;

pub struct Mrelease;

impl Command for Mrelease {
    const DOC: &'static Doc = &Doc {
        name: c"lock.mrelease",
        summary: c"Releases several locks. The first waiter for each gets it.",
        complexity: c"O(K) in the keys, and O(log N) more for each that N wait for",
        arity: -4,
        flags: Flags::WriteSlow,
        keys: Keys::Counted(KeyAccess::Delete),
        args: &[doc::NUMKEYS, doc::KEYS, doc::TOKEN],
    };

    fn keys(args: &Args<'_>) -> Result<Range<usize>, Error> {
        parse::keys(args, BEHIND)
    }

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        if args.count() < 3 {
            context.reply_wrong_arity();
            return Ok(());
        }
        let keys = Self::keys(&args)?;
        if keys.end.saturating_add(BEHIND) != args.count() {
            return Err(Error::NumKeys);
        }
        parse::different_keys(&args, keys.clone())?;
        let token = parse::token(args.at(keys.end).unwrap_or_default())?;
        let names: Vec<Arg<'_>> = keys.filter_map(|at| args.string(at)).collect();
        served::check_all(context, &names)?;
        let released = entry.release_all(&names, token)?;
        context.reply_count(u64::try_from(released).unwrap_or(u64::MAX));
        Ok(())
    }
}
