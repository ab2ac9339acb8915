//! The canonical forms of unfinished grants, for comparison.

use super::{EndedSessions, Lost, Outstanding};
use crate::engine::grant::{Before, Written};
use crate::engine::queue::Keys;
use crate::engine::sessions::LockKey;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// A lock and one of its grants: database, key and token.
type GrantForm = (i32, Box<[u8]>, Token);

/// The names of a grant's keys.
type NamesForm = Vec<Box<[u8]>>;

/// The canonical form of [`Outstanding`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutstandingForm {
    on_their_way: Vec<(Token, i32, NamesForm)>,
    lost: Vec<(GrantForm, Written, Option<Before>, bool)>,
}

impl Outstanding {
    #[must_use]
    pub fn canonical(&self) -> OutstandingForm {
        let names = |keys: &Keys| keys.iter().map(Into::into).collect();
        let mut on_their_way: Vec<_> =
            self.on_their_way.iter().map(|(token, (db, keys))| (*token, *db, names(keys))).collect();
        on_their_way.sort_unstable();
        let form = |lost: &Lost| {
            ((lost.db, lost.name().into(), lost.token), lost.written.clone(), lost.succeeds.clone(), lost.is_unclaimed)
        };
        OutstandingForm { on_their_way, lost: self.lost.all.values().map(form).collect() }
    }
}

/// The canonical form of [`EndedSessions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedForm {
    grants: Vec<(GrantForm, UnixMicros)>,
    last: Option<GrantForm>,
}

impl EndedSessions {
    #[must_use]
    pub fn canonical(&self) -> EndedForm {
        let form = |((db, name), token): &(LockKey, Token)| (*db, name.as_ref().into(), *token);
        let grants = self.grants.iter().map(|(grant, at)| (form(grant), *at)).collect();
        EndedForm { grants, last: self.last.as_ref().map(form) }
    }
}
