//! Carrying out a decision about who gets the lock, and telling the one who got it.

use super::context::{Arg, Context};
use super::key::{self, Key, WriteRefused};
use crate::lock::error::Error;
use crate::lock::record::Encoded;
use crate::lock::rules::{Acquire, Predecessor};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// A decision, copied out of the key that it was made for, so that the key can be overwritten.
pub struct Plan {
    /// Nothing when the lock is refused.
    taken: Option<Taken>,
    write: Option<Encoded>,
}

impl Plan {
    /// Copies what a decision borrows from the key.
    #[must_use]
    pub fn of(decision: &Acquire<'_>) -> Self {
        let (record, succeeds, write) = match decision {
            Acquire::Grant { record, succeeds } => (record, *succeeds, Some(record.encode())),
            Acquire::Prolong(record) => (record, None, Some(record.encode())),
            Acquire::Keep(record) => (record, None, None),
            Acquire::Refuse => return Self { taken: None, write: None },
        };
        let taken = Taken { token: record.token, until: record.timestamp, succeeds: succeeds.map(Before::of) };
        Self { taken: Some(taken), write }
    }

    /// As [`Plan::carry_out`], where no command runs.
    ///
    /// # Errors
    /// Why the server does not let it be written.
    pub fn carry_out_outside_command(self, context: &Context, name: Arg<'_>) -> Result<Option<Taken>, WriteRefused> {
        if let Some(value) = &self.write {
            key::store_outside_command(context, name, value)?;
        }
        Ok(self.taken)
    }

    /// Writes what has to be written; what to tell the caller, nothing when the lock is refused.
    ///
    /// # Errors
    /// [`Error::Internal`]
    pub fn carry_out(self, key: Key<'_>) -> Result<Option<Taken>, Error> {
        if let Some(value) = &self.write {
            key.store(value)?;
        }
        Ok(self.taken)
    }
}

/// What a caller who got the lock is told.
pub struct Taken {
    /// The grant.
    pub token: Token,
    /// When it ends by itself.
    pub until: UnixMicros,
    succeeds: Option<Before>,
}

/// A predecessor.
struct Before {
    overdue_ms: u64,
    token: Option<Token>,
    owner: Option<Box<[u8]>>,
}

impl Before {
    fn of(predecessor: Predecessor<'_>) -> Self {
        Self {
            overdue_ms: predecessor.overdue.as_ms(),
            token: predecessor.token,
            owner: predecessor.owner.map(|owner| owner.as_bytes().into()),
        }
    }
}

impl Taken {
    /// Replies with the four details: token, overdue-ms, previous token, previous owner.
    pub fn reply_details(&self, context: &Context) {
        let before = self.succeeds.as_ref();
        context.reply_array(4);
        context.reply_integer(self.token.as_i64());
        context.reply_count_or_nil(before.map(|before| before.overdue_ms));
        context.reply_count_or_nil(before.and_then(|before| before.token).map(Token::get));
        context.reply_bytes_or_nil(before.and_then(|before| before.owner.as_deref()));
    }
}
