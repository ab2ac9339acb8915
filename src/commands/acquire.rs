//! `LOCK.ACQUIRE key EX seconds|PX milliseconds [WAIT milliseconds] [ID id] [OWNER name] [SESSION] [DETAILS]
//! [SHARED|LIMIT n] [NOTIFY channel|SNOTIFY channel] [RESULT]`
//!
//! Takes the lock if it is free or expired. With `WAIT` the client blocks until it is its turn, except in a transaction
//! or a script. With `SESSION` the lock ends one margin after the connection does. With `SHARED` the caller shares the
//! lock with all others that share it too, with `LIMIT` with fewer than n others. With `NOTIFY` or `SNOTIFY` the
//! attempt waits without a blocked client: it gets `WAITING`, is notified on the channel when it is granted the lock,
//! and claims the lock with the same command within `lock.claim-ms`. With `RESULT` a caller that waits gets the
//! holder's result, if the holder releases the lock with one.
//!
//! Reply: the token (integer), or nil if somebody else has the lock, with `WAIT` once the wait has ended; with
//! `DETAILS` an array of token, overdue-ms, previous token, previous owner; the holder's result is an array of one bulk
//! string. If the same ID asks again, it gets its
//! token if it holds the lock, and its lease never becomes shorter; if it waits, it keeps its place. Errors: `ERR`,
//! `WRONGTYPE`, `CLOCK`, `OOM`, `BUSYLOCKS`, `DEADLOCK`, `GRACE`, `NOREPLICAS`, `UNBLOCKED`, `NOPERM`. O(1) without
//! waiters, O(log n) in the waiters and the holders.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Name};
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::clients::publish;
use crate::server::clients::reply;
use crate::server::entries::{Command, Entry};

const NAME: &str = "LOCK.ACQUIRE";
const OPTIONS: [Name; 12] = [
    Name::Ex,
    Name::Px,
    Name::Wait,
    Name::Id,
    Name::Owner,
    Name::Session,
    Name::Details,
    Name::Shared,
    Name::Limit,
    Name::Notify,
    Name::Snotify,
    Name::Result,
];

pub struct Acquire;

impl Command for Acquire {
    const DOC: &'static Doc = &Doc {
        name: c"lock.acquire",
        summary: c"Takes the lock if nobody has it, or waits for it in a queue. Returns a fencing token.",
        complexity: c"O(1) without waiters, O(log N) in them and in the holders",
        arity: -4,
        flags: Flags::WriteDenyOomBlocking,
        keys: Keys::First(KeyAccess::AccessUpdate),
        args: &[
            doc::KEY,
            doc::LEASE,
            doc::WAIT,
            doc::ID,
            doc::OWNER,
            doc::SESSION,
            doc::DETAILS,
            doc::SHARE,
            doc::NOTIFY,
            doc::WANTS_RESULT,
        ],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let (Some(name), 3..) = (args.string(0), args.count()) else {
            context.reply_wrong_arity();
            return Ok(());
        };
        parse::key_to_take(name.as_bytes())?;
        let ask = parse::ask(&args, 1, NAME, &OPTIONS)?;
        if let Some(notify) = ask.notify {
            publish::check(context, name.as_bytes(), notify)?;
        }
        reply::outcome(context, entry.acquire(name, &ask)?, ask.shape);
        Ok(())
    }
}
