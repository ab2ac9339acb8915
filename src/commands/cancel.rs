//! `LOCK.CANCEL key id`, `LOCK.CANCEL key CHANNEL name`
//!
//! Ends an attempt. If it waits, its client gets nil, or a message on its channel. If it has a reserved place in the
//! queue, it loses that place. If it holds the lock, the lock is passed on as in LOCK.RELEASE. Late copies of its
//! commands get nil for `lock.place-ms`. With `CHANNEL`, ends all attempts in this queue that are notified on the
//! channel.
//!
//! Reply: 1 if the ID was waiting, had a place, or held the lock; else 0. With `CHANNEL`, the number of attempts that
//! it ended. Errors: `ERR`, `WRONGTYPE`. O(log n) in the waiters.

use super::doc::{self, Arg, Doc, Flags, KeyAccess, Keys, Kind};
use super::parse;
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::entries::{Command, Entry};

const NAME: &str = "LOCK.CANCEL";

pub struct Cancel;

impl Command for Cancel {
    const DOC: &'static Doc = &Doc {
        name: c"lock.cancel",
        summary: c"Ends an attempt, whether it waits, keeps a place or holds the lock; or all those of a channel.",
        complexity: c"O(log N) in the waiters; with CHANNEL O(M log N) for M attempts that it ends",
        arity: -3,
        flags: Flags::WriteSlow,
        keys: Keys::First(KeyAccess::Delete),
        args: &[
            doc::KEY,
            Arg {
                name: c"attempt",
                kind: Kind::OneOf(&[
                    Arg { name: c"id", kind: Kind::Integer, token: None, optional: false },
                    Arg { name: c"channel", kind: Kind::String, token: Some(c"CHANNEL"), optional: false },
                ]),
                token: None,
                optional: false,
            },
        ],
    };

    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        let count = args.count();
        if let Some(name) = args.at(0).filter(|_| (2..=3).contains(&count)) {
            parse::key_to_take(name)?;
        }
        match (args.string(0), args.at(1), args.at(2), count) {
            (Some(name), Some(id), None, 2) => {
                context.reply_integer(i64::from(entry.cancel(name, parse::id(id)?)?));
            }
            (Some(name), Some(word), Some(channel), 3) if word.eq_ignore_ascii_case(b"CHANNEL") => {
                let ended = entry.cancel_channel(name, parse::channel(channel)?);
                context.reply_integer(i64::try_from(ended).unwrap_or(i64::MAX));
            }
            (.., 3) => return Err(Error::NotAnOption { position: 2, command: NAME }),
            _ => context.reply_wrong_arity(),
        }
        Ok(())
    }
}
