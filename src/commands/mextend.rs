//! `LOCK.MEXTEND numkeys key [key ...] token EX seconds|PX milliseconds`
//!
//! Sets the lease of several locks that one grant still holds, counted from now: of all or of none.
//!
//! Reply: 1; 0 when any of them is over, and nothing has changed then. Errors: `ERR`, `WRONGTYPE`, `CLOCK`,
//! `NOREPLICAS`. O(k) in the keys.

use super::doc::{self, Doc, Flags, KeyAccess, Keys};
use super::parse::{self, Arguments, Name, Options};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::rules::{self, State};
use crate::server::context::{Args, Context};
use crate::server::grant::Plan;
use crate::server::key::Key;
use crate::server::stats::{self, Counter};
use crate::server::{clock, failover, settings};

const NAME: &str = "LOCK.MEXTEND";
const OPTIONS: [Name; 2] = [Name::Ex, Name::Px];
/// `token EX seconds`
const BEHIND: usize = 3;

/// What the server is told of it.
pub const DOC: Doc = Doc {
    name: c"lock.mextend",
    summary: c"Sets the lease of several locks, if all of them are still held.",
    complexity: c"O(K) in the keys",
    arity: -6,
    flags: Flags::WriteSlow,
    keys: Keys::Counted(KeyAccess::Update),
    args: &[doc::NUMKEYS, doc::KEYS, doc::TOKEN, doc::LEASE],
};

/// Runs the command.
///
/// # Errors
/// What the caller is told; nothing has changed then.
pub fn run(context: &Context, args: Args<'_>) -> Result<(), Error> {
    if context.is_asked_for_keys() {
        context.tell_keys(parse::keys(&args, BEHIND), DOC.keys);
        return Ok(());
    }
    if args.count() < 5 {
        context.reply_wrong_arity();
        return Ok(());
    }
    let keys = parse::keys(&args, BEHIND)?;
    parse::different_keys(&args, keys.clone())?;
    let token = parse::token(args.at(keys.end).unwrap_or_default())?;
    let lease = Options::parse(&args, keys.end.saturating_add(1), NAME, &OPTIONS)?.lease()?;
    failover::check_lease(context, lease)?;
    let now = clock::of_command();
    let opened: Result<Vec<Key<'_>>, Error> =
        keys.filter_map(|at| args.string(at)).map(|name| Key::open(context, name, now)?.with_grant(token)).collect();
    let opened = opened?;
    let states: Vec<State<'_>> = opened.iter().map(Key::state).collect();
    let extended = rules::extend_all(&states, token, lease, settings::terms(), now)?;
    let plans: Option<Vec<Plan>> = extended.map(|records| records.iter().map(Plan::to_extend).collect());
    let Some(plans) = plans else {
        if broken::is(Mutant::ExtendsPart) {
            for key in opened {
                let part = rules::extend(key.state(), token, lease, settings::terms(), now)?;
                let plan = part.map(|record| Plan::to_extend(&record));
                plan.map(|plan| plan.carry_out(key)).transpose()?;
            }
        }
        stats::add(Counter::StaleTokens);
        context.reply_integer(0);
        return Ok(());
    };
    failover::may_extend(context)?;
    Plan::carry_all_out(plans.into_iter().zip(opened).collect())?;
    context.reply_integer(1);
    Ok(())
}
