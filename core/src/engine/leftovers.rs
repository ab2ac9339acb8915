//! What a server remembered of its locks before it became a replica. It counts for nothing any more and is dropped in
//! pieces: a million sessions in one go would keep the server from anything else for a fifth of a second.

use super::claims::Claims;
use super::sessions::Sessions;

#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers {
    sessions: Vec<Sessions>,
    claims: Vec<Claims>,
}

impl Leftovers {
    /// They are to be dropped.
    pub(super) fn add(&mut self, sessions: Sessions, claims: Claims) {
        self.sessions.extend(Some(sessions).filter(|sessions| !sessions.is_empty()));
        self.claims.extend(Some(claims).filter(|claims| !claims.is_empty()));
    }

    /// Whether nothing is left to drop.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.claims.is_empty()
    }

    /// Drops about so many of each.
    pub(super) fn drop_piece(&mut self, most: usize) {
        if let Some(sessions) = self.sessions.last_mut() {
            if sessions.drop_piece(most) {
                self.sessions.pop();
            }
        }
        if let Some(claims) = self.claims.last_mut() {
            if claims.drop_piece(most) {
                self.claims.pop();
            }
        }
    }
}
