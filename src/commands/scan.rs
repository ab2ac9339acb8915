//! `LOCK.SCAN cursor [MATCH pattern] [COUNT n] [STATE held|expired|foreign] [CLIENT id]`
//!
//! Iterates over the locks of this database, as SCAN does: over locks that are held or expired, or over locks in one
//! state. Every string that is not a timestamp is foreign. It returns only keys that the caller may read; servers
//! before 7.0 do not report permissions, and there it is a command for operators.
//!
//! With `CLIENT` it returns the locks that were granted to that connection and that it still holds: all locks with
//! SESSION, and the locks without it among the server's last 10,000 grants. An unknown client has none. A lock with
//! more than 64 holders is found only through grants with SESSION and the last holder to expire.
//!
//! A command ends once it has done about COUNT units of work: each key counts as one, and so does each holder that has
//! to be read, and every 128 bytes of a name. With MATCH, so does each span of 2 microseconds that the server takes to
//! compare names, because the module does not see names that do not match. A command asks the server for one key first,
//! and for more at once while they are cheap: names can be megabytes long, and their size is known only afterwards.
//!
//! Reply: the next cursor, 0 at the end, and an array of maps (flat arrays in RESP2) of key, state, token, owner,
//! free-in-ms, holders (how many hold the lock now). A field that does not apply is nil. Read-only. Errors: `ERR`. O(n)
//! in COUNT.

use super::doc::{Arg, Doc, Flags, Keys, Kind};
use super::info::field;
use super::parse::{self, Name, Options};
use crate::driver::Key as _;
use crate::engine::KeyName;
use crate::lock::error::Error;
use crate::lock::holders::Holder;
use crate::lock::record::{Owner, Record};
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::time::Micros;
use crate::server::api::args::Args;
use crate::server::api::context::{Context, OwnString};
use crate::server::clients::client::Client;
use crate::server::clock;
use crate::server::entries::{Command, Entry};

use crate::server::clients::permissions::Reader;
use crate::server::keys::key::{Glimpse, Key};
use crate::server::keys::scan;

const NAME: &str = "LOCK.SCAN";
const OPTIONS: [Name; 4] = [Name::Match, Name::Count, Name::State, Name::Client];
const DEFAULT_COUNT: usize = 10;
/// The most keys that the server is asked for at once: a command can end only between two pieces, where the server has
/// a cursor.
const PIECE: usize = 16;
/// How many bytes of a name count as one key.
const BYTES: usize = 128;
/// How much CPU time the server may take for a key with MATCH: a typical key takes less.
const MATCHING: Micros = Micros(2);

/// A lock in the reply.
struct Row {
    key: Box<[u8]>,
    state: &'static str,
    token: Option<u64>,
    owner: Option<Box<[u8]>>,
    free_in_ms: Option<u64>,
    holders: Option<u64>,
}

pub struct Scan;

impl Command for Scan {
    const DOC: &'static Doc = &Doc {
        name: c"lock.scan",
        summary: c"Iterates over the locks of this database.",
        complexity: c"O(N) in COUNT",
        arity: -2,
        flags: Flags::ReadUnnamed,
        keys: Keys::None,
        args: &[
            Arg { name: c"cursor", kind: Kind::Integer, token: None, optional: false },
            Arg { name: c"pattern", kind: Kind::String, token: Some(c"MATCH"), optional: true },
            Arg { name: c"count", kind: Kind::Integer, token: Some(c"COUNT"), optional: true },
            Arg { name: c"state", kind: Kind::String, token: Some(c"STATE"), optional: true },
            Arg { name: c"client-id", kind: Kind::Integer, token: Some(c"CLIENT"), optional: true },
        ],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let Some(cursor) = args.at(0) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        let cursor = parse::cursor(cursor)?;
        let options = Options::parse(&args, 1, NAME, &OPTIONS)?;
        let wanted: &[&str] = match options.state {
            None => &["held", "expired"],
            Some(name) if name.eq_ignore_ascii_case(b"held") => &["held"],
            Some(name) if name.eq_ignore_ascii_case(b"expired") => &["expired"],
            Some(name) if name.eq_ignore_ascii_case(b"foreign") => &["foreign"],
            Some(_) => return Err(Error::StateName),
        };
        let count = options.count().unwrap_or(DEFAULT_COUNT);
        // A client that is not connected has no locks, so there is nothing to find.
        let is_gone = options.client.is_some_and(|client| Client::find(context, client).is_none());
        let reader = Reader::of(context);
        let (mut next, mut rows, mut spent): (Box<[u8]>, Vec<Row>, usize) = (cursor.into(), Vec::new(), 0);
        let mut most = 1;
        loop {
            if is_gone {
                next = Box::from(&b"0"[..]);
                break;
            }
            let (before, piece) = (spent, count.saturating_sub(spent).min(most));
            let begun = options.pattern.map(|_| clock::cpu());
            let (cursor, keys) = scan::scan(context, &next, options.pattern, piece).ok_or(Error::Cursor)?;
            next = cursor;
            let matched = begun.map_or(Micros(0), |begun| clock::cpu().since(begun));
            let matched = usize::try_from(matched.0 / MATCHING.0).unwrap_or(usize::MAX);
            let usual = piece.max(keys.len());
            spent = spent.saturating_add(usual.max(matched));
            for key in keys {
                spent = spent.saturating_add(key.len() / BYTES);
                let row = row(context, entry, &reader, key, options.client, &mut spent);
                rows.extend(row.filter(|row| wanted.contains(&row.state)));
            }
            if spent >= count || *next == *b"0" {
                break;
            }
            let is_cheap = spent.saturating_sub(before) <= usual.saturating_mul(2);
            most = if is_cheap { most.saturating_mul(2).min(PIECE) } else { 1 };
        }
        context.reply_array(2);
        context.reply_bytes(&next);
        context.reply_array(i64::try_from(rows.len()).unwrap_or(0));
        for row in rows {
            context.reply_map(6);
            field(context, "key", |context| context.reply_bytes(&row.key));
            field(context, "state", |context| context.reply_bytes(row.state.as_bytes()));
            field(context, "token", |context| context.reply_count_or_nil(row.token));
            field(context, "owner", |context| context.reply_bytes_or_nil(row.owner.as_deref()));
            field(context, "free-in-ms", |context| context.reply_count_or_nil(row.free_in_ms));
            field(context, "holders", |context| context.reply_count_or_nil(row.holders));
        }
        Ok(())
    }
}

/// A key as a lock; `None` if it is not a lock, this reader may not see it, or the client does not hold it. Adds the
/// number of holders read to `spent`.
fn row(
    context: &Context,
    entry: &mut Entry<'_>,
    reader: &Reader<'_>,
    bytes: Box<[u8]>,
    client: Option<u64>,
    spent: &mut usize,
) -> Option<Row> {
    let name = OwnString::of(&bytes).filter(|name| reader.may_read(name.as_arg()))?;
    let now = clock::of_command();
    let key_name = KeyName { db: context.selected_db(), name: &bytes };
    let bindings = client.map(|client| entry.engine().sessions().of_client(key_name, client));
    let wanted = bindings.as_ref().map_or(Glimpse::LAST, |bindings| Glimpse { whole: true, bindings });
    let key = Key::glimpse(context, name.as_arg(), wanted, now).ok()?;
    *spent = spent.saturating_add(key.holders_read());
    let lock = key.lock();
    let free_in_ms = match lock {
        State::Free => return None,
        State::Foreign => key.expires_in_ms(),
        lock => Some(lock.free_at(Share::Alone).map_or(0, |until| until.since(now).as_ms_ceil())),
    };
    let holders = match lock {
        State::Held(..) => Some(1),
        State::Several(holders) => u64::try_from(holders.live()).ok(),
        State::Free | State::Expired(..) => Some(0),
        State::Foreign => None,
    };
    let record = match client {
        Some(client) => Some(held_by(entry, key_name, lock, client)?),
        None => lock.last_to_end(),
    };
    let token = record.map(|record| record.token.get());
    let owner = record.and_then(|record| record.owner).map(|owner: Owner<'_>| owner.as_bytes().into());
    Some(Row { state: lock.name(), token, owner, free_in_ms, holders, key: bytes })
}

/// The grant through which a client holds a lock; of several, the last to expire.
fn held_by<'a>(entry: &mut Entry<'_>, key: KeyName<'_>, lock: State<'a>, client: u64) -> Option<Record<'a>> {
    let engine = entry.engine();
    let is_its = |record: &Record<'_>| engine.is_grantee(key, record.token, client);
    match lock {
        State::Held(_, record) => record.filter(is_its),
        State::Several(holders) => {
            let live = holders.iter().filter(|holder| !holders.is_over(holder)).map(Holder::record);
            live.filter(is_its).last()
        }
        State::Free | State::Expired(..) | State::Foreign => None,
    }
}
