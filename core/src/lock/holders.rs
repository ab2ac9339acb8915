//! Several holders of one lock: which of them are live, and which expired first.
//!
//! The key is a sorted set: the score is the timestamp in seconds, the member is the rest of the value that a single
//! holder would have. Every query costs O(log n), with two exceptions: [`Holders::fewer_than`] costs `most` steps or
//! the number of the other holders, whichever is less, and each holder that expires is passed once.
//!
//! A lock has at most [`MOST`] holders, expired ones included. The server cannot find a member by its token, so a set
//! that is not in memory has to be read in full. The bound keeps this read within 5 ms.

use super::record::{Id, Owner, OwnerBuf, Record};
use super::retention::Retention;
use super::time::UnixMicros;
use super::token::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The most holders that a lock can have.
pub const MOST: usize = 4_096;

/// One of several holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// When the holder expires.
    pub timestamp: UnixMicros,
    /// The grant.
    pub token: Token,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<OwnerBuf>,
}

impl Holder {
    /// The holder as a record that borrows from it.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        let owner = self.owner.as_ref().map(OwnerBuf::as_owner);
        Record { timestamp: self.timestamp, token: self.token, id: self.id, owner }
    }

    /// An owned copy of a record.
    #[must_use]
    pub fn of(record: &Record<'_>) -> Self {
        let Record { timestamp, token, id, owner } = *record;
        Self { timestamp, token, id, owner: owner.map(Owner::to_boxed) }
    }
}

/// The holders of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    all: BTreeMap<Token, Holder>,
    ids: BTreeSet<(Id, Token)>,
    /// In the order in which they expire.
    ends: BTreeSet<(UnixMicros, Token)>,
    /// How many had not expired at `at`.
    live: usize,
    at: UnixMicros,
    /// The largest token known to have been in the key.
    latest: Option<Token>,
}

impl FromIterator<Holder> for Holders {
    /// Builds everything at once. Until the first [`Holders::advance`], all holders count as live.
    fn from_iter<I: IntoIterator<Item = Holder>>(holders: I) -> Self {
        // A sorted list becomes a tree without a search for each element. The server returns a set in the order of the
        // scores.
        let mut all: Vec<Holder> = holders.into_iter().collect();
        let of_end = |holder: &Holder| (holder.timestamp, holder.token);
        let (count, mut ends): (_, BTreeSet<_>) = (all.len(), all.iter().map(of_end).collect());
        all.sort_unstable_by_key(|holder| holder.token);
        all.dedup_by_key(|holder| holder.token);
        if all.len() < count {
            ends = all.iter().map(of_end).collect();
        }
        let ids = all.iter().filter_map(|holder| Some((holder.id?, holder.token))).collect();
        let all: BTreeMap<_, _> = all.into_iter().map(|holder| (holder.token, holder)).collect();
        let latest = all.last_key_value().map(|(token, _)| *token);
        let at = UnixMicros::default();
        let live = ends.iter().rev().take_while(|(end, _)| *end > at).count();
        Self { all, ids, ends, live, at, latest }
    }
}

impl Holders {
    /// No holders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A partial view, built from the last of `live` holders: whether the lock is held, until when, and by how many.
    /// `last` has expired if none is live. `others`: more of the live holders.
    #[must_use]
    pub fn glimpse(last: Holder, others: Vec<Holder>, live: usize) -> Self {
        let at = if live == 0 { last.timestamp } else { UnixMicros::default() };
        Self { live, at, ..others.into_iter().chain([last]).collect() }
    }

    /// The number of holders, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no holders.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Sets the time to which all queries refer. Each holder is passed once, unless the clock is set back.
    pub fn advance(&mut self, now: UnixMicros) {
        let between = |from, to| (Bound::Excluded((from, Token::LAST)), Bound::Included((to, Token::LAST)));
        if now > self.at {
            self.live = self.live.saturating_sub(self.ends.range(between(self.at, now)).count());
        } else if now < self.at {
            self.live = self.live.saturating_add(self.ends.range(between(now, self.at)).count());
        }
        self.at = now;
    }

    /// The number of live holders.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// The holder with this token, live or expired.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<&Holder> {
        self.all.get(&token)
    }

    /// The holder with the next larger token, or else the first one.
    #[must_use]
    pub fn next(&self, token: Token) -> Option<&Holder> {
        let larger = self.all.range((Bound::Excluded(token), Bound::Unbounded)).next();
        larger.or_else(|| self.all.first_key_value()).map(|(_, holder)| holder)
    }

    /// An attempt's live holder: the latest, if the clock was set back and an earlier one is live again.
    #[must_use]
    pub fn held_by(&self, id: Id) -> Option<&Holder> {
        self.of_attempt(id).rfind(|holder| !self.is_over(holder))
    }

    /// All of an attempt's holders, live or expired.
    #[must_use]
    pub fn of_attempt(&self, id: Id) -> impl DoubleEndedIterator<Item = &Holder> {
        let tokens = self.ids.range((id, Token::FIRST)..=(id, Token::LAST));
        tokens.filter_map(|(_, token)| self.all.get(token))
    }

    /// Whether a holder had expired at the last [`Holders::advance`].
    #[must_use]
    pub fn is_over(&self, holder: &Holder) -> bool {
        holder.timestamp <= self.at
    }

    /// The holder that expired first.
    #[must_use]
    pub fn longest_overdue(&self) -> Option<&Holder> {
        if self.ends.len() <= self.live {
            return None;
        }
        self.all.get(&self.ends.first()?.1)
    }

    /// The holder that ends last, live or expired.
    #[must_use]
    pub fn last_to_end(&self) -> Option<&Holder> {
        self.all.get(&self.ends.last()?.1)
    }

    /// When there will be fewer than `most` live holders, if nobody extends or releases.
    #[must_use]
    pub fn fewer_than(&self, most: u64) -> Option<UnixMicros> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        // All but most - 1 have to expire.
        let last = self.live.checked_sub(most)?;
        let from_the_end = most.saturating_sub(1);
        let end = if last < from_the_end {
            self.ends.range((Bound::Excluded((self.at, Token::LAST)), Bound::Unbounded)).nth(last)
        } else {
            self.ends.iter().nth_back(from_the_end)
        };
        end.map(|(end, _)| *end)
    }

    /// The largest token known to have been in the key.
    #[must_use]
    pub fn latest(&self) -> Option<Token> {
        self.latest
    }

    /// The last timestamp.
    #[must_use]
    pub fn last_end(&self) -> Option<UnixMicros> {
        self.ends.last().map(|(end, _)| *end)
    }

    /// All holders, in order of expiry.
    pub fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.ends.iter().filter_map(|(_, token)| self.all.get(token))
    }

    /// The tokens of all holders.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.all.keys().copied()
    }

    /// Adds a holder, or replaces the one with its token.
    pub fn put(&mut self, holder: Holder) {
        self.remove(holder.token);
        self.ends.insert((holder.timestamp, holder.token));
        if !self.is_over(&holder) {
            self.live = self.live.saturating_add(1);
        }
        if let Some(id) = holder.id {
            self.ids.insert((id, holder.token));
        }
        self.latest = self.latest.max(Some(holder.token));
        self.all.insert(holder.token, holder);
    }

    /// Removes a holder.
    pub fn remove(&mut self, token: Token) -> Option<Holder> {
        let holder = self.all.remove(&token)?;
        self.ends.remove(&(holder.timestamp, token));
        if !self.is_over(&holder) {
            self.live = self.live.saturating_sub(1);
        }
        if let Some(id) = holder.id {
            self.ids.remove(&(id, token));
        }
        Some(holder)
    }

    /// The holder that expired first, if its retention has ended by `now` too.
    #[must_use]
    pub fn to_forget(&self, retention: Retention, now: UnixMicros) -> Option<&Holder> {
        self.longest_overdue().filter(|first| retention.holder_stays_until_ms(first.timestamp) <= now.0 / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holder(token: u64, end: u64, id: u64) -> Holder {
        Holder {
            timestamp: UnixMicros(end),
            token: Token::new(token).unwrap(),
            id: (id > 0).then(|| Id::parse(id.to_string().as_bytes()).unwrap()),
            owner: None,
        }
    }

    #[test]
    fn a_set_that_is_read_at_once_equals_one_built_holder_by_holder() {
        for all in [
            vec![(1, 9, 1), (2, 5, 2)],
            // A token that occurs twice, which this module never writes: only the first one read counts.
            vec![(1, 9, 1), (2, 5, 2), (1, 7, 0)],
            vec![(3, 0, 0), (4, 1, 0)],
            vec![],
        ] {
            let read: Holders = all.iter().map(|(token, end, id)| holder(*token, *end, *id)).collect();
            let count = read.iter().count();
            assert_eq!((read.len(), read.tokens().count()), (count, count), "{all:?}");
            let mut plain = Holders::new();
            read.iter().cloned().for_each(|holder| plain.put(holder));
            assert_eq!(read, plain, "{all:?}");
        }
    }

    #[test]
    fn a_glimpse_of_the_last_shows_the_end_and_the_number_of_holders() {
        for (live, is_over) in [(0, true), (1, false), (30, false)] {
            let glimpse = Holders::glimpse(holder(7, 50, 0), Vec::new(), live);
            assert_eq!(glimpse.live(), live);
            assert_eq!(glimpse.last_to_end().map(|last| last.token.get()), Some(7));
            assert_eq!(glimpse.last_to_end().is_some_and(|last| glimpse.is_over(last)), is_over);
        }
    }

    #[test]
    fn next_goes_round_the_holders_in_token_order() {
        let holders: Holders = [5, 3, 9].map(|token| holder(token, 1, 0)).into_iter().collect();
        let next = |token| holders.next(Token::new(token).unwrap()).map(|next| next.token.get());
        assert_eq!([0, 3, 4, 5, 9].map(next), [3, 5, 5, 9, 3].map(Some));
        assert_eq!(Holders::new().next(Token::LAST), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u64, u64),
        Remove(u64),
        Inspect(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..12_u64, 0..30_u64, 0..4_u64).prop_map(|(token, end, id)| Step::Put(token, end, id)),
            1 => (0..12_u64).prop_map(Step::Remove),
            2 => (0..30_u64).prop_map(Step::Inspect),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
        #[test]
        fn holders_do_what_a_plain_list_does(steps in prop::collection::vec(any_step(), 1..60)) {
            let mut holders = Holders::new();
            let mut plain: Vec<Holder> = Vec::new();
            let (mut now, mut latest) = (0, None);
            for step in steps {
                match step {
                    Step::Put(token, end, id) => {
                        let new = holder(token, end, id);
                        plain.retain(|known| known.token != new.token);
                        latest = latest.max(Some(new.token));
                        plain.push(new.clone());
                        holders.put(new);
                    }
                    Step::Remove(token) => {
                        let token = Token::new(token).unwrap();
                        let at = plain.iter().position(|known| known.token == token);
                        prop_assert_eq!(holders.remove(token), at.map(|at| plain.remove(at)));
                    }
                    Step::Inspect(at) => {
                        now = at;
                        holders.advance(UnixMicros(at));
                    }
                }
                let mut ends: Vec<_> = plain.iter().map(|known| (known.timestamp.0, known.token)).collect();
                ends.sort_unstable();
                let live: Vec<_> = ends.iter().copied().filter(|(end, _)| *end > now).collect();
                prop_assert_eq!(holders.len(), plain.len());
                prop_assert_eq!(holders.live(), live.len());
                prop_assert_eq!(holders.latest(), latest);
                prop_assert_eq!(holders.iter().map(|known| (known.timestamp.0, known.token)).collect::<Vec<_>>(), ends.clone());
                let overdue = ends.first().filter(|(end, _)| *end <= now).map(|(_, token)| *token);
                prop_assert_eq!(holders.longest_overdue().map(|known| known.token), overdue);
                prop_assert_eq!(holders.last_to_end().map(|known| known.token), ends.last().map(|(_, token)| *token));
                prop_assert_eq!(holders.last_end().map(|end| end.0), ends.last().map(|(end, _)| *end));
                for most in 1..8_usize {
                    let expected = live.len().checked_sub(most).map(|at| live[at].0);
                    prop_assert_eq!(holders.fewer_than(most as u64).map(|end| end.0), expected);
                }
                for known in &plain {
                    prop_assert_eq!(holders.get(known.token), Some(known));
                    prop_assert_eq!(holders.is_over(known), known.timestamp.0 <= now);
                }
                for id in 1..4 {
                    let id = holder(0, 0, id).id;
                    let own = || plain.iter().filter(|known| known.id == id);
                    let latest = own().filter(|known| known.timestamp.0 > now).max_by_key(|known| known.token);
                    prop_assert_eq!(holders.held_by(id.unwrap()), latest);
                    prop_assert_eq!(holders.of_attempt(id.unwrap()).count(), own().count());
                }
            }
        }
    }
}
