//! `LOCK.EXTEND key token EX seconds|PX milliseconds`
//!
//! Sets the lease of a grant that is still held, counted from now; it may become shorter.
//!
//! Reply: 1; 0 when that grant is over. Errors: `ERR`, `WRONGTYPE`, `CLOCK`. O(1).

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments, Name, Options};
use crate::lock::error::Error;
use crate::lock::rules::{self, Holds};
use crate::server::context::{Args, Context};
use crate::server::key::Key;
use crate::server::stats::{self, Counter};
use crate::server::tell;
use crate::server::{clock, failover, settings};

const NAME: &str = "LOCK.EXTEND";
const OPTIONS: [Name; 2] = [Name::Ex, Name::Px];

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.extend",
    summary: c"Sets the lease of a lock that is still held.",
    complexity: c"O(1)",
    arity: 5,
    flags: Flags::Write,
    keys: Keys::First(KeyAccess::Update),
    args: &[doc::KEY, doc::TOKEN, doc::LEASE],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    let (Some(key), Some(token), 4) = (args.string(0), args.at(1), args.count()) else {
        context.reply_wrong_arity();
        return Ok(());
    };
    let token = parse::token(token)?;
    let lease = Options::parse(&args, 2, NAME, &OPTIONS)?.lease()?;
    failover::check_lease(context, lease)?;
    let now = clock::of_command();
    let key = Key::open(context, key, now)?.with_grant(token)?;
    let extended = rules::extend(key.state(), token, lease, settings::terms(), now)?;
    let value = extended.map(|record| record.encode());
    match &value {
        Some(value) => {
            failover::may_extend(context)?;
            key.store(value, Holds::AsBefore, &[tell::EXTEND])?;
            stats::add(Counter::Extends);
        }
        None => stats::add(Counter::StaleTokens),
    }
    context.reply_integer(i64::from(value.is_some()));
    Ok(())
}
