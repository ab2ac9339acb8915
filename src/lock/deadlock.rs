//! Whether a client that begins to wait would wait for itself.
//!
//! A client can go on if it waits for nothing, or if every key that it waits for can come free: if enough
//! of those who hold the key can go on and end. Holders without a session can always: their lease ends.
//! What is left over when nobody else can go on stands still for ever.

use rustc_hash::FxHashMap;

/// One key that a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The clients whose sessions hold it, each as often as it does.
    pub holders: Vec<u64>,
    /// How many of those grants have to end before the client can have it.
    pub ends: u64,
}

/// Who waits for which keys, as far as the caller can reach them.
#[derive(Debug, Default)]
pub struct Graph {
    /// In the order in which they were reached.
    clients: Vec<(u64, Vec<Need>)>,
}

impl Graph {
    /// Adds what a client waits for.
    pub fn add(&mut self, client: u64, needs: Vec<Need>) {
        self.clients.push((client, needs));
    }

    /// Whether the wait of `caller` would close a circle, itself included.
    #[must_use]
    pub fn closes_circle(&self, caller: u64) -> bool {
        let holds = |(_, needs): &(u64, Vec<Need>)| needs.iter().any(|need| need.holders.contains(&caller));
        self.clients.iter().any(holds) && !self.can_go_on(caller, false) && self.can_go_on(caller, true)
    }

    /// Whether a client can go on; `ends`: if the locks that it holds end anyway.
    fn can_go_on(&self, caller: u64, ends: bool) -> bool {
        let mut goes_on: FxHashMap<u64, bool> = self.clients.iter().map(|(client, _)| (*client, false)).collect();
        loop {
            let mut is_news = false;
            // Those who were reached last wait for nobody further on: mostly one walk is enough.
            for (client, needs) in self.clients.iter().rev() {
                if goes_on.get(client) == Some(&true) {
                    continue;
                }
                let may_end =
                    |holder: &&u64| (ends && **holder == caller) || goes_on.get(holder).is_none_or(|goes_on| *goes_on);
                let is_met = |need: &Need| {
                    let free = need.holders.iter().filter(may_end).count();
                    u64::try_from(free).unwrap_or(u64::MAX) >= need.ends
                };
                if needs.iter().all(is_met) {
                    goes_on.insert(*client, true);
                    is_news = true;
                }
            }
            if goes_on.get(&caller) == Some(&true) || !is_news {
                return goes_on.get(&caller) != Some(&false);
            }
        }
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
            let need = |(holders, ends): &Wants<'_>| Need { holders: holders.to_vec(), ends: *ends };
            graph.add(*client, needs.iter().map(need).collect());
        }
        graph
    }

    #[test]
    fn a_circle_of_holders_stands_still() {
        assert!(graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)]), (3, &[(&[1], 1)])]).closes_circle(1));
        assert!(!graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)])]).closes_circle(1));
        assert!(graph(&[(1, &[(&[1], 1)])]).closes_circle(1));
    }

    #[test]
    fn one_free_holder_of_several_is_enough_for_one_place() {
        // Client 4 holds too and waits for nothing.
        assert!(!graph(&[(1, &[(&[2, 4], 1)]), (2, &[(&[1], 1)])]).closes_circle(1));
        assert!(graph(&[(1, &[(&[2, 4], 2)]), (2, &[(&[1], 1)])]).closes_circle(1));
    }

    #[test]
    fn all_of_several_keys_have_to_come_free() {
        assert!(graph(&[(1, &[(&[3], 1), (&[2], 1)]), (2, &[(&[1], 1)])]).closes_circle(1));
    }

    #[test]
    fn a_circle_of_others_is_none_of_the_caller() {
        assert!(!graph(&[(1, &[(&[2], 1)]), (2, &[(&[3], 1)]), (3, &[(&[2], 1)])]).closes_circle(1));
    }

    proptest! {
        /// The account without a plan: whoever can go on ends all it holds and is gone, until nobody can.
        #[test]
        fn who_stands_still_is_who_is_left_when_all_who_can_have_gone_on(
            needs in prop::collection::vec(prop::collection::vec((prop::collection::vec(0..5_u64, 1..4), 1..4_u64), 0..3), 5),
        ) {
            let mut graph = Graph::default();
            for (client, needs) in needs.iter().enumerate() {
                let need = |(holders, ends): &(Vec<u64>, u64)| {
                    Need { holders: holders.clone(), ends: (*ends).min(holders.len() as u64) }
                };
                graph.add(client as u64, needs.iter().map(need).collect());
            }
            let mut left: Vec<u64> = (0..5).collect();
            while let Some(at) = left.iter().position(|client| {
                graph.clients[usize::try_from(*client).unwrap()].1.iter().all(|need| {
                    need.holders.iter().filter(|holder| !left.contains(holder)).count() as u64 >= need.ends
                })
            }) {
                left.remove(at);
            }
            for client in 0..5 {
                prop_assert_eq!(graph.can_go_on(client, false), !left.contains(&client));
                if graph.closes_circle(client) {
                    prop_assert!(left.contains(&client));
                }
            }
        }
    }
}
