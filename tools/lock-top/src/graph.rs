//! The wait-for graph: a client that waits for a lock waits for each of its holders.
//!
//! A client is identified by its number on its server or, without a number, by its owner. An owner that has at most one
//! number on each server counts as one client: a holder without a number is then recognized as a waiter, and a program
//! that is connected to several servers is one node. This is a guess, because an owner is only a label. Waiters ahead
//! in the queue are not edges. Each of several holders is an edge, even if one release may be enough.

use crate::model::{Holder, Name, Party, Server};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A client's index in [`Graph::parties`].
pub type Node = usize;

/// `from` waits for `to`, which holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: Node,
    pub to: Node,
    pub server: usize,
    pub lock: Name,
    pub waited_ms: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Graph {
    pub parties: Vec<Party>,
    pub edges: Vec<Edge>,
    /// Each cycle, as the edges that close it.
    pub cycles: Vec<Vec<usize>>,
    out: BTreeMap<Node, Vec<usize>>,
    into: BTreeMap<Node, Vec<usize>>,
    in_cycle: BTreeSet<usize>,
    nodes: BTreeMap<Identity, Node>,
    merged: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Client(usize, u64),
    Owner(String),
    /// An unknown client: the holder of this lock.
    Unknown(usize, Name, Option<u64>),
}

impl Graph {
    /// The graph of all locks whose queues are known.
    pub fn of(servers: &[Server]) -> Self {
        let mut graph = Self { merged: owners_with_one_client_each(servers), ..Self::default() };
        for (server, locks) in servers.iter().map(|server| &server.locks).enumerate() {
            for lock in locks {
                let holders: Vec<Node> = live(&lock.holders)
                    .map(|holder| graph.node(server, &holder.who, || (lock.name.clone(), holder.token)))
                    .collect();
                for waiter in lock.queue.iter().flatten() {
                    let is_known = waiter.who.client.is_some() || waiter.who.owner.is_some();
                    // An attempt without an owner or a client holds nothing that anybody could wait for.
                    if !is_known {
                        continue;
                    }
                    let from = graph.node(server, &waiter.who, || (lock.name.clone(), None));
                    for to in &holders {
                        graph.link(Edge {
                            from,
                            to: *to,
                            server,
                            lock: lock.name.clone(),
                            waited_ms: waiter.waited_ms,
                        });
                    }
                }
            }
        }
        graph.find_cycles();
        graph
    }

    fn node(&mut self, server: usize, who: &Party, unknown: impl FnOnce() -> (Name, Option<u64>)) -> Node {
        let owner = who.owner.as_ref().filter(|owner| who.client.is_none() || self.merged.contains(*owner));
        let identity = match (owner, who.client) {
            (Some(owner), _) => Identity::Owner(owner.clone()),
            (None, Some(client)) => Identity::Client(server, client),
            (None, None) => {
                let (name, token) = unknown();
                Identity::Unknown(server, name, token)
            }
        };
        let next = self.parties.len();
        let node = *self.nodes.entry(identity).or_insert(next);
        if node == next {
            self.parties.push(who.clone());
        } else if let Some(known) = self.parties.get_mut(node) {
            // One reply may give details of a client that another lacks.
            known.client = known.client.or(who.client);
            known.addr = known.addr.take().or_else(|| who.addr.clone());
            known.name = known.name.take().or_else(|| who.name.clone());
            known.owner = known.owner.take().or_else(|| who.owner.clone());
        }
        node
    }

    fn link(&mut self, edge: Edge) {
        let number = self.edges.len();
        self.out.entry(edge.from).or_default().push(number);
        self.into.entry(edge.to).or_default().push(number);
        self.edges.push(edge);
    }

    /// The nodes of the live holders of this lock, each found by its owner, its client or its token.
    pub fn holders_of(&self, server: usize, lock: &Name, holders: &[Holder]) -> Vec<Node> {
        let node = |holder: &Holder| {
            let who = &holder.who;
            let identity = match (&who.owner, who.client) {
                (Some(owner), client) if client.is_none() || self.merged.contains(owner) => {
                    Identity::Owner(owner.clone())
                }
                (_, Some(client)) => Identity::Client(server, client),
                _ => Identity::Unknown(server, lock.clone(), holder.token),
            };
            self.nodes.get(&identity).copied()
        };
        let mut nodes: Vec<Node> = live(holders).filter_map(node).collect();
        nodes.dedup();
        nodes
    }

    pub fn party(&self, node: Node) -> Party {
        self.parties.get(node).cloned().unwrap_or_default()
    }

    pub fn edge(&self, number: usize) -> Option<&Edge> {
        self.edges.get(number)
    }

    /// The outgoing edges: what the client waits for.
    pub fn waits(&self, node: Node) -> &[usize] {
        self.out.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The incoming edges: its waiters.
    pub fn waited_for(&self, node: Node) -> &[usize] {
        self.into.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether an edge belongs to one of the cycles found.
    pub fn is_in_cycle(&self, edge: usize) -> bool {
        self.in_cycle.contains(&edge)
    }

    /// Finds one cycle in each strongly connected component: the shortest through its first edge.
    fn find_cycles(&mut self) {
        let mut is_done = BTreeSet::new();
        let core = self.core();
        for (number, edge) in self.edges.iter().enumerate() {
            if !core.contains(&edge.from) || is_done.contains(&edge.from) {
                continue;
            }
            if let Some(mut path) = self.path(edge.to, edge.from, &core) {
                path.insert(0, number);
                is_done.extend(path.iter().filter_map(|number| self.edge(*number)).map(|edge| edge.from));
                self.in_cycle.extend(&path);
                self.cycles.push(path);
            }
        }
    }

    /// Repeatedly removes the nodes without an outgoing or an incoming edge, and returns the rest. It contains every
    /// cycle; without a cycle few nodes or none remain, so the search costs nothing.
    fn core(&self) -> BTreeSet<Node> {
        let mut core: BTreeSet<Node> = (0..self.parties.len()).collect();
        loop {
            let stays = |node: &Node| {
                let any = |edges: &[usize], end: fn(&Edge) -> Node| {
                    edges.iter().filter_map(|number| self.edge(*number)).any(|edge| core.contains(&end(edge)))
                };
                any(self.waits(*node), |edge| edge.to) && any(self.waited_for(*node), |edge| edge.from)
            };
            let left: BTreeSet<Node> = core.iter().copied().filter(stays).collect();
            if left.len() == core.len() {
                return core;
            }
            core = left;
        }
    }

    /// The edges of a shortest path from one node to another.
    fn path(&self, from: Node, to: Node, within: &BTreeSet<Node>) -> Option<Vec<usize>> {
        let mut came_by: BTreeMap<Node, usize> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(node) = next.pop_front() {
            if node == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let number = *came_by.get(&at)?;
                    path.insert(0, number);
                    at = self.edge(number)?.from;
                }
                return Some(path);
            }
            for number in self.waits(node) {
                let Some(edge) = self.edge(*number) else { continue };
                if edge.to != from && within.contains(&edge.to) && !came_by.contains_key(&edge.to) {
                    came_by.insert(edge.to, *number);
                    next.push_back(edge.to);
                }
            }
        }
        None
    }
}

/// The holders whose lease has not ended.
fn live(holders: &[Holder]) -> impl Iterator<Item = &Holder> {
    holders.iter().filter(|holder| holder.overdue_ms.is_none())
}

/// Owners that have at most one client number on each server.
fn owners_with_one_client_each(servers: &[Server]) -> BTreeSet<String> {
    let mut clients: BTreeMap<(String, usize), BTreeSet<u64>> = BTreeMap::new();
    for (number, server) in servers.iter().enumerate() {
        let parties = server.locks.iter().flat_map(|lock| {
            let waiting = lock.queue.iter().flatten().map(|waiter| &waiter.who);
            live(&lock.holders).map(|holder| &holder.who).chain(waiting)
        });
        for who in parties {
            if let Some(owner) = &who.owner {
                clients.entry((owner.clone(), number)).or_default().extend(who.client);
            }
        }
    }
    let several: BTreeSet<String> =
        clients.iter().filter(|(_, clients)| clients.len() > 1).map(|((owner, _), _)| owner.clone()).collect();
    clients.into_keys().map(|(owner, _)| owner).filter(|owner| !several.contains(owner)).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::tests::{lock, party};
    use crate::model::Lock;

    pub fn server(locks: Vec<Lock>) -> Server {
        Server { locks, ..Server::default() }
    }

    /// Each edge as `from>to`, each cycle as the names of its clients.
    fn drawn(servers: &[Server]) -> (Vec<String>, Vec<String>) {
        let graph = Graph::of(servers);
        let name = |node| graph.party(node).owner.unwrap_or_else(|| graph.party(node).label());
        let edges = graph.edges.iter().map(|edge| format!("{}>{}", name(edge.from), name(edge.to))).collect();
        let names = |cycle: &Vec<usize>| cycle.iter().map(|number| name(graph.edges[*number].from)).collect::<Vec<_>>();
        (edges, graph.cycles.iter().map(|cycle| names(cycle).join(" ")).collect())
    }

    #[test]
    fn a_waiter_waits_for_the_holder() {
        let locks = vec![lock("a", party(1, "alice"), vec![party(2, "bob"), party(3, "carol")])];
        assert_eq!(drawn(&[server(locks)]), (vec!["bob>alice".into(), "carol>alice".into()], vec![]));
    }

    #[test]
    fn a_cycle_of_two_and_of_three_is_found_once() {
        let two = vec![lock("a", party(1, "x"), vec![party(2, "y")]), lock("b", party(2, "y"), vec![party(1, "x")])];
        assert_eq!(drawn(&[server(two)]).1, ["y x"]);
        let three = vec![
            lock("a", party(1, "x"), vec![party(2, "y"), party(9, "bystander")]),
            lock("b", party(2, "y"), vec![party(3, "z")]),
            lock("c", party(3, "z"), vec![party(1, "x")]),
        ];
        assert_eq!(drawn(&[server(three)]).1, ["y x z"]);
    }

    #[test]
    fn a_chain_is_not_a_cycle() {
        let chain = vec![lock("a", party(1, "x"), vec![party(2, "y")]), lock("b", party(2, "y"), vec![party(3, "z")])];
        assert_eq!(drawn(&[server(chain)]).1, Vec::<String>::new());
    }

    #[test]
    fn a_client_that_waits_for_itself_is_a_cycle() {
        assert_eq!(drawn(&[server(vec![lock("a", party(1, "x"), vec![party(1, "x")])])]).1, ["x"]);
    }

    #[test]
    fn a_holder_without_client_id_is_matched_by_owner() {
        let locks = vec![lock("a", party(0, "x"), vec![party(2, "y")]), lock("b", party(2, "y"), vec![party(1, "x")])];
        assert_eq!(drawn(&[server(locks)]).1, ["y x"]);
    }

    #[test]
    fn an_owner_with_two_client_ids_is_two_clients() {
        let locks = vec![lock("a", party(1, "pool"), vec![party(2, "pool")]), lock("b", party(2, "pool"), vec![])];
        assert_eq!(drawn(&[server(locks)]), (vec!["pool>pool".into()], vec![]));
    }

    #[test]
    fn client_ids_differ_between_servers_unless_owners_match() {
        let (a, b) = (lock("a", party(1, ""), vec![party(2, "")]), lock("b", party(2, ""), vec![party(1, "")]));
        assert_eq!(drawn(&[server(vec![a]), server(vec![b])]).1, Vec::<String>::new());
        let (a, b) = (lock("a", party(1, "x"), vec![party(2, "y")]), lock("b", party(7, "y"), vec![party(8, "x")]));
        assert_eq!(drawn(&[server(vec![a]), server(vec![b])]).1, ["y x"]);
    }

    #[test]
    fn nobody_waits_for_a_holder_whose_lease_has_ended() {
        let mut ended = lock("a", party(1, "x"), vec![party(2, "y")]);
        ended.holders[0].overdue_ms = Some(5);
        assert_eq!(drawn(&[server(vec![ended])]).0, Vec::<String>::new());
    }

    #[test]
    fn a_waiter_waits_for_each_of_several_holders() {
        let mut shared = lock("a", party(1, "x"), vec![party(3, "z")]);
        shared.holders.push(Holder { who: party(2, "y"), ..Holder::default() });
        assert_eq!(drawn(&[server(vec![shared])]).0, ["z>x", "z>y"]);
    }

    #[test]
    fn unknown_holders_are_not_the_same_client() {
        let locks =
            vec![lock("a", Party::default(), vec![party(1, "")]), lock("b", Party::default(), vec![party(2, "")])];
        assert_eq!(Graph::of(&[server(locks)]).parties.len(), 4);
    }
}
