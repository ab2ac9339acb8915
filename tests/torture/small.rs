//! Keys for small histories: one after the other, each for a limited time and number of operations, so that all their
//! orders can be tried.

use super::world::World;
use std::collections::HashMap;
use std::sync::Mutex;

/// How long a key is used, and how many attempts may begin on it: each has about five operations at most.
const FOR_US: i64 = 1_500_000;
const ATTEMPTS: usize = 40;

#[derive(Default)]
pub struct Budget(Mutex<HashMap<String, usize>>);

impl Budget {
    /// The current key, if its budget is not spent.
    pub fn next_key(&self, world: &World, group: u32) -> Option<String> {
        let key = format!("small:{group}:{}", world.now() / FOR_US);
        let mut used = self.0.lock().unwrap();
        let used = used.entry(key.clone()).or_default();
        *used += 1;
        (*used <= ATTEMPTS).then_some(key)
    }
}
