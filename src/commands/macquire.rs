//! `LOCK.MACQUIRE numkeys key [key ...] EX seconds|PX milliseconds [WAIT milliseconds] [ID id] [OWNER name] [SESSION]
//! [NOTIFY channel|SNOTIFY channel]`
//!
//! Takes several locks: all or none. While the command waits, it neither holds nor reserves any of them. It waits in
//! the queue of one key that it cannot have, and is tried when that key becomes free. So it can neither deadlock nor
//! delay others. With `NOTIFY` or `SNOTIFY` it waits without a blocked client, as LOCK.ACQUIRE does.
//!
//! Reply: one token for all keys, or nil, with `WAIT` once the wait has ended. If the same ID asks again and holds all
//! of them, it gets its token. In a cluster the keys share a slot. Errors: as for LOCK.ACQUIRE. O(k) in the keys, and
//! O(log n) in the waiters of one of them.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Name};
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::{Arg, Context};
use crate::server::clients::publish;
use crate::server::clients::reply;
use crate::server::entries::{Command, Entry};
use crate::server::keys::served;
use std::ops::Range;

const NAME: &str = "LOCK.MACQUIRE";
const OPTIONS: [Name; 8] =
    [Name::Ex, Name::Px, Name::Wait, Name::Id, Name::Owner, Name::Session, Name::Notify, Name::Snotify];
/// `EX seconds`
const BEHIND: usize = 2;

pub struct Macquire;

impl Command for Macquire {
    const DOC: &'static Doc = &Doc {
        name: c"lock.macquire",
        summary: c"Takes several locks at once, all or nothing, or waits for them. Returns one fencing token.",
        complexity: c"O(K + log N) with K keys, N the waiters of one of them",
        arity: -5,
        flags: Flags::WriteDenyOomBlocking,
        keys: Keys::Counted(KeyAccess::AccessUpdate),
        args: &[doc::NUMKEYS, doc::KEYS, doc::LEASE, doc::WAIT, doc::ID, doc::OWNER, doc::SESSION, doc::NOTIFY],
    };

    fn keys(args: &Args<'_>) -> Result<Range<usize>, Error> {
        parse::keys(args, BEHIND)
    }

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        if args.count() < 4 {
            context.reply_wrong_arity();
            return Ok(());
        }
        let keys = Self::keys(&args)?;
        parse::keys_to_take(&args, keys.clone())?;
        let ask = parse::ask(&args, keys.end, NAME, &OPTIONS)?;
        let names: Vec<Arg<'_>> = keys.filter_map(|at| args.string(at)).collect();
        served::check_all(context, &names)?;
        if let (Some(notify), Some(first)) = (ask.notify, names.first()) {
            publish::check(context, first.as_bytes(), notify)?;
        }
        reply::outcome(context, entry.acquire_all(&names, &ask)?, ask.shape);
        Ok(())
    }
}
