//! `LOCK.INFO key`
//!
//! Who holds the lock, since when, for how long. Reply: a map, a flat array in RESP2, always with
//! all fields in this order: state, token, id, owner, timestamp, held-ms, lease-ms, free-in-ms,
//! overdue-ms, session, waiters, oldest-wait-ms; nil where one has no meaning. Readonly.
//! Errors: `ERR`, `WRONGTYPE`. O(1).

use super::parse::Options;
use crate::lock::error::Error;
use crate::lock::record::{timestamp_text, Owner};
use crate::lock::rules::{self, State};
use crate::lock::time::UnixMicros;
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::{clock, settings, state};

const NAME: &str = "LOCK.INFO";

/// Runs the command.
///
/// # Errors
/// What the caller is told.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let Some(name) = args.string(0) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    Options::parse(&args, 1, NAME, &[])?;
    let key = Key::open_read_only(context, name)?;
    let (waiters, oldest) = state::with(|state| state.queues.length(context.selected_db(), name.as_bytes()))?;
    context.reply_map(12);
    reply_key(context, &key);
    let waiters = (!context.is_replica()).then(|| u64::try_from(waiters).unwrap_or(u64::MAX));
    let oldest_wait_ms = oldest.map(|since| clock::monotonic().since(since).as_ms());
    field(context, "session", Context::reply_nil);
    field(context, "waiters", |context| context.reply_count_or_nil(waiters));
    field(context, "oldest-wait-ms", |context| context.reply_count_or_nil(oldest_wait_ms));
    Ok(())
}

fn field(context: &Context, name: &str, reply: impl FnOnce(&Context)) {
    context.reply_bytes(name.as_bytes());
    reply(context);
}

/// The fields that the key itself tells.
fn reply_key(context: &Context, key: &Key<'_>) {
    let now = clock::now();
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
