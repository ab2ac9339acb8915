//! Opens the keys that a search for a deadlock asks for.

use super::edge::{Access, Edge, Expected, Key};
use super::entry::Entry;
use crate::engine::events::deadlock_search::Step;
use crate::engine::{Clock as _, KeyName, KeyNames};
use crate::lock::request::Request;

impl<E: Edge> Entry<'_, E> {
    /// Whether a command's client would be waiting for itself if it waited for these keys.
    pub(super) fn closes_cycle(&mut self, keys: KeyNames<'_>, request: &Request<'_>) -> bool {
        let (own, most) = (self.edge.client(), self.edge.most_edges());
        let clock = self.edge.clock();
        let Some(mut search) = self.engine().search(own, keys, request, most, clock) else { return false };
        let now = clock.now();
        loop {
            let step = self.engine().search_on(&mut search);
            match step {
                Step::Done(closes_cycle) => {
                    self.edge.select(keys.db);
                    return closes_cycle;
                }
                Step::Inspect(db, name) => {
                    let name = self.edge.name(KeyName { db, name: &name });
                    let key = name
                        .as_ref()
                        .and_then(|name| self.edge.open(E::lend(name), Access::ReadOnly, Expected::Nothing, now).ok());
                    search.seen(key.as_ref().map(Key::lock), key.as_ref().map_or(0, Key::holders_read));
                }
            }
        }
    }
}
