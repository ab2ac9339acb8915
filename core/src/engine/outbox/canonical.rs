//! The canonical form of an answer, for comparison, and all unsent answers and messages.

use super::{Answer, Grant, Notice, Outbox};
use crate::engine::grant::Granted;
use crate::engine::queue::{Order, ReplyShape, Ticket};
use crate::lock::error::Error;
use crate::lock::record::{Id, OwnerBuf};
use crate::lock::token::Token;

/// The canonical form of an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnswerForm {
    /// A grant, its keys, its attempt, and its ticket if the grant comes back when delivery fails.
    Granted(Granted, (ReplyShape, bool), (i32, Vec<Box<[u8]>>), (Option<Id>, Option<OwnerBuf>), Option<usize>),
    /// The holder's result.
    Result(Box<[u8]>),
    /// Nil.
    NotGranted(ReplyShape),
    Failed(Error),
}

impl Answer {
    /// The ticket of a grant that comes back if delivery fails.
    pub fn ticket(&self, is_on_its_way: impl Fn(Token) -> bool) -> Option<Ticket> {
        match self {
            Self::Granted(grant) => Some(grant.ticket).filter(|_| is_on_its_way(grant.granted.token)),
            Self::Result(_) | Self::NotGranted(_) | Self::Failed(_) => None,
        }
    }

    pub fn canonical(&self, tickets: &Order<Ticket>, is_on_its_way: impl Fn(Token) -> bool) -> AnswerForm {
        match self {
            Self::Granted(grant) => {
                let Grant { granted, shape, db, keys, id, owner, wants_result, .. } = grant;
                let names = keys.iter().map(Box::from).collect();
                let ticket = self.ticket(is_on_its_way).map(|ticket| tickets.at(ticket));
                AnswerForm::Granted(
                    granted.clone(),
                    (*shape, *wants_result),
                    (*db, names),
                    (*id, owner.clone()),
                    ticket,
                )
            }
            Self::Result(result) => AnswerForm::Result(result.bytes.clone()),
            Self::NotGranted(shape) => AnswerForm::NotGranted(*shape),
            Self::Failed(error) => AnswerForm::Failed(*error),
        }
    }
}

impl<H: Clone> Outbox<H> {
    /// All answers, in order.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().map(|(_, letter)| &letter.answer)
    }

    /// All messages, in order.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter()
    }

    pub fn canonical(&self, form: impl Fn(&Answer) -> AnswerForm) -> Vec<(H, AnswerForm)> {
        self.answers.iter().map(|(handle, letter)| (handle.clone(), form(&letter.answer))).collect()
    }
}
