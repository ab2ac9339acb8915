//! Leader election.

use std::fmt;
use std::sync::Arc;

use super::held::Held;
use super::lock::{Attempted, Lock};
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

    /// Campaigns until [`stop`](Self::stop), or until this future is dropped, which also stops the campaign. Calls
    /// `lead` each time this process is elected; `lead` must return when the [`Term`] has ended. Others can be elected
    /// once `lead` has returned, or the lease has ended.
    ///
    /// # Errors
    /// Errors that no retry can fix: [`Argument`](crate::Kind::Argument) or [`Misuse`](crate::Kind::Misuse).
    pub async fn run<F: Future<Output = ()>>(&self, mut lead: impl FnMut(Term) -> F) -> Result<(), Error> {
        let (engine, request) = (&self.lock.owner.engine, &self.lock.request);
        loop {
            let (owner, campaign, wanted) =
                (Arc::clone(&self.lock.owner), Arc::clone(&self.campaign), Arc::clone(request));
            let attempt = async move {
                let hold = campaign.elected(&owner.engine, &wanted).await?;
                Ok::<_, Error>(hold.map(|hold| Held::new(hold, owner)))
            };
            let Some(held) = Attempted::new(engine, self.campaign.stopped(), attempt).await? else { return Ok(()) };
            lead(self.campaign.begin(&held.hold)).await;
            let has_resigned = held.check().is_ok();
            self.campaign.end();
            if let Err(error) = held.release().await {
                log::debug!("serverlock: {error}");
            }
            if has_resigned {
                self.campaign.pause(&engine.resources.reach.clock, request).await;
            }
        }
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

    /// Yields the current leader, then each change. It asks the server three times per lease. Without the module it
    /// sees no leader.
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

impl Observer {
    /// The next change: `Some(None)` when nobody leads, `None` when the locks are closed.
    pub async fn next(&mut self) -> Option<Option<Leadership>> {
        let clock = self.owner.engine.reach().clock.clone();
        clock.followed(self.looks.next()).await
    }
}
