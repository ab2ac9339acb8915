//! Reads the holders of a lock from a sorted set.
//!
//! The server cannot find a member by its token, so a set is read in full. `state/set_cache.rs` keeps sets with more
//! than a few holders in memory from one command to the next. A set in memory counts only while the key agrees:
//!
//! - the key has the same number of members;
//! - its last holder to expire is in the key. Every fourth use also checks one other holder, each in turn: a manual
//!   change is noticed after at most four times as many uses as there are holders;
//! - a grant that is reported as held was found in the key by this command ([`confirmed`]).
//!
//! Reading a set in full drops every other set in memory that contains its last holder: that set's key was renamed,
//! moved or copied. So, as long as only the module writes holders, a set in memory equals its key.
//!
//! A replica keeps no sets in memory: its changes come from the master.

use crate::driver::{Expected, Unseen};
use crate::engine::sessions::Binding;
use crate::engine::KeyName;
use crate::lock::change::Members;
use crate::lock::holders::{self, Holder, Holders};
use crate::lock::record::Record;
use crate::lock::time::UnixMicros;
use crate::server::api::context::{Arg, Context};
use crate::server::keys::zset::{End, Zset};
use crate::server::state::module;
use crate::server::state::set_cache::Set;

/// Sets of up to this many holders are read again each time.
pub const FEW: usize = 2;
/// One use in this many checks one more holder in the key.
const ASK: u8 = 4;
/// Sets of up to this many holders are read in full even if a part would do.
const SOME: usize = 64;

/// The holders in an open sorted set.
///
/// # Errors
/// [`Unseen::WrongType`] if it is not ours, [`Unseen::TooManyHolders`].
pub fn read(zset: &Zset<'_>) -> Result<Box<Set>, Unseen> {
    let count = count(zset)?;
    let key_name = KeyName::new(zset.context().selected_db(), zset.name().as_bytes());
    let kept = module().sets.borrow_mut().take(key_name);
    if let Some(mut kept) = kept.filter(|kept| kept.members.holders.len() == count) {
        if is_current(zset, &mut kept) {
            return Ok(kept);
        }
    }
    load(zset)
}

/// The holders, read in full from the key.
///
/// # Errors
/// The errors of [`read`].
fn load(zset: &Zset<'_>) -> Result<Box<Set>, Unseen> {
    let count = count(zset)?;
    let mut all = Vec::with_capacity(count);
    let mut is_ours = true;
    zset.walk(End::First, |score, member| {
        let holder = Record::read_member(score, member).map(|record| Holder::of(&record));
        is_ours = holder.is_some();
        all.extend(holder);
        is_ours
    });
    let holders: Holders = if count > FEW {
        all.into_iter().collect()
    } else {
        let mut few = Holders::new();
        for holder in all {
            few.put(holder);
        }
        few
    };
    if !is_ours || holders.len() != count {
        return Err(Unseen::WrongType);
    }
    module().sets.borrow_mut().give_up_moved(&holders);
    Ok(Members { holders, ended: Vec::new() }.into())
}

/// Makes sure that the grant a caller expects is in the key, unless the key was just read: a reply reports a grant as
/// held only if the key does.
///
/// # Errors
/// The errors of [`read`].
pub fn confirmed(zset: &Zset<'_>, set: Box<Set>, expected: Expected) -> Result<Box<Set>, Unseen> {
    let holders = &set.members.holders;
    let is_there = match expected {
        _ if !set.was_kept() => true,
        Expected::Nothing | Expected::Attempt(None) => true,
        Expected::Grant(token) => holders.get(token).is_none_or(|holder| has(zset, holder)),
        // It is not known yet which holders are live: that depends on the clock.
        Expected::Attempt(Some(id)) => holders.of_attempt(id).all(|holder| has(zset, holder)),
    };
    if is_there {
        Ok(set)
    } else {
        load(zset)
    }
}

/// The part of a set that is read for one row of many.
#[derive(Clone, Copy)]
pub struct Glimpse<'b> {
    /// Whether all holders of a set with up to 64 are read. If not, and for a larger set, only the last holder to
    /// expire and the number of live holders are read.
    pub whole: bool,
    /// These grants too, if they are in the set.
    pub bindings: &'b [Binding],
}

impl Glimpse<'_> {
    /// The last holder to expire, and the number of live holders.
    pub const LAST: Self = Self { whole: false, bindings: &[] };
}

/// Reads a part of a set. The other members are only counted, so foreign ones among them are not noticed.
///
/// # Errors
/// The errors of [`read`].
pub fn glimpse(zset: &Zset<'_>, wanted: Glimpse<'_>, now: UnixMicros) -> Result<Box<Set>, Unseen> {
    if count(zset)? <= if wanted.whole { SOME } else { FEW } {
        return load(zset);
    }
    let at = |end| {
        let mut found = None;
        zset.walk(end, |score, member| {
            found = Record::read_member(score, member).map(|record| Holder::of(&record));
            false
        });
        found.ok_or(Unseen::WrongType)
    };
    let (_, last) = (at(End::First)?, at(End::Last)?);
    let live = if last.timestamp <= now { 0 } else { zset.live(now).unwrap_or(1).max(1) };
    let bound = wanted.bindings.iter().filter(|binding| binding.token != last.token && binding.until > now);
    let bound: Vec<Holder> = bound.filter_map(|binding| find(zset, binding)).collect();
    Ok(Members { holders: Holders::glimpse(last, bound, live), ended: Vec::new() }.into())
}

/// The holder with the binding's token, found by its timestamp. O(log n) plus the number of holders with the same
/// timestamp.
fn find(zset: &Zset<'_>, binding: &Binding) -> Option<Holder> {
    let mut found = None;
    zset.walk_at(binding.until, |score, member| {
        found = Record::read_member(score, member)
            .filter(|record| record.token == binding.token)
            .map(|record| Holder::of(&record));
        found.is_none()
    });
    found
}

/// Keeps a set in memory for the next command, if it is or was large.
pub fn keep(context: &Context, name: Arg<'_>, mut set: Box<Set>) {
    let hashed_key = set.take_key();
    let Members { holders, ended } = &set.members;
    if holders.is_empty()
        || !ended.is_empty()
        || (hashed_key.is_none() && (holders.len() <= FEW || context.is_replica()))
    {
        return;
    }
    let key_name = KeyName::new(context.selected_db(), name.as_bytes());
    let mut sets = module().sets.borrow_mut();
    let hashed_key = hashed_key.unwrap_or_else(|| sets.hashed_key(key_name));
    sets.put(hashed_key, set);
}

/// Whether a holder is in the key with the timestamp known here.
fn has(zset: &Zset<'_>, holder: &Holder) -> bool {
    zset.timestamp(holder.record().encode().member()) == Some(holder.timestamp)
}

/// Whether the key agrees with the set in memory.
fn is_current(zset: &Zset<'_>, set: &mut Set) -> bool {
    let holders = &set.members.holders;
    let Some(last) = holders.last_to_end() else { return false };
    set.uses = set.uses.wrapping_add(1);
    if !set.uses.is_multiple_of(ASK) {
        return has(zset, last);
    }
    let Some(next) = holders.next(set.asked.unwrap_or(last.token)) else { return false };
    let is_current = has(zset, last) && (next.token == last.token || has(zset, next));
    set.asked = Some(next.token);
    is_current
}

/// The number of members of a sorted set.
fn count(zset: &Zset<'_>) -> Result<usize, Unseen> {
    let count = zset.len();
    if count > holders::MOST {
        return Err(Unseen::TooManyHolders);
    }
    Ok(count)
}
