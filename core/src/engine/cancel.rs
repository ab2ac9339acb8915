//! LOCK.CANCEL: takes an attempt out of the queue.

use super::outbox::Answer;
use super::parts::{Engine, KeyName};
use crate::lock::record::Id;

impl<H> Engine<H> {
    /// LOCK.CANCEL: takes an attempt out of the queue. Returns whether it waited or had a place.
    pub fn cancel(&mut self, key: KeyName<'_>, id: Id) -> bool {
        let found = self.queues.forget(key.db, key.name, id);
        let stood = found.is_some();
        if let Some((_, Some(waiter))) = found {
            self.outbox.put(waiter.handle, Answer::NotGranted(waiter.shape));
        }
        stood
    }
}
