//! Several holders of one lock, in a sorted set: read as a whole while they are few, kept in memory
//! from one command to the next when they are many.
//!
//! What is kept is good as long as the set has as many members, and the same first and last score: the
//! module changes both together. Who else changes a set of holders by hand, in the middle, may not be
//! noticed. A replica keeps nothing: there the changes come from the master.

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::key::Key;
use super::state;
use crate::lock::holders::{Holder, Holders};
use crate::lock::record::Record;
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Fewer are read anew each time.
pub const FEW: usize = 2;
/// So many are kept at most, of all keys together.
const MOST_KEPT: usize = 1_000_000;

/// Several holders, as they lie in a sorted set.
#[derive(Default)]
pub struct Set {
    /// Who they are.
    pub holders: Holders,
    /// The server has it in the form for many, in which a change costs O(log n): see [`super::set`].
    pub is_tree: bool,
    /// The name of its key, where it was kept.
    name: Option<Box<[u8]>>,
}

/// Sets that are kept, by database and name of their key.
#[derive(Default)]
pub struct Kept {
    keys: FxHashMap<i32, HashMap<Box<[u8]>, Box<Set>>>,
    count: usize,
}

impl Kept {
    /// Gives all up.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, db: i32, name: &[u8]) -> Option<Box<Set>> {
        let (name, mut set) = self.keys.get_mut(&db)?.remove_entry(name)?;
        self.count = self.count.saturating_sub(set.holders.len());
        set.name = Some(name);
        Some(set)
    }

    fn put(&mut self, db: i32, name: Box<[u8]>, set: Box<Set>) {
        self.count = self.count.saturating_add(set.holders.len());
        if self.count > MOST_KEPT {
            self.clear();
            return;
        }
        let earlier = self.keys.entry(db).or_default().insert(name, set);
        self.count = self.count.saturating_sub(earlier.map_or(0, |earlier| earlier.holders.len()));
    }
}

/// The holders in an open sorted set; nothing if it is not ours.
pub fn read(key: &Key<'_>) -> Option<Box<Set>> {
    // SAFETY: the handle is open.
    let count = unsafe { (api().value_length)(key.handle) };
    let db = key.context.selected_db();
    let kept = state::with(|state| state.kept.take(db, key.name.as_bytes())).ok().flatten();
    if let Some(kept) = kept.filter(|kept| kept.holders.len() == count && is_current(key, &kept.holders)) {
        return Some(kept);
    }
    let mut set = Box::new(Set::default());
    let mut is_ours = true;
    walk(key, End::First, |score, member| {
        let holder = Record::read_member(score, member).map(|record| Holder::of(&record));
        is_ours = holder.is_some();
        if let Some(holder) = holder {
            set.holders.put(holder);
        }
        is_ours
    });
    (is_ours && set.holders.len() == count).then_some(set)
}

/// Keeps a set for the next command, if it is or was large.
pub fn keep(context: &Context, name: Arg<'_>, mut set: Box<Set>) {
    let kept_as = set.name.take();
    if set.holders.is_empty() || (kept_as.is_none() && (set.holders.len() <= FEW || context.is_replica())) {
        return;
    }
    let (db, name) = (context.selected_db(), kept_as.unwrap_or_else(|| name.as_bytes().into()));
    let _ = state::with(|state| state.kept.put(db, name, set));
}

/// Whether what was kept has the ends that the set has.
fn is_current(key: &Key<'_>, kept: &Holders) -> bool {
    let Some((first, last)) = kept.ends() else { return false };
    let score = |end| {
        let mut found = None;
        walk(key, end, |score, member| {
            found = Record::read_member(score, member).map(|record| record.timestamp);
            false
        });
        found
    };
    score(End::First) == Some(first) && score(End::Last) == Some(last)
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
