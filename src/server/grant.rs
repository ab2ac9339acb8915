//! Carrying out a decision about who gets the lock, and telling the one who got it.

use super::closed::{Closed, WriteRefused};
use super::context::Context;
use super::key::Key;
use super::stats::Counter;
use super::{state, tell};
use crate::lock::error::Error;
use crate::lock::record::{Encoded, Owner, OwnerBuf, Record};
use crate::lock::rules::{Acquire, Holds, Predecessor};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::ffi::CStr;

/// A decision, copied out of the key that it was made for, so that the key can be overwritten.
pub struct Plan {
    /// Nothing when the lock is refused.
    taken: Option<Taken>,
    write: Option<Encoded>,
    holds: Holds,
    events: &'static [&'static CStr],
    counts: &'static [Counter],
}

impl Plan {
    /// Copies what a decision borrows from the key.
    #[must_use]
    pub fn of(decision: &Acquire<'_>) -> Self {
        let nothing = Self { taken: None, write: None, holds: Holds::AsBefore, events: &[], counts: &[] };
        let (record, succeeds, plan) = match decision {
            Acquire::Grant { record, succeeds: None, holds } => {
                let (holds, events, counts) = (*holds, &[tell::ACQUIRE], &[Counter::Grants]);
                (record, None, Self { holds, events, counts, ..nothing })
            }
            Acquire::Grant { record, succeeds, holds } => {
                let (holds, counts) = (*holds, &[Counter::Grants, Counter::Recoveries]);
                (record, *succeeds, Self { holds, events: &[tell::LAPSE, tell::ACQUIRE], counts, ..nothing })
            }
            Acquire::Prolong(record) => {
                (record, None, Self { events: &[tell::EXTEND], counts: &[Counter::Extends], ..nothing })
            }
            Acquire::Keep(record) => (record, None, Self { counts: &[], ..nothing }),
            Acquire::Refuse => return nothing,
        };
        let write = (!matches!(decision, Acquire::Keep(_))).then(|| record.encode());
        let taken = Taken {
            token: record.token,
            until: record.timestamp,
            succeeds: succeeds.map(|before| (0, Before::of(before))).into_iter().collect(),
        };
        Self { taken: Some(taken), write, ..plan }
    }

    /// A lease that is set anew.
    #[must_use]
    pub fn to_extend(record: &Record<'_>) -> Self {
        Self::of(&Acquire::Prolong(*record))
    }

    /// The same, told as a recovery.
    #[must_use]
    pub fn as_recovery(self) -> Self {
        let events: &[_] = if self.write.is_some() { &[tell::LAPSE, tell::RECOVER] } else { &[] };
        Self { events, ..self }
    }

    /// The same, told as a lock that passes from one to the next.
    #[must_use]
    pub fn as_hand_off(self) -> Self {
        Self { events: &[tell::RELEASE, tell::ACQUIRE], ..self }
    }

    fn count(&self) {
        let _ = state::with(|state| self.counts.iter().for_each(|counter| state.stats.add(*counter)));
    }

    /// As [`Plan::carry_out`], where no command runs.
    ///
    /// # Errors
    /// Why the server does not let it be written.
    pub fn carry_out_outside_command(self, key: Closed<'_>) -> Result<Option<Taken>, WriteRefused> {
        if let Some(value) = &self.write {
            key.store(value, self.holds, self.events)?;
        }
        self.count();
        Ok(self.taken)
    }

    /// Writes what has to be written; what to tell the caller, nothing when the lock is refused.
    ///
    /// # Errors
    /// [`Error::Internal`]
    pub fn carry_out(self, key: Key<'_>) -> Result<Option<Taken>, Error> {
        if let Some(value) = &self.write {
            key.store(value, self.holds, self.events)?;
        }
        self.count();
        Ok(self.taken)
    }

    /// Carries plans out for several keys: all are written before anybody is told of one.
    ///
    /// # Errors
    /// [`Error::Internal`]
    pub fn carry_all_out(plans: Vec<(Self, Key<'_>)>) -> Result<Option<Taken>, Error> {
        let mut taken = None;
        let (plans, keys): (Vec<_>, Vec<_>) = plans.into_iter().unzip();
        let mut written = Vec::with_capacity(plans.len());
        let mut closed = Vec::new();
        let result = plans.iter().zip(keys).try_for_each(|(plan, key)| {
            match &plan.write {
                // The grant stands among others already.
                Some(value) if plan.holds == Holds::AsBefore && key.has_several() => {
                    closed.push((key.close(), value, plan.events));
                }
                Some(value) => written.push((key.write(value)?, plan.events)),
                None => {}
            }
            Ok(())
        });
        // What has changed is told also where a key after it fails.
        for (written, events) in written {
            written.tell(events)?;
        }
        result?;
        for (key, value, events) in closed {
            key.store(value, Holds::AsBefore, events).map_err(|_| Error::Internal)?;
        }
        for (at, plan) in plans.into_iter().enumerate() {
            plan.count();
            taken = Taken::join(taken, plan.taken, at);
        }
        Ok(taken)
    }

    /// Whether there is nothing else to be had in the key besides this grant.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.holds == Holds::Alone
    }
}

/// What a caller who got the lock is told.
pub struct Taken {
    /// The grant.
    pub token: Token,
    /// When it ends by itself.
    pub until: UnixMicros,
    /// Whom it succeeds, where a lock had expired: of several, with the number of the lock.
    succeeds: Vec<(usize, Before)>,
}

/// A predecessor.
#[derive(Clone)]
pub struct Before {
    ended: UnixMicros,
    overdue_ms: u64,
    token: Option<Token>,
    owner: Option<OwnerBuf>,
}

impl Before {
    /// A copy.
    #[must_use]
    pub fn of(predecessor: Predecessor<'_>) -> Self {
        Self {
            ended: predecessor.ended,
            overdue_ms: predecessor.overdue.as_ms(),
            token: predecessor.token,
            owner: predecessor.owner.map(Owner::to_boxed),
        }
    }

    /// The expired lock as it was; a client of the classic pattern had no token, `token` stands in.
    #[must_use]
    pub fn record(&self, token: Token) -> Record<'_> {
        let owner = self.owner.as_ref().map(OwnerBuf::as_owner);
        Record { timestamp: self.ended, token: self.token.unwrap_or(token), id: None, owner }
    }
}

impl Taken {
    /// Whom it succeeds in the first, or another of several locks.
    #[must_use]
    pub fn before(&self, lock: usize) -> Option<&Before> {
        self.succeeds.iter().find(|(at, _)| *at == lock).map(|(_, before)| before)
    }

    /// In the lock of that number it succeeds that one, as is remembered.
    pub fn recall(&mut self, lock: usize, before: Before) {
        self.succeeds.push((lock, before));
    }

    /// Of several locks, the first ones and the one with that number; they have one token.
    #[must_use]
    pub fn join(first: Option<Self>, next: Option<Self>, lock: usize) -> Option<Self> {
        match (first, next) {
            (Some(mut first), Some(next)) => {
                first.succeeds.extend(next.succeeds.into_iter().map(|(_, before)| (lock, before)));
                Some(first)
            }
            (first, next) => first.or(next),
        }
    }

    /// Replies with the token, or with the details.
    pub fn reply(&self, context: &Context, details: bool) {
        if details {
            self.reply_details(context);
        } else {
            context.reply_integer(self.token.as_i64());
        }
    }

    /// Replies with the four details: token, overdue-ms, previous token, previous owner.
    pub fn reply_details(&self, context: &Context) {
        let before = self.before(0);
        context.reply_array(4);
        context.reply_integer(self.token.as_i64());
        context.reply_count_or_nil(before.map(|before| before.overdue_ms));
        context.reply_count_or_nil(before.and_then(|before| before.token).map(Token::get));
        context.reply_bytes_or_nil(
            before.and_then(|before| before.owner.as_ref()).map(|owner| owner.as_owner().as_bytes()),
        );
    }
}
