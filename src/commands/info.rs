//! `LOCK.INFO key [FULL]`
//!
//! Who holds the lock, since when, for how long. Reply: a map, a flat array in RESP2, always with
//! all fields in this order: state, token, id, owner, timestamp, held-ms, lease-ms, free-in-ms,
//! overdue-ms, session, waiters, oldest-wait-ms; nil where one has no meaning. `FULL` adds queue:
//! array of maps id, client, addr, name, owner, waited-ms, left-ms, at most 1000. Readonly.
//! Errors: `ERR`, `WRONGTYPE`. O(1); with `FULL` O(n) in the waiters shown.

use super::doc::{self, Arg, Doc, Flags, KeyAccess, Kind};
use super::parse::{Name, Options};
use crate::lock::error::Error;
use crate::lock::record::{timestamp_text, Id, Owner, OwnerBuf};
use crate::lock::rules::{self, State};
use crate::lock::time::UnixMicros;
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::session::{self, Client};
use crate::server::{clock, settings, state};

const NAME: &str = "LOCK.INFO";
const MOST_ROWS: usize = 1_000;

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.info",
    summary: c"Returns who holds the lock, since when, for how long, and who waits.",
    complexity: c"O(1); with FULL O(N) in the waiters shown",
    arity: -2,
    flags: Flags::ReadSlow,
    key: Some(KeyAccess::Access),
    args: &[doc::KEY, Arg { name: c"full", kind: Kind::Token, token: Some(c"FULL"), optional: true }],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let Some(name) = args.string(0) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let options = Options::parse(&args, 1, NAME, &[Name::Full])?;
    let key = Key::open_read_only(context, name)?;
    let db = context.selected_db();
    let (waiters, oldest) = state::with(|state| state.queues.length(db, name.as_bytes()))?;
    let is_replica = context.is_replica();
    let waiters = (!is_replica).then(|| u64::try_from(waiters).unwrap_or(u64::MAX));
    let oldest_wait_ms = oldest.map(|since| clock::monotonic().since(since).as_ms());
    let token = match State::of(key.value(), clock::of_command()) {
        State::Held(_, Some(record)) => Some(record.token),
        _ => None,
    };
    let session = session::client_of(context, name, token)?;

    context.reply_map(if options.full { 13 } else { 12 });
    reply_key(context, &key);
    field(context, "session", |context| context.reply_count_or_nil(session));
    field(context, "waiters", |context| context.reply_count_or_nil(waiters));
    field(context, "oldest-wait-ms", |context| context.reply_count_or_nil(oldest_wait_ms));
    if options.full {
        field(context, "queue", |context| {
            if is_replica {
                context.reply_nil_array();
            } else {
                reply_queue(context, db, name.as_bytes());
            }
        });
    }
    Ok(())
}

/// Replies with the name of a field and its value.
pub fn field(context: &Context, name: &str, reply: impl FnOnce(&Context)) {
    context.reply_bytes(name.as_bytes());
    reply(context);
}

/// One who waits, as far as the queue knows.
struct Row {
    id: Option<Id>,
    client: u64,
    owner: Option<OwnerBuf>,
    waited_ms: u64,
    left_ms: u64,
}

/// Those who wait, in order, at most [`MOST_ROWS`].
fn reply_queue(context: &Context, db: i32, name: &[u8]) {
    let now = clock::monotonic();
    let rows: Vec<Row> = state::with(|state| {
        let waiting = state.queues.waiting(db, name).take(MOST_ROWS);
        waiting
            .map(|waiter| Row {
                id: waiter.id,
                client: waiter.client,
                owner: waiter.owner.clone(),
                waited_ms: now.since(waiter.since).as_ms(),
                left_ms: waiter.until.since(now).as_ms_ceil(),
            })
            .collect()
    })
    .unwrap_or_default();
    context.reply_array(i64::try_from(rows.len()).unwrap_or(0));
    for row in rows {
        let id = row.id.map(|id| id.get().to_string());
        let address = Client::find(row.client).map(|client| client.address());
        let name = Client::name(context, row.client);
        context.reply_map(7);
        field(context, "id", |context| context.reply_bytes_or_nil(id.as_deref().map(str::as_bytes)));
        field(context, "client", |context| context.reply_count(row.client));
        field(context, "addr", |context| context.reply_bytes_or_nil(address.as_deref().map(str::as_bytes)));
        field(context, "name", |context| context.reply_bytes_or_nil(name.as_deref()));
        let owner = row.owner.as_ref().map(|owner| owner.as_owner().as_bytes());
        field(context, "owner", |context| context.reply_bytes_or_nil(owner));
        field(context, "waited-ms", |context| context.reply_count(row.waited_ms));
        field(context, "left-ms", |context| context.reply_count(row.left_ms));
    }
}

/// The fields that the key itself tells.
fn reply_key(context: &Context, key: &Key<'_>) {
    let now = clock::of_command();
    let value = key.value();
    let state = State::of(value, now);
    let record = match state {
        State::Held(_, record) | State::Expired(_, record) => record,
        State::Free | State::Foreign => None,
    };
    let text = value.zip(key.bytes()).and_then(|(value, bytes)| timestamp_text(value, bytes));
    let held = record.filter(|_| matches!(state, State::Held(..)));
    let free_in_ms = match state {
        State::Free | State::Expired(..) => Some(0),
        State::Held(until, _) => Some(until.since(now).as_ms_ceil()),
        State::Foreign => key.expires_in_ms(),
    };
    let overdue_ms = match state {
        State::Expired(ended, _) => Some(now.since(ended).as_ms()),
        _ => None,
    };
    let id = record.and_then(|record| record.id).map(|id| id.get().to_string());
    let owner = record.and_then(|record| record.owner);
    let held_ms = held.map(|record| now.since(UnixMicros(record.token.get())).as_ms());
    let lease_ms = held.map(|record| rules::lease_left(&record, settings::terms(), now).as_ms());

    field(context, "state", |context| context.reply_bytes(state.name().as_bytes()));
    field(context, "token", |context| context.reply_count_or_nil(record.map(|record| record.token.get())));
    field(context, "id", |context| context.reply_bytes_or_nil(id.as_deref().map(str::as_bytes)));
    field(context, "owner", |context| context.reply_bytes_or_nil(owner.map(Owner::as_bytes)));
    field(context, "timestamp", |context| context.reply_bytes_or_nil(text));
    field(context, "held-ms", |context| context.reply_count_or_nil(held_ms));
    field(context, "lease-ms", |context| context.reply_count_or_nil(lease_ms));
    field(context, "free-in-ms", |context| context.reply_count_or_nil(free_in_ms));
    field(context, "overdue-ms", |context| context.reply_count_or_nil(overdue_ms));
}
