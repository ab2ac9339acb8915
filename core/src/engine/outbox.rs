//! Holds the answers to clients that waited, until they are sent. Each event-loop iteration sends a bounded number, so
//! that answering thousands of clients does not delay others.

#[cfg(feature = "model")]
mod canonical;

use super::budget::Budget;
use super::grant::Granted;
use super::queue::{Channel, Keys, ReplyShape, Ticket};
use super::result::LockResult;
use crate::lock::error::Error;
use crate::lock::record::{Id, OwnerBuf};
use std::collections::VecDeque;
use std::rc::Rc;

#[cfg(feature = "model")]
pub use canonical::AnswerForm;

/// A grant on its way to a client that waited.
#[derive(Clone, Debug)]
pub struct Grant {
    pub granted: Granted,
    pub shape: ReplyShape,
    /// The keys' database.
    pub db: i32,
    pub keys: Keys,
    /// The attempt.
    pub id: Option<Id>,
    /// Its label.
    pub owner: Option<OwnerBuf>,
    /// Whether it takes the holder's result instead of the lock.
    pub wants_result: bool,
    /// The ticket of its wait.
    pub ticket: Ticket,
}

/// A message to an attempt without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// Its turn has come: it can claim the lock.
    Granted,
    /// Its wait timed out.
    TimedOut,
    /// LOCK.CANCEL ended it.
    Cancelled,
    /// The server, or a newer command with the same ID, ended its wait.
    Unblocked,
    /// The holder's result is there.
    Result,
}

/// A message on a channel.
#[derive(Clone, Debug)]
pub struct Notice {
    pub channel: Rc<Channel>,
    /// The kind of message.
    pub news: News,
    /// The attempt.
    pub id: Id,
    /// The keys; the message names the first.
    pub keys: Keys,
    /// The unclaimed grant that is announced with it.
    pub claim: Option<Ticket>,
}

impl Notice {
    /// The message: `<what> <id> <key>`. Everything after the ID is the key's name.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let news = match self.news {
            News::Granted => "granted",
            News::TimedOut => "timeout",
            News::Cancelled => "cancelled",
            News::Unblocked => "unblocked",
            News::Result => "result",
        };
        let mut message = format!("{news} {} ", self.id.get()).into_bytes();
        message.extend_from_slice(self.keys.get(0).unwrap_or_default());
        message
    }
}

/// The answer to a client that waited.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It got its lock or locks.
    Granted(Grant),
    /// It got the holder's result instead.
    Result(Rc<LockResult>),
    /// It did not: nil, in the shape of a grant.
    NotGranted(ReplyShape),
    /// Its wait was ended.
    Failed(Error),
}

/// An answer on its way to a client, and whether the client was still there to receive it.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its content.
    pub answer: Answer,
    /// Whether the server asked for the reply.
    pub is_delivered: bool,
}

impl Answer {
    /// How much of a budget its reply costs: with DETAILS it describes each key.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Granted(Grant { shape: ReplyShape::Details, keys, .. }) => keys.len(),
            // Many leave at one moment, on top of the work of the release.
            Self::Result(result) => 2_usize.saturating_add(result.bytes.len() / Budget::BYTES),
            _ => 1,
        }
    }
}

/// Unsent answers and messages. Messages wait for the end of a transaction or a script; answers do not.
#[derive(Clone, Debug)]
pub struct Outbox<H> {
    /// Each with the handle of its client.
    answers: VecDeque<(H, Box<Letter>)>,
    notices: VecDeque<Notice>,
}

impl<H> Default for Outbox<H> {
    fn default() -> Self {
        Self { answers: VecDeque::new(), notices: VecDeque::new() }
    }
}

impl<H> Outbox<H> {
    /// Adds an answer.
    pub fn put(&mut self, handle: H, answer: Answer) {
        self.answers.push_back((handle, Box::new(Letter { answer, is_delivered: false })));
    }

    /// Adds a message.
    pub fn announce(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    /// Removes the oldest message.
    pub fn take_notice(&mut self) -> Option<Notice> {
        pop(&mut self.notices)
    }

    /// Whether there are messages.
    #[must_use]
    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether there are answers.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Removes the oldest answer.
    #[inline]
    pub fn take(&mut self) -> Option<(H, Box<Letter>)> {
        pop(&mut self.answers)
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.notices.is_empty()
    }
}

/// The capacity that an empty outbox keeps.
const FEW: usize = 64;

/// Removes the oldest entry, and frees a long queue's memory when it becomes empty.
#[inline]
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let oldest = queue.pop_front()?;
    if queue.is_empty() && queue.capacity() > FEW {
        *queue = VecDeque::new();
    }
    Some(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_many_answers_is_freed_and_memory_for_a_few_is_kept() {
        for (count, is_kept) in [(1, true), (FEW, true), (FEW + 1, false)] {
            let mut outbox = Outbox::default();
            for client in 0..count {
                outbox.put(client, Answer::Failed(Error::Demoted));
            }
            let taken: Vec<usize> = std::iter::from_fn(|| outbox.take()).map(|(client, _)| client).collect();
            assert!(taken.into_iter().eq(0..count));
            assert_eq!(outbox.answers.capacity() > 0, is_kept, "{count}");
        }
    }
}
