//! `LOCK.TOP [COUNT n]`
//!
//! The locks with the longest queues on this server, in all databases, longest first; at most n, by
//! default 10.
//!
//! Reply: array of maps db, key, owner, held-ms, waiters, oldest-wait-ms (flat arrays in RESP2); the
//! owner and held-ms are nil where unknown. Empty on a replica. Errors: `ERR`. O(k + n log n) with k
//! keys that are waited for.

use super::doc::{Arg, Doc, Flags, Keys, Kind};
use super::info::field;
use super::parse::Name;
use super::parse::Options;
use crate::lock::error::Error;
use crate::lock::record::Owner;
use crate::lock::time::UnixMicros;
use crate::server::context::{Args, Context, OwnString};
use crate::server::key::Key;
use crate::server::{clock, state};

const NAME: &str = "LOCK.TOP";
const DEFAULT_COUNT: usize = 10;

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.top",
    summary: c"Returns the locks of this server with the longest queues.",
    complexity: c"O(K + N log N) with K keys that are waited for and N returned",
    arity: -1,
    flags: Flags::Admin,
    keys: Keys::None,
    args: &[Arg { name: c"count", kind: Kind::Integer, token: Some(c"COUNT"), optional: true }],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let most = Options::parse(&args, 0, NAME, &[Name::Count])?.count().unwrap_or(DEFAULT_COUNT);
    let longest = state::with(|state| state.queues.longest(most))?;
    let own_db = context.selected_db();
    context.reply_array(i64::try_from(longest.len()).unwrap_or(0));
    for (db, name, waiters, since) in longest {
        let holder = OwnString::in_db(context, db, &name).and_then(|name| holder(context, &name));
        let (owner, held_ms) = holder.unwrap_or_default();
        let waiters = u64::try_from(waiters).unwrap_or(u64::MAX);
        context.reply_map(6);
        field(context, "db", |context| context.reply_integer(i64::from(db)));
        field(context, "key", |context| context.reply_bytes(&name));
        field(context, "owner", |context| context.reply_bytes_or_nil(owner.as_deref()));
        field(context, "held-ms", |context| context.reply_count_or_nil(held_ms));
        field(context, "waiters", |context| context.reply_count(waiters));
        field(context, "oldest-wait-ms", |context| context.reply_count(clock::monotonic().since(since).as_ms()));
    }
    context.select_db(own_db);
    Ok(())
}

/// Label of the holder, and for how long it has held.
type Holder = (Option<Box<[u8]>>, Option<u64>);

fn holder(context: &Context, name: &OwnString) -> Option<Holder> {
    let now = clock::of_command();
    let key = Key::glimpse(context, name.as_arg(), now).ok()?;
    let record = key.state().last_to_end().filter(|_| !key.state().is_nobodys())?;
    let held_ms = now.since(UnixMicros(record.token.get())).as_ms();
    Some((record.owner.map(Owner::as_bytes).map(Into::into), Some(held_ms)))
}
