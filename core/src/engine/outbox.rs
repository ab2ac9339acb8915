//! Answers to clients that waited, until they are sent: a bounded number in each event-loop iteration, so that a crowd
//! that is answered at once holds up nobody else.

use super::grant::Granted;
use super::queue::{Keys, ReplyShape, Ticket};
use crate::lock::error::Error;
use crate::lock::record::Id;
use std::collections::VecDeque;

/// A grant on its way to a client that waited.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What the client is told.
    pub granted: Granted,
    /// In which shape.
    pub shape: ReplyShape,
    /// Database of the keys.
    pub db: i32,
    /// The keys.
    pub keys: Keys,
    /// The attempt.
    pub id: Option<Id>,
    /// The place that it had.
    pub ticket: Ticket,
}

/// What a client that waited is told in the end.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It got the lock, or the locks.
    Granted(Grant),
    /// It did not: nil, where a grant would have that shape.
    NotGranted(ReplyShape),
    /// Its wait was ended.
    Failed(Error),
}

/// An answer on its way, and whether its client was still there to get it.
#[derive(Clone, Debug)]
pub struct Letter {
    /// What the client is told.
    pub answer: Answer,
    /// The server has asked for the reply.
    pub is_delivered: bool,
}

/// Answers that were not sent yet, each with how to reach its client.
#[derive(Clone, Debug)]
pub struct Outbox<H>(VecDeque<(H, Box<Letter>)>);

impl<H> Default for Outbox<H> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<H> Outbox<H> {
    /// Puts an answer in.
    pub fn put(&mut self, handle: H, answer: Answer) {
        self.0.push_back((handle, Box::new(Letter { answer, is_delivered: false })));
    }

    /// Takes out the one that has been in for longest.
    #[inline]
    pub fn take(&mut self) -> Option<(H, Box<Letter>)> {
        let answer = self.0.pop_front()?;
        if self.0.is_empty() && self.0.capacity() > Self::FEW {
            self.0 = VecDeque::new();
        }
        Some(answer)
    }

    /// Room for so many is kept while there is none.
    const FEW: usize = 64;

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
