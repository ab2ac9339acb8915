//! The graph that shows whether a client that begins to wait would wait for itself.
//!
//! A client can go on if it waits for nothing, or if every key it waits for can become free, that is, if enough of the
//! key's holders can go on and finish. Holders without a session always can, because their leases end. When no further
//! client can go on, the remaining clients are deadlocked.

use rustc_hash::FxHashMap;

/// A lock that somebody waits for.
#[derive(Debug)]
struct Lock {
    /// The clients whose sessions hold it, one entry for each grant.
    holders: Vec<u64>,
    /// The clients that wait for it, each with the number of these grants that have to end for it.
    needs: Vec<(u64, u64)>,
}

/// The index of a lock in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockNumber(usize);

/// The clients' waits for locks that can be reached from the caller.
#[derive(Debug, Default)]
pub struct Graph {
    locks: Vec<Lock>,
    /// How many locks each client waits for.
    waits: FxHashMap<u64, usize>,
}

impl Graph {
    /// Adds a lock that these clients hold through their sessions, one entry for each grant.
    pub fn add_lock(&mut self, holders: Vec<u64>) -> LockNumber {
        self.locks.push(Lock { holders, needs: Vec::new() });
        LockNumber(self.locks.len().saturating_sub(1))
    }

    /// Adds a client that waits for a lock, which it can have once `ends` grants have ended.
    pub fn add_wait(&mut self, client: u64, lock: LockNumber, ends: u64) {
        if let Some(lock) = self.locks.get_mut(lock.0) {
            lock.needs.push((ends, client));
            let count = self.waits.entry(client).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Whether `caller`'s wait, already in the graph, closes a cycle.
    #[must_use]
    pub fn closes_cycle(&mut self, caller: u64) -> bool {
        let is_held = |lock: &Lock| lock.holders.contains(&caller);
        if !self.locks.iter().any(is_held) {
            return false;
        }
        let held = self.sorted();
        !self.can_go_on(&held, caller, false) && self.can_go_on(&held, caller, true)
    }

    /// The client and the lock of each grant, sorted, in one allocation for all of them. Also sorts the locks' waits.
    fn sorted(&mut self) -> Vec<(u64, usize)> {
        let mut held = Vec::with_capacity(self.locks.iter().map(|lock| lock.holders.len()).sum());
        for (at, lock) in self.locks.iter_mut().enumerate() {
            lock.needs.sort_unstable();
            held.extend(lock.holders.iter().map(|holder| (*holder, at)));
        }
        held.sort_unstable();
        held
    }

    /// Whether a client can go on; `ends`: assuming that its own locks end anyway. Visits each lock, holder and wait
    /// once.
    fn can_go_on(&self, held: &[(u64, usize)], caller: u64, ends: bool) -> bool {
        let mut waits = self.waits.clone();
        // For each lock: how many of its grants have ended, and how many of its waits that number satisfies.
        let mut state = vec![(0_u64, 0_usize); self.locks.len()];
        let ends_anyway = |client: u64| ends && client == caller;
        let clients = held.chunk_by(|one, next| one.0 == next.0).filter_map(|grants| grants.first());
        let is_free = |client: &u64| !waits.contains_key(client) || ends_anyway(*client);
        let mut ending: Vec<u64> = clients.map(|(client, _)| *client).filter(is_free).collect();
        while let Some(client) = ending.pop() {
            let first = held.partition_point(|(holder, _)| *holder < client);
            for (_, at) in held.iter().skip(first).take_while(|(holder, _)| *holder == client) {
                let (Some(lock), Some((ended, met))) = (self.locks.get(*at), state.get_mut(*at)) else { continue };
                *ended = ended.saturating_add(1);
                while let Some((_, waits_here)) = lock.needs.get(*met).filter(|(ends, _)| *ends <= *ended) {
                    *met = met.saturating_add(1);
                    let Some(left) = waits.get_mut(waits_here) else { continue };
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        waits.remove(waits_here);
                        if !ends_anyway(*waits_here) {
                            ending.push(*waits_here);
                        }
                    }
                }
            }
        }
        !waits.contains_key(&caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Holders, and how many of them have to end.
    type Wants<'a> = (&'a [u64], u64);

    fn graph(clients: &[(u64, &[Wants<'_>])]) -> Graph {
        let mut graph = Graph::default();
        for (client, needs) in clients {
            for (holders, ends) in *needs {
                let lock = graph.add_lock(holders.to_vec());
                graph.add_wait(*client, lock, *ends);
            }
        }
        graph
    }

    #[test]
    fn a_cycle_of_holders_is_a_deadlock() {
        assert!(graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)]), (3, &[(&[1], 1)])]).closes_cycle(1));
        assert!(!graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)])]).closes_cycle(1));
        assert!(graph(&[(1, &[(&[1], 1)])]).closes_cycle(1));
    }

    #[test]
    fn one_free_holder_of_several_is_enough_for_a_caller_that_needs_one_slot() {
        // Client 4 is a holder too, and waits for nothing.
        assert!(!graph(&[(1, &[(&[2, 4], 1)]), (2, &[(&[1], 1)])]).closes_cycle(1));
        assert!(graph(&[(1, &[(&[2, 4], 2)]), (2, &[(&[1], 1)])]).closes_cycle(1));
    }

    #[test]
    fn all_of_several_keys_have_to_come_free() {
        assert!(graph(&[(1, &[(&[3], 1), (&[2], 1)]), (2, &[(&[1], 1)])]).closes_cycle(1));
    }

    #[test]
    fn a_cycle_without_the_caller_is_not_its_deadlock() {
        assert!(!graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)]), (3, &[(&[2], 1)])]).closes_cycle(1));
    }

    #[test]
    fn each_of_many_holders_is_inspected_once() {
        // All clients share one lock and wait for another that others share: each holder is named once.
        const CLIENTS: u64 = 20_000;
        let mut graph = Graph::default();
        let (first, second) =
            (graph.add_lock((0..CLIENTS).collect()), graph.add_lock((CLIENTS..2 * CLIENTS).collect()));
        for client in 0..CLIENTS {
            graph.add_wait(client, second, 1);
            graph.add_wait(CLIENTS + client, first, 1);
        }
        assert!(graph.closes_cycle(7));
    }

    proptest! {
        /// A naive simulation: clients that can go on release everything and leave, until no client can go on.
        #[test]
        fn the_search_agrees_with_a_naive_simulation(
            needs in prop::collection::vec(prop::collection::vec((prop::collection::vec(0..5_u64, 1..4), 1..4_u64), 0..3), 5),
        ) {
            let mut graph = Graph::default();
            let needs: Vec<Vec<(Vec<u64>, u64)>> = needs
                .into_iter()
                .map(|needs| needs.into_iter().map(|(holders, ends)| (holders.clone(), ends.min(holders.len() as u64))).collect())
                .collect();
            for (client, needs) in needs.iter().enumerate() {
                for (holders, ends) in needs {
                    let lock = graph.add_lock(holders.clone());
                    graph.add_wait(client as u64, lock, *ends);
                }
            }
            let mut left: Vec<u64> = (0..5).collect();
            while let Some(at) = left.iter().position(|client| {
                needs[usize::try_from(*client).unwrap()].iter().all(|(holders, ends)| {
                    holders.iter().filter(|holder| !left.contains(holder)).count() as u64 >= *ends
                })
            }) {
                left.remove(at);
            }
            let held = graph.sorted();
            for client in 0..5 {
                prop_assert_eq!(graph.can_go_on(&held, client, false), !left.contains(&client));
                if graph.closes_cycle(client) {
                    prop_assert!(left.contains(&client));
                }
            }
        }
    }
}
