//! LOCK.CANCEL: an attempt stands in line no longer.

use super::outbox::Answer;
use super::parts::{Engine, KeyName};
use crate::lock::record::Id;

impl<H> Engine<H> {
    /// LOCK.CANCEL: an attempt no longer stands in line. Whether it did.
    pub fn cancel(&mut self, key: KeyName<'_>, id: Id) -> bool {
        let found = self.queues.forget(key.db, key.name, id);
        let stood = found.is_some();
        if let Some((_, Some(waiter))) = found {
            self.outbox.put(waiter.handle, Answer::NotGranted(waiter.shape));
        }
        stood
    }
}
