//! `LOCK.HELP`
//!
//! Reply: an array of lines, like the HELP of other commands. O(1).

use super::doc::{Doc, Flags, Keys};
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::entries::{Command, Entry};
use std::ffi::CStr;

const LINES: [&CStr; 36] = [
    c"LOCK.<command> <key> [<arg> ...]. A lock is a key; its lease is given with EX or PX. Commands are:",
    c"ACQUIRE <key> EX <seconds>|PX <milliseconds> [WAIT <milliseconds>] [ID <id>] [OWNER <name>] [SESSION] [DETAILS] [SHARED|LIMIT <n>] [NOTIFY <channel>|SNOTIFY <channel>] [RESULT]",
    c"    Take the lock if nobody has it, or wait for it in a queue. Return its token, or nil.",
    c"    With SHARED, share it with others that share it too; with LIMIT <n>, with fewer than n others.",
    c"    With NOTIFY, return WAITING and wait without a blocked connection. The channel gets",
    c"    'granted <id> <key>' when it is your turn: send the same call again to claim the lock.",
    c"    With RESULT, return the holder's result in an array if it releases the lock with one.",
    c"RECOVER <key> EX <seconds>|PX <milliseconds> [ID <id>] [OWNER <name>] [SESSION]",
    c"    Take the lock over only if it has expired. Return the token, how many milliseconds ago it expired,",
    c"    the previous token and the previous owner, or nil.",
    c"EXTEND <key> <token> EX <seconds>|PX <milliseconds>",
    c"    Set a new lease on a lock that is held. Return 1, or 0 if that grant has ended.",
    c"RELEASE <key> <token> [RESULT <value>]",
    c"    Release the lock. Return 1, or -1 if it had expired but nobody had taken it,",
    c"    or 0 if that grant had ended.",
    c"    With RESULT, all that wait for a result get this one, and leave the queue.",
    c"CHECK <key> <token>",
    c"    Return the milliseconds of lease left to the holder of that token, or 0.",
    c"CANCEL <key> <id>",
    c"    End an attempt that waits, keeps a place or holds the lock. Return 1, or 0 if there was none.",
    c"CANCEL <key> CHANNEL <name>",
    c"    End all attempts for the key that are notified on that channel. Return their number.",
    c"MACQUIRE <numkeys> <key> [<key> ...] EX <seconds>|PX <milliseconds> [WAIT <milliseconds>] [ID <id>] [OWNER <name>] [SESSION] [NOTIFY <channel>|SNOTIFY <channel>]",
    c"    Take all of these locks, or wait for them. Return one token for all, or nil.",
    c"MEXTEND <numkeys> <key> [<key> ...] <token> EX <seconds>|PX <milliseconds>",
    c"    Set a new lease on all of these locks. Return 1, or 0 if any of the grants has ended.",
    c"MRELEASE <numkeys> <key> [<key> ...] <token>",
    c"    Release these locks. Return how many that grant still held.",
    c"INFO <key> [FULL]",
    c"    Return who holds the lock, since when and for how long; with FULL, who is waiting.",
    c"TOP [COUNT <n>] [BY waiters|wait|held]",
    c"    Return the locks of this server with the longest queues, the longest waits, or held longest.",
    c"SCAN <cursor> [MATCH <pattern>] [COUNT <n>] [STATE held|expired|foreign] [CLIENT <id>]",
    c"    Iterate over the locks of this database; with CLIENT, over those of one connection.",
    c"HELP",
    c"    Print this help.",
];

pub struct Help;

impl Command for Help {
    const DOC: &'static Doc = &Doc {
        name: c"lock.help",
        summary: c"Returns a summary of the commands.",
        complexity: c"O(1)",
        arity: 1,
        flags: Flags::Help,
        keys: Keys::None,
        args: &[],
    };

    fn run(context: &Context, _entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error> {
        if args.count() != 0 {
            context.reply_wrong_arity();
            return Ok(());
        }
        context.reply_array(i64::try_from(LINES.len()).unwrap_or(0));
        for line in LINES {
            context.reply_status(line);
        }
        Ok(())
    }
}
