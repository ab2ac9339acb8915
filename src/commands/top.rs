//! `LOCK.TOP [COUNT n]`
//!
//! Lists the locks with the longest queues on this server, in all databases, longest first: at most n, by default 10.
//!
//! Reply: an array of maps (flat arrays in RESP2) of db, key, owner, held-ms, waiters, oldest-wait-ms. The owner and
//! held-ms are nil if unknown. Empty on a replica. Errors: `ERR`. O(k + n log n) with k keys that have a queue.

use super::doc::{Arg, Doc, Flags, Keys, Kind};
use super::info::field;
use super::parse::{Name, Options};
use crate::driver::Key as _;
use crate::lock::error::Error;
use crate::lock::record::Owner;
use crate::lock::time::UnixMicros;
use crate::server::args::Args;
use crate::server::call::{Command, Entry};
use crate::server::clock;
use crate::server::context::{Context, OwnString};
use crate::server::key::Key;

const NAME: &str = "LOCK.TOP";
const DEFAULT_COUNT: usize = 10;

/// The command.
pub struct Top;

impl Command for Top {
    const DOC: &'static Doc = &Doc {
        name: c"lock.top",
        summary: c"Returns the locks of this server with the longest queues.",
        complexity: c"O(K + N log N) with K keys that are waited for and N returned",
        arity: -1,
        flags: Flags::Admin,
        keys: Keys::None,
        args: &[Arg { name: c"count", kind: Kind::Integer, token: Some(c"COUNT"), optional: true }],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let most = Options::parse(&args, 0, NAME, &[Name::Count])?.count().unwrap_or(DEFAULT_COUNT);
        let longest = entry.engine().queues().longest(most);
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
}

/// The label of the holder, and how long it has held the lock.
type Holder = (Option<Box<[u8]>>, Option<u64>);

fn holder(context: &Context, name: &OwnString) -> Option<Holder> {
    let now = clock::of_command();
    let key = Key::glimpse(context, name.as_arg(), now).ok()?;
    let record = key.lock().last_to_end().filter(|_| !key.lock().is_nobodys())?;
    let held_ms = now.since(UnixMicros(record.token.get())).as_ms();
    Some((record.owner.map(Owner::as_bytes).map(Into::into), Some(held_ms)))
}
