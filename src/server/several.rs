//! Several holders of one lock, read from a sorted set.
//!
//! The server cannot find a member by its token, so a set is read as a whole. [`super::kept`] has those of more than a
//! few holders in memory from one command to the next. What is in memory counts only while the key agrees:
//!
//! - it has as many members;
//! - its last holder to end is in the key, and at every fourth use so is one other, each time the next: what others
//!   changed by hand is noticed after at most four times as many uses as there are holders;
//! - a grant that is reported as held was found in the key by this command ([`Key::with_grant`]).
//!
//! A set that is read as a whole gives up every other one in memory whose last holder is in it: that key was renamed,
//! moved or copied. So, as long as only the module writes holders, a set in memory is that of its key.
//!
//! A replica has none in memory, because there the changes come from the master.

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::key::Key;
use super::state;
use super::write::OK;
use crate::lock::error::Error;
use crate::lock::holders::{self, Holder, Holders};
use crate::lock::record::{timestamp_of, Record};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::rc::Rc;

/// Fewer are read anew each time.
pub const FEW: usize = 2;
/// Every so many uses the key is asked for one more holder.
const ASK: u8 = 4;
/// So many are read as a whole where a part of them would do.
const SOME: usize = 64;

/// Several holders, as they lie in a sorted set.
#[derive(Default)]
pub struct Set {
    /// Who they are.
    pub holders: Holders,
    /// Those whose grants have ended, which are still in the key.
    pub ended: Vec<Holder>,
    /// The server has it in the form for many, in which a change costs O(log n): see [`super::set`].
    pub is_tree: bool,
    /// Database and name of its key, where it was in memory.
    pub(super) place: Option<Rc<[u8]>>,
    /// When it was last used, in ticks.
    pub(super) used: u64,
    /// How often it was used.
    pub(super) uses: u8,
    /// The grant that the key was last asked about.
    pub(super) asked: Option<Token>,
}

impl Set {
    /// Whether it was in memory, and not read from the key by this command.
    #[must_use]
    pub const fn was_kept(&self) -> bool {
        self.place.is_some()
    }

    /// A grant ends: the set tells of it as if it had, until it is changed. Whether it was one.
    pub fn end(&mut self, token: Token) -> bool {
        let ended = self.holders.remove(token);
        let is_one = ended.is_some();
        self.ended.extend(ended);
        is_one
    }
}

/// The holders in an open sorted set.
///
/// # Errors
/// [`Error::WrongType`] if it is not ours, [`Error::TooManyHolders`].
pub fn read(key: &Key<'_>) -> Result<Box<Set>, Error> {
    let count = count(key)?;
    let db = key.context.selected_db();
    let kept = state::with(|state| state.kept.take(db, key.name.as_bytes())).ok().flatten();
    if let Some(mut kept) = kept.filter(|kept| kept.holders.len() == count) {
        if is_current(key, &mut kept) {
            return Ok(kept);
        }
    }
    load(key)
}

/// The same, read from the key as a whole.
///
/// # Errors
/// As [`read`].
pub fn load(key: &Key<'_>) -> Result<Box<Set>, Error> {
    let count = count(key)?;
    let mut all = Vec::with_capacity(count);
    let mut is_ours = true;
    walk(key, End::First, |score, member| {
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
        return Err(Error::WrongType);
    }
    let _ = state::with(|state| state.kept.give_up_moved(&holders));
    Ok(Box::new(Set { holders, ..Set::default() }))
}

/// Of a large set the last holder to end, and how many are live; a smaller one as a whole. The others are only counted,
/// so foreign members among them are not seen.
///
/// # Errors
/// As [`read`].
pub fn glimpse(key: &Key<'_>) -> Result<Box<Set>, Error> {
    if count(key)? <= SOME {
        return load(key);
    }
    let at = |end| {
        let mut found = None;
        walk(key, end, |score, member| {
            found = Record::read_member(score, member).map(|record| Holder::of(&record));
            false
        });
        found.ok_or(Error::WrongType)
    };
    let (_, last) = (at(End::First)?, at(End::Last)?);
    let now = key.now();
    let live = if last.timestamp <= now { 0 } else { live(key, now).unwrap_or(1).max(1) };
    Ok(Box::new(Set { holders: Holders::glimpse(last, live), ..Set::default() }))
}

/// Keeps a set in memory for the next command, if it is or was large.
pub fn keep(context: &Context, name: Arg<'_>, mut set: Box<Set>) {
    let place = set.place.take();
    if set.holders.is_empty()
        || !set.ended.is_empty()
        || (place.is_none() && (set.holders.len() <= FEW || context.is_replica()))
    {
        return;
    }
    let _ = state::with(|state| {
        let place = place.unwrap_or_else(|| state.kept.place(context.selected_db(), name.as_bytes()));
        state.kept.put(place, set);
    });
}

/// Whether a holder stands in the key as it is known here: O(1).
pub fn has(key: &Key<'_>, holder: &Holder) -> bool {
    let Some(member) = OwnString::of(holder.record().encode().member()) else { return false };
    let mut score = 0.0;
    // SAFETY: the handle is an open sorted set, the string is valid, the score may be written.
    let found = unsafe { (api().zset_score)(key.handle, member.as_arg().as_ptr(), &raw mut score) };
    found == OK && timestamp_of(score) == Some(holder.timestamp)
}

/// Whether the key agrees with what is in memory.
fn is_current(key: &Key<'_>, set: &mut Set) -> bool {
    let Some(last) = set.holders.last_to_end() else { return false };
    set.uses = set.uses.wrapping_add(1);
    if !set.uses.is_multiple_of(ASK) {
        return has(key, last);
    }
    let Some(next) = set.holders.next(set.asked.unwrap_or(last.token)) else { return false };
    let is_current = has(key, last) && (next.token == last.token || has(key, next));
    set.asked = Some(next.token);
    is_current
}

/// How many members a sorted set has.
fn count(key: &Key<'_>) -> Result<usize, Error> {
    // SAFETY: the handle is open.
    let count = unsafe { (api().value_length)(key.handle) };
    if count > holders::MOST {
        return Err(Error::TooManyHolders);
    }
    Ok(count)
}

/// How many members have not expired, by the server's ZCOUNT.
fn live(key: &Key<'_>, now: UnixMicros) -> Option<usize> {
    let after = format!("({}.{:06}", now.0 / 1_000_000, now.0 % 1_000_000);
    // SAFETY: the format takes a string of the server, a buffer with its length (size_t) and a C string. The reply is
    // freed once, after it was read.
    unsafe {
        let context = key.context.as_ptr();
        let (after, length) = (after.as_ptr(), after.len());
        let reply = (api().call)(
            context,
            c"ZCOUNT".as_ptr(),
            c"sbc".as_ptr(),
            key.name.as_ptr(),
            after,
            length,
            c"+inf".as_ptr(),
        );
        if reply.is_null() {
            return None;
        }
        let count = (api().call_reply_integer)(reply);
        (api().free_call_reply)(reply);
        usize::try_from(count).ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// Shows `see` the members from one end on, until it says false.
fn walk(key: &Key<'_>, from: End, mut see: impl FnMut(f64, &[u8]) -> bool) {
    let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
    // SAFETY: the handle is an open sorted set; nothing changes it until the walk is over. Each string
    // that the server gives is freed by its owner here.
    unsafe {
        let begun = match from {
            End::First => (api().zset_first_in_score_range)(key.handle, low, high, 0, 0),
            End::Last => (api().zset_last_in_score_range)(key.handle, low, high, 0, 0),
        };
        if begun != 0 {
            return;
        }
        loop {
            let mut score = 0.0;
            let member = (api().zset_range_current_element)(key.handle, &raw mut score);
            let Some(member) = OwnString::given(member) else { break };
            if !see(score, member.as_arg().as_bytes()) || (api().zset_range_next)(key.handle) == 0 {
                break;
            }
        }
        (api().zset_range_stop)(key.handle);
    }
}
