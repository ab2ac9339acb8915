//! `LOCK.INFO key [FULL]`
//!
//! Shows who holds the lock, since when, and for how long. Reply: a map (a flat array in RESP2) that always has these
//! fields, in this order: state, token, id, owner, timestamp, held-ms, lease-ms, free-in-ms, overdue-ms, session,
//! client, addr, waiters, oldest-wait-ms. A field that does not apply is nil. client and addr are the connection that
//! was granted the lock, while it is connected; without SESSION they are known for the last 10,000 grants only. `FULL`
//! adds queue: an array of at most 1000 maps of id, client, addr, name, owner, waited-ms, left-ms, channel. client,
//! addr and name are nil for an attempt that waits without a connection, channel for one that is blocked; name is also
//! nil once the rows before it contain 128 kB of names. Read-only. A lock that was granted to an attempt without a
//! connection but not claimed yet counts as held; lease-ms is 0, and free-in-ms is the time left to claim it.
//!
//! With several holders the fields describe the last one to expire, and free-in-ms is when a caller could have the lock
//! alone. `FULL` adds holders before queue: an array of at most 1000 maps of token, id, owner, timestamp, held-ms,
//! lease-ms, overdue-ms, session, client, addr, in order of expiry. Errors: `ERR`, `WRONGTYPE`. O(1); with `FULL` O(n)
//! in the waiters and holders shown.

use super::doc::{self, Arg, Doc, Flags, KeyAccess, Keys, Kind};
use super::parse::{Name, Options};
use crate::driver::{Key as _, Operator};
use crate::engine::queue::{Channel, Waiter};
use crate::engine::KeyName;
use crate::lock::error::Error;
use crate::lock::held;
use crate::lock::holders::Holders;
use crate::lock::record::{timestamp_text, Encoded, Id, Owner, OwnerBuf, Record};
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::clients::client::Client;
use crate::server::clock;
use crate::server::entries::{Command, Entry};
use crate::server::keys::key::Key;
use std::rc::Rc;

const NAME: &str = "LOCK.INFO";
const MOST_ROWS: usize = 1_000;
/// How many bytes of client names one reply shows: a client's name can be megabytes long.
const MOST_NAMES: usize = 128 << 10;

pub struct Info;

impl Command for Info {
    const DOC: &'static Doc = &Doc {
        name: c"lock.info",
        summary: c"Returns who holds the lock, since when, for how long, and who is waiting.",
        complexity: c"O(1); with FULL O(N) in the waiters and holders shown",
        arity: -2,
        flags: Flags::ReadSlow,
        keys: Keys::First(KeyAccess::Access),
        args: &[doc::KEY, Arg { name: c"full", kind: Kind::Token, token: Some(c"FULL"), optional: true }],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let Some(name) = args.string(0) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        let options = Options::parse(&args, 1, NAME, &[Name::Full])?;
        let key = Key::inspect(context, name, clock::of_command())?;
        let lock = key.lock();
        let key_name = KeyName::new(context.selected_db(), name.as_bytes());
        let (waiters, oldest) = entry.engine().queues().length(key_name);
        let is_replica = context.is_replica();
        let waiters = (!is_replica).then(|| u64::try_from(waiters).unwrap_or(u64::MAX));
        let oldest_wait_ms = oldest.map(|since| clock::monotonic().since(since).as_ms());
        let token = lock.last_to_end().filter(|_| !lock.is_nobodys()).map(|record| record.token);
        let session = session_of(entry, key_name, token);
        let grantee = grantee(context, entry, key_name, token);
        let unclaimed = unclaimed(entry, key_name, token);
        let holders = if let State::Several(holders) = lock { Some(holders).filter(|_| options.full) } else { None };

        let terms = entry.edge().terms();
        let fields = if options.full { 15 } else { 14 };
        context.reply_map(if holders.is_some() { 16 } else { fields });
        reply_key(context, terms, &key, unclaimed);
        field(context, "session", |context| context.reply_count_or_nil(session));
        reply_grantee(context, grantee);
        field(context, "waiters", |context| context.reply_count_or_nil(waiters));
        field(context, "oldest-wait-ms", |context| context.reply_count_or_nil(oldest_wait_ms));
        if let Some(holders) = holders {
            field(context, "holders", |context| reply_holders(context, entry, key_name, holders, &key));
        }
        if options.full {
            field(context, "queue", |context| {
                if is_replica {
                    context.reply_nil_array();
                } else {
                    reply_queue(context, entry, key_name);
                }
            });
        }
        Ok(())
    }
}

/// The connection that a grant is bound to.
fn session_of(entry: &mut Entry<'_>, key: KeyName<'_>, token: Option<Token>) -> Option<u64> {
    entry.engine().sessions().binding(key, token?).map(|binding| binding.client)
}

/// The connection that was granted a lock: its number, and the client itself, while it is connected.
pub type Grantee = Option<(u64, Client)>;

/// A grant's connection, if known.
pub fn grantee(context: &Context, entry: &mut Entry<'_>, key: KeyName<'_>, token: Option<Token>) -> Grantee {
    let id = entry.engine().grantee(key, token?)?;
    Some((id, Client::find(context, id)?))
}

/// client, addr
pub fn reply_grantee(context: &Context, grantee: Grantee) {
    let address = grantee.as_ref().map(|(_, client)| client.address());
    field(context, "client", |context| context.reply_count_or_nil(grantee.map(|(id, _)| id)));
    field(context, "addr", |context| context.reply_bytes_or_nil(address.as_deref().map(str::as_bytes)));
}

/// How long a grant can still be claimed: zero if it is about to be passed on; `None` if it needs no claim.
fn unclaimed(entry: &mut Entry<'_>, key: KeyName<'_>, token: Option<Token>) -> Option<Micros> {
    let (engine, token) = (entry.engine(), token?);
    match engine.unclaimed(key, token) {
        Some(claim) => Some(claim.deadline.since(clock::monotonic())),
        None => engine.is_unclaimed(key, token).then_some(Micros(0)),
    }
}

/// Replies with a field: its name and its value.
pub fn field(context: &Context, name: &str, reply: impl FnOnce(&Context)) {
    context.reply_bytes(name.as_bytes());
    reply(context);
}

/// The holders of a lock with several holders, at most [`MOST_ROWS`].
fn reply_holders(context: &Context, entry: &mut Entry<'_>, name: KeyName<'_>, holders: &Holders, key: &Key<'_>) {
    let (now, terms) = (key.now(), entry.edge().terms());
    context.reply_array(i64::try_from(holders.len().min(MOST_ROWS)).unwrap_or(0));
    for holder in holders.iter().take(MOST_ROWS) {
        let record = holder.record();
        let (is_over, value) = (holders.is_over(holder), record.encode());
        let token = Some(record.token).filter(|_| !is_over);
        let (session, grantee) = (session_of(entry, name, token), grantee(context, entry, name, token));
        let is_unclaimed = unclaimed(entry, name, Some(record.token)).is_some();
        let held_at = if is_over { None } else { Some(now) };
        context.reply_map(10);
        reply_record(context, terms, Some(&record), Some(value.score()), held_at, is_unclaimed);
        let overdue_ms = is_over.then(|| now.since(record.timestamp).as_ms());
        field(context, "overdue-ms", |context| context.reply_count_or_nil(overdue_ms));
        field(context, "session", |context| context.reply_count_or_nil(session));
        reply_grantee(context, grantee);
    }
}

/// A waiter, as the queue knows it.
struct Row {
    id: Option<Id>,
    client: Option<u64>,
    channel: Option<Rc<Channel>>,
    owner: Option<OwnerBuf>,
    waited_ms: u64,
    left_ms: u64,
}

/// The waiters, in order, at most [`MOST_ROWS`].
fn reply_queue(context: &Context, entry: &mut Entry<'_>, key: KeyName<'_>) {
    let now = clock::monotonic();
    let row = |waiter: &Waiter<_>| Row {
        id: waiter.id,
        client: waiter.client(),
        channel: waiter.channel().cloned(),
        owner: waiter.owner.clone(),
        waited_ms: now.since(waiter.since).as_ms(),
        left_ms: waiter.until.since(now).as_ms_ceil(),
    };
    let rows: Vec<Row> = entry.engine().queues().waiting(key).take(MOST_ROWS).map(row).collect();
    context.reply_array(i64::try_from(rows.len()).unwrap_or(0));
    let mut left = MOST_NAMES;
    for row in rows {
        let id = row.id.map(|id| id.get().to_string());
        let address = row.client.and_then(|client| Client::find(context, client)).map(|client| client.address());
        let name = row.client.filter(|_| left > 0).and_then(|client| Client::name(context, client));
        left = left.saturating_sub(name.as_ref().map_or(0, |name| name.len()));
        let channel = row.channel.as_ref().map(|channel| channel.name.as_ref());
        context.reply_map(8);
        field(context, "id", |context| context.reply_bytes_or_nil(id.as_deref().map(str::as_bytes)));
        field(context, "client", |context| context.reply_count_or_nil(row.client));
        field(context, "addr", |context| context.reply_bytes_or_nil(address.as_deref().map(str::as_bytes)));
        field(context, "name", |context| context.reply_bytes_or_nil(name.as_deref()));
        let owner = row.owner.as_ref().map(|owner| owner.as_owner().as_bytes());
        field(context, "owner", |context| context.reply_bytes_or_nil(owner));
        field(context, "waited-ms", |context| context.reply_count(row.waited_ms));
        field(context, "left-ms", |context| context.reply_count(row.left_ms));
        field(context, "channel", |context| context.reply_bytes_or_nil(channel));
    }
}

/// The fields read from the key itself.
fn reply_key(context: &Context, terms: Terms, key: &Key<'_>, unclaimed: Option<Micros>) {
    let now = key.now();
    let lock = key.lock();
    let record = lock.last_to_end();
    let is_nobodys = lock.is_nobodys();
    let text = key.value().zip(key.bytes()).and_then(|(value, bytes)| timestamp_text(value, bytes));
    let several = record.filter(|_| matches!(lock, State::Several(_))).map(|record| record.encode());
    let text = text.or(several.as_ref().map(Encoded::score));
    let free_in_ms = match lock {
        State::Foreign => key.expires_in_ms(),
        // With several holders, one grant alone does not decide when the lock is free.
        State::Held(..) if unclaimed.is_some() => unclaimed.map(Micros::as_ms_ceil),
        lock => Some(lock.free_at(Share::Alone).map_or(0, |until| until.since(now).as_ms_ceil())),
    };
    let ended = match lock {
        State::Expired(ended, _) => Some(ended),
        _ => record.filter(|_| is_nobodys).map(|record| record.timestamp),
    };
    let overdue_ms = ended.map(|ended| now.since(ended).as_ms());

    field(context, "state", |context| context.reply_bytes(lock.name().as_bytes()));
    reply_record(context, terms, record.as_ref(), text, (!is_nobodys).then_some(now), unclaimed.is_some());
    field(context, "free-in-ms", |context| context.reply_count_or_nil(free_in_ms));
    field(context, "overdue-ms", |context| context.reply_count_or_nil(overdue_ms));
}

/// token, id, owner, timestamp, held-ms, lease-ms; the last two only if the lock is held at that time.
fn reply_record(
    context: &Context,
    terms: Terms,
    record: Option<&Record<'_>>,
    text: Option<&[u8]>,
    held_at: Option<UnixMicros>,
    is_unclaimed: bool,
) {
    let held = record.zip(held_at);
    let id = record.and_then(|record| record.id).map(|id| id.get().to_string());
    let owner = record.and_then(|record| record.owner);
    let held_ms = held.map(|(record, now)| now.since(UnixMicros(record.token.get())).as_ms());
    let lease_ms =
        held.map(|(record, now)| if is_unclaimed { 0 } else { held::lease_left(record, terms, now).as_ms() });
    field(context, "token", |context| context.reply_count_or_nil(record.map(|record| record.token.get())));
    field(context, "id", |context| context.reply_bytes_or_nil(id.as_deref().map(str::as_bytes)));
    field(context, "owner", |context| context.reply_bytes_or_nil(owner.map(Owner::as_bytes)));
    field(context, "timestamp", |context| context.reply_bytes_or_nil(text));
    field(context, "held-ms", |context| context.reply_count_or_nil(held_ms));
    field(context, "lease-ms", |context| context.reply_count_or_nil(lease_ms));
}
