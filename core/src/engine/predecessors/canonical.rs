//! The canonical form of the predecessors, for comparison.

use super::Predecessors;
use crate::engine::grant::Before;
use crate::lock::time::MonotonicMicros;
use crate::lock::token::Token;

impl Predecessors {
    /// The canonical form, in the order in which they are forgotten.
    #[must_use]
    pub fn canonical(&self) -> Vec<(MonotonicMicros, Token, Box<[u8]>, Before)> {
        let before = |token, name| self.grants.get(token).and_then(|keys| keys.get(name));
        let all = self.order.iter();
        all.filter_map(|(until, token, name)| {
            Some((*until, *token, name.as_ref().into(), before(token, name)?.clone()))
        })
        .collect()
    }
}
