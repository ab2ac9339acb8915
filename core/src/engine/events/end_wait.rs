//! A wait ends without the lock.

use crate::engine::outbox::{Answer, News, Notice};
use crate::engine::queue::{Gone, Handle, MostPlaces, Ticket};
use crate::engine::Engine;
use crate::lock::error::Error;

/// How a wait ended without the lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    TimedOut,
    /// LOCK.CANCEL ended it.
    Cancelled,
    /// Something else did.
    Failed(Error),
}

impl<H> Engine<H> {
    /// Ends a wait and reserves no place.
    pub fn end_wait(&mut self, ticket: Ticket, error: Error) {
        if let Some(gone) = self.queues.end_wait(ticket, None, MostPlaces::NONE) {
            self.end(gone, End::Failed(error));
        }
    }

    /// Called when a wait ended without a reply: it failed, unless its place is reserved.
    pub(super) fn not_kept(&mut self, gone: Option<Gone<H>>) {
        if let Some(gone) = gone.filter(|gone| !gone.is_kept) {
            self.waits.has_ended(gone.waiter.since);
        }
    }

    /// Ends the waits that a newer command with the same ID replaced.
    pub(super) fn replaced(&mut self, earlier: impl IntoIterator<Item = Gone<H>>) {
        for gone in earlier {
            self.end(gone, End::Failed(Error::Replaced));
        }
    }

    /// Answers a waiter that left the queue: its wait has ended without the lock.
    pub(super) fn end(&mut self, gone: Gone<H>, end: End) {
        let Gone { waiter, keys, is_kept, result } = gone;
        if let Some(result) = result {
            self.ended_with(result, waiter, keys);
            return;
        }
        // A replaced wait continues in the newer command.
        if !is_kept && !matches!(end, End::Failed(Error::Replaced)) {
            self.waits.has_ended(waiter.since);
        }
        match (waiter.handle, end) {
            (Handle::Blocked { handle, .. }, End::Failed(error)) => self.outbox.put(handle, Answer::Failed(error)),
            (Handle::Blocked { handle, .. }, _) => self.outbox.put(handle, Answer::NotGranted(waiter.shape)),
            (Handle::Channel { channel, .. }, end) => {
                let news = match end {
                    End::TimedOut => News::TimedOut,
                    End::Cancelled => News::Cancelled,
                    End::Failed(_) => News::Unblocked,
                };
                if let (Some(id), Some(keys)) = (waiter.id, keys) {
                    self.outbox.announce(Notice { channel, news, id, keys, claim: None });
                }
            }
        }
    }
}
