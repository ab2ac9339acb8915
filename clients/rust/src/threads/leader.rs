//! Leader election.

use std::fmt;
use std::sync::Arc;

use super::held::Held;
use super::lock::Lock;
use super::runtime::block_on;
use crate::error::Error;
use crate::held::Owner;
use crate::leader::{Campaign, Leadership, Looks, Term};

/// Campaigns for a key. Clones share the campaign.
#[derive(Clone, Debug)]
pub struct Leader {
    lock: Lock,
    campaign: Arc<Campaign>,
}

impl Leader {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock, campaign: Arc::default() }
    }

    /// A label that others can see, 1 to 128 visible ASCII characters. The default is `host:pid`.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.lock = self.lock.owner(owner);
        self
    }

    /// No label is sent.
    #[must_use]
    pub fn without_owner(mut self) -> Self {
        self.lock = self.lock.without_owner();
        self
    }

    /// The leadership has its own connection, and ends one second after that connection closes.
    #[must_use]
    pub fn session(mut self) -> Self {
        self.lock = self.lock.session();
        self
    }

    /// Campaigns until [`stop`](Self::stop). Calls `lead` each time this process is elected; `lead` must return when
    /// the [`Term`] has ended: it should check [`Term::is_over`] before each step, or wait in [`Leader::wait`]. Others
    /// can be elected once `lead` has returned, or the lease has ended.
    ///
    /// # Errors
    /// Errors that no retry can fix: [`Argument`](crate::Kind::Argument) or [`Misuse`](crate::Kind::Misuse).
    pub fn run(&self, mut lead: impl FnMut(&Term)) -> Result<(), Error> {
        let (owner, request) = (&self.lock.owner, &self.lock.request);
        let reach = owner.engine.reach();
        while let Some(hold) = block_on(reach, self.campaign.elected(&owner.engine, request))? {
            let held = Held::new(hold, Arc::clone(owner));
            let term = self.campaign.begin(&held.hold);
            lead(&term);
            let has_resigned = held.check().is_ok();
            self.campaign.end();
            if let Err(error) = held.release() {
                log::debug!("serverlock: {error}");
            }
            if has_resigned {
                block_on(reach, self.campaign.pause(&reach.clock, request));
            }
        }
        Ok(())
    }

    /// Waits until a term has ended.
    pub fn wait(&self, term: &Term) {
        block_on(self.lock.owner.engine.reach(), term.over());
    }

    /// The token while this process leads.
    #[must_use]
    pub fn token(&self) -> Option<i64> {
        self.campaign.token()
    }

    /// Steps down, and campaigns again after others have had a chance.
    pub fn resign(&self) {
        self.campaign.resign();
    }

    /// Steps down, and ends [`run`](Self::run).
    pub fn stop(&self) {
        self.campaign.stop();
    }

    /// Yields the current leader, then each change; `None` while there is no leader. It asks the server three times per
    /// lease, and ends when the locks are closed. Without the module it sees no leader.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer { looks: Looks::new(&self.lock.owner.engine, &self.lock.request), owner: Arc::clone(&self.lock.owner) }
    }
}

/// Yields the current leader.
pub struct Observer {
    looks: Looks,
    owner: Arc<Owner>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Iterator for Observer {
    type Item = Option<Leadership>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.owner.engine.reach(), self.looks.next())
    }
}
