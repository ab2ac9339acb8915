//! The canonical form of the sessions, for comparison.

use super::{Binding, Sessions};
use crate::lock::time::UnixMicros;
use std::collections::BTreeMap;

/// All bindings, and the connections that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionsForm {
    all: Vec<(i32, Box<[u8]>, Binding)>,
    over: BTreeMap<u64, UnixMicros>,
}

impl Sessions {
    /// The canonical form. It leaves out which bindings were inspected: an expired binding does not count.
    #[must_use]
    pub fn canonical(&self) -> SessionsForm {
        let all = self.locks.iter();
        let mut all: Vec<(i32, Box<[u8]>, Binding)> = all
            .flat_map(|(db, name, bindings)| bindings.values().map(move |own| (db, name.as_ref().into(), own.clone())))
            .collect();
        all.sort_unstable_by(|one, other| (one.0, &one.1, one.2.token).cmp(&(other.0, &other.1, other.2.token)));
        SessionsForm { all, over: self.over.clone() }
    }
}
