//! Answers to clients that waited, until they are sent: a bounded number in each event-loop iteration, so that a crowd
//! that is answered at once holds up nobody else.

use super::grant::Granted;
use super::queue::{Keys, Order, ReplyShape, Ticket};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::token::Token;
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

/// The canonical form of an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnswerForm {
    /// A grant: what is told, for which keys, to which attempt; its place, if it comes back should it not arrive.
    Granted(Granted, ReplyShape, (i32, Vec<Box<[u8]>>), Option<Id>, Option<usize>),
    /// Nil.
    NotGranted(ReplyShape),
    /// An error.
    Failed(Error),
}

impl Answer {
    /// The place of a grant that comes back if it does not arrive.
    pub fn ticket(&self, is_on_its_way: impl Fn(Token) -> bool) -> Option<Ticket> {
        match self {
            Self::Granted(grant) => Some(grant.ticket).filter(|_| is_on_its_way(grant.granted.token)),
            Self::NotGranted(_) | Self::Failed(_) => None,
        }
    }

    /// The canonical form.
    pub fn canonical(&self, tickets: &Order<Ticket>, is_on_its_way: impl Fn(Token) -> bool) -> AnswerForm {
        match self {
            Self::Granted(grant) => {
                let Grant { granted, shape, db, keys, id, .. } = grant;
                let names = keys.iter().map(Box::from).collect();
                let ticket = self.ticket(is_on_its_way).map(|ticket| tickets.at(ticket));
                AnswerForm::Granted(granted.clone(), *shape, (*db, names), *id, ticket)
            }
            Self::NotGranted(shape) => AnswerForm::NotGranted(*shape),
            Self::Failed(error) => AnswerForm::Failed(*error),
        }
    }
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

    /// All of them, in their order.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.0.iter().map(|(_, letter)| &letter.answer)
    }

    /// Room for so many is kept while there is none.
    const FEW: usize = 64;

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<H: Clone> Outbox<H> {
    /// The canonical form.
    pub fn canonical(&self, form: impl Fn(&Answer) -> AnswerForm) -> Vec<(H, AnswerForm)> {
        self.0.iter().map(|(handle, letter)| (handle.clone(), form(&letter.answer))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_crowd_is_given_back_and_that_of_a_few_is_kept() {
        for (count, is_kept) in [(1, true), (Outbox::<usize>::FEW, true), (Outbox::<usize>::FEW + 1, false)] {
            let mut outbox = Outbox::default();
            for client in 0..count {
                outbox.put(client, Answer::Failed(Error::Demoted));
            }
            let taken: Vec<usize> = std::iter::from_fn(|| outbox.take()).map(|(client, _)| client).collect();
            assert!(taken.into_iter().eq(0..count));
            assert_eq!(outbox.0.capacity() > 0, is_kept, "{count}");
        }
    }
}
