//! `LOCK.MRELEASE numkeys key [key ...] token`
//!
//! Gives several locks back, those that the grant still holds; each passes on as in LOCK.RELEASE.
//!
//! Reply: how many it released, in time or late. Errors: `ERR`, `WRONGTYPE`. O(k) in the keys without
//! waiters, O(k log n) with n of them.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::rules::{self, Release};
use crate::server::context::{Arg, Args, Context};
use crate::server::key::Key;
use crate::server::stats;
use crate::server::write::tell_deleted;
use crate::server::{clock, parked, state, waiting};

/// `token`
const BEHIND: usize = 1;

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.mrelease",
    summary: c"Gives several locks back, each to the first who waits if there is one.",
    complexity: c"O(K) in the keys, and O(log N) more for each that N wait for",
    arity: -4,
    flags: Flags::WriteSlow,
    keys: Keys::Counted(KeyAccess::Delete),
    args: &[doc::NUMKEYS, doc::KEYS, doc::TOKEN],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    if context.is_asked_for_keys() {
        context.tell_keys(parse::keys(&args, BEHIND), DOC.keys);
        return Ok(());
    }
    if args.count() < 3 {
        context.reply_wrong_arity();
        return Ok(());
    }
    let keys = parse::keys(&args, BEHIND)?;
    if keys.end.saturating_add(BEHIND) != args.count() {
        return Err(Error::NumKeys);
    }
    parse::different_keys(&args, keys.clone())?;
    let token = parse::token(args.at(keys.end).unwrap_or_default())?;
    let now = clock::of_command();
    let names: Vec<Arg<'_>> = keys.filter_map(|at| args.string(at)).collect();
    // A key of another type is found before anything has changed.
    let opened: Result<Vec<Key<'_>>, Error> =
        names.iter().map(|name| Key::open(context, *name, now)?.with_grant(token)).collect();
    let (mut deleted, mut awaited) = (Vec::new(), Vec::new());
    let result = opened?.into_iter().try_for_each(|key| {
        let mut released = rules::release(key.state(), token);
        if broken::is(Mutant::ReleaseAnyOfAll) && !key.state().is_nobodys() {
            released = Release::InTime;
        }
        stats::released(released);
        match released {
            Release::Over => {}
            _ if waiting::is_awaited(context, &key)? => awaited.push(key.name()),
            _ => {
                state::with(|state| waiting::given_back(state, token, now))?;
                deleted.push(key.delete()?);
            }
        }
        Ok(())
    });
    let count = deleted.len().saturating_add(awaited.len());
    // What has changed is told also where a key after it fails.
    tell_deleted(context, &deleted);
    result?;
    // Who is told of one key may change others: each of the rest is opened anew.
    let mut lines = Vec::new();
    // They are served in the order of arrival, whatever line they stand in, when all is released.
    let hands_off = !waiting::has_parked(context, &awaited)?;
    for name in awaited {
        let key = Key::open(context, name, now)?.with_grant(token)?;
        if rules::release(key.state(), token) != Release::Over {
            lines.extend(waiting::pass_on(context, key, token, hands_off)?);
        }
    }
    parked::pass_on(context, &lines);
    context.reply_count(u64::try_from(count).unwrap_or(u64::MAX));
    Ok(())
}
