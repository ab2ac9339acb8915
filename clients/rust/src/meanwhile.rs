//! What an attempt without the module does about stored results: it gets the one that was stored while it waited.

use crate::attempt::Attempt;
use crate::results::Stored;
use crate::sync::{First, first};

impl Attempt {
    /// Notes which result is stored before the attempt waits.
    pub(crate) async fn look(&mut self) {
        if !std::mem::replace(&mut self.has_looked, true) {
            self.before = self.stored().await;
        }
    }

    /// The result that was stored while the attempt waited, if there is one.
    pub(crate) async fn stored_meanwhile(&mut self) -> Option<Vec<u8>> {
        let now = self.stored().await?;
        now.newer_than(&self.before.take()?)
    }

    async fn stored(&mut self) -> Option<Stored> {
        match first(self.resources.stored(&self.request), self.cancel.wait()).await {
            First::Left(stored) => stored,
            First::Right(()) => None,
        }
    }
}
