//! `LOCK.TOP [COUNT n] [BY waiters|wait|held]`
//!
//! Lists at most n locks (10 by default) that have waiters on this server, from all databases. Locks with the most
//! waiters come first; with `BY wait`, locks whose first waiter has waited longest; with `BY held`, locks held longest.
//! A reply ends after about 1,600 units of work and omits the locks that come later in its order. A lock counts as one,
//! a lock with several holders as four, and each 512 bytes of a name as one more.
//!
//! Reply: an array of maps (flat arrays in RESP2) of db, key, owner, held-ms, waiters, oldest-wait-ms, client, addr.
//! The owner, held-ms, client and addr are nil if unknown. Empty on a replica. Errors: `ERR`. O(k + n log n) with k
//! keys that have a queue, O(n log k) with `BY wait` and `BY held`.

use super::doc::{Arg, Doc, Flags, Keys, Kind};
use super::info::{field, grantee, reply_grantee, Grantee};
use super::parse::{Name, Options};
use crate::driver::Key as _;
use crate::engine::queue::{By, QueueRow};
use crate::lock::error::Error;
use crate::lock::record::Owner;
use crate::lock::state::State;
use crate::lock::token::Token;
use crate::server::api::args::Args;
use crate::server::api::context::{Context, OwnString};
use crate::server::clock;
use crate::server::entries::{Command, Entry};

use crate::server::keys::key::{Glimpse, Key};
use std::cmp::Reverse;

const NAME: &str = "LOCK.TOP";
const DEFAULT_COUNT: usize = 10;
/// The most work for one command: a lock with one holder and a short name counts as one.
const MOST_READ: usize = 1_600;
/// How many bytes of a name count as one lock.
const BYTES: usize = 512;
/// How much a lock with several holders counts: reading two holders and counting the rest takes this much longer.
const SEVERAL: usize = 4;

pub struct Top;

/// A lock in the reply.
struct Row {
    queue: QueueRow,
    owner: Option<Box<[u8]>>,
    held_ms: Option<u64>,
    grantee: Grantee,
}

impl Command for Top {
    const DOC: &'static Doc = &Doc {
        name: c"lock.top",
        summary: c"Returns the locks of this server that clients wait for, those with the longest queues first.",
        complexity: c"O(K + N log N) with K keys that are waited for and N returned, O(N log K) by wait or held",
        arity: -1,
        flags: Flags::Admin,
        keys: Keys::None,
        args: &[
            Arg { name: c"count", kind: Kind::Integer, token: Some(c"COUNT"), optional: true },
            Arg { name: c"by", kind: Kind::String, token: Some(c"BY"), optional: true },
        ],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let options = Options::parse(&args, 0, NAME, &[Name::Count, Name::By])?;
        let queues = entry.engine().queues().top(options.by(), options.count().unwrap_or(DEFAULT_COUNT));
        let own_db = context.selected_db();
        let (mut rows, mut spent): (Vec<Row>, usize) = (Vec::with_capacity(queues.len()), 0);
        for queue in queues {
            if spent >= MOST_READ {
                break;
            }
            spent = spent.saturating_add(queue.name.len() / BYTES);
            rows.push(row(context, entry, queue, &mut spent));
        }
        context.select_db(own_db);
        if options.by() == By::Held {
            // Others may have changed a key since the module saw it, so the reply is sorted by the values it shows.
            rows.sort_by_key(|row| Reverse(row.held_ms));
        }
        let now = clock::monotonic();
        context.reply_array(i64::try_from(rows.len()).unwrap_or(0));
        for Row { queue, owner, held_ms, grantee } in rows {
            let waiters = u64::try_from(queue.waiters).unwrap_or(u64::MAX);
            context.reply_map(8);
            field(context, "db", |context| context.reply_integer(i64::from(queue.db)));
            field(context, "key", |context| context.reply_bytes(&queue.name));
            field(context, "owner", |context| context.reply_bytes_or_nil(owner.as_deref()));
            field(context, "held-ms", |context| context.reply_count_or_nil(held_ms));
            field(context, "waiters", |context| context.reply_count(waiters));
            field(context, "oldest-wait-ms", |context| context.reply_count(now.since(queue.since).as_ms()));
            reply_grantee(context, grantee);
        }
        Ok(())
    }
}

/// A row of the reply: a queue, and its holder as shown by the key. Adds the work to `spent`.
fn row(context: &Context, entry: &mut Entry<'_>, queue: QueueRow, spent: &mut usize) -> Row {
    let name = OwnString::in_db(context, queue.key());
    let holder = name.and_then(|name| holder(context, &name, spent));
    let Some((token, owner, held_ms)) = holder else { return Row { queue, owner: None, held_ms: None, grantee: None } };
    let grantee = grantee(context, entry, queue.key(), Some(token));
    Row { queue, owner, held_ms: Some(held_ms), grantee }
}

/// A holder's token and label, and how long it has held the lock.
type Holder = (Token, Option<Box<[u8]>>, u64);

fn holder(context: &Context, name: &OwnString, spent: &mut usize) -> Option<Holder> {
    let now = clock::of_command();
    let key = Key::glimpse(context, name.as_arg(), Glimpse::LAST, now).ok()?;
    let lock = key.lock();
    *spent = spent.saturating_add(if matches!(lock, State::Several(_)) { SEVERAL } else { 1 });
    let (record, since) = (lock.last_to_end()?, lock.held_since()?);
    Some((record.token, record.owner.map(Owner::as_bytes).map(Into::into), now.since(since).as_ms()))
}
