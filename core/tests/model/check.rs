//! Runs the checker over a model, through all states or until a property fails, and prints the number of states
//! visited.

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display, Formatter};
use std::hash::Hash;
use std::time::Instant;

/// Whether `LOCK_MODEL=large` selects the larger bounds, for a run that takes minutes in the release profile.
pub fn is_large() -> bool {
    std::env::var("LOCK_MODEL").is_ok_and(|bounds| bounds == "large")
}

/// The figures of a run.
struct Figures {
    states: usize,
    depth: usize,
    seconds: f64,
}

impl Display for Figures {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} states, depth {}, {:.1} s", self.states, self.depth, self.seconds)
    }
}

fn run<M>(model: M, until: HasDiscoveries, deepest: usize) -> (impl Checker<M>, Figures)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let begin = Instant::now();
    // Only one thread is used, because this binary's tests run in parallel, and one thread finds the same path each
    // time.
    let checker = model.checker().threads(1).finish_when(until).target_max_depth(deepest);
    let checker = checker.spawn_bfs().join();
    let figures = Figures {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: begin.elapsed().as_secs_f64(),
    };
    (checker, figures)
}

/// Checks all states: everything that must always be true is true, and everything that must be possible occurs.
pub fn holds<M>(what: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let (checker, figures) = run(model, HasDiscoveries::AnyFailures, usize::MAX);
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Sometimes, None) => panic!("{what}: never seen: {} ({figures})", property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => panic!("{what}: does not hold: {}\n{path}{:?}", property.name, path.last_state()),
        }
    }
    println!("{what}: holds in all states: {figures}");
}

/// After this many states, a path that is a step or two longer than the shortest will do.
const MANY: usize = 1_000_000;

/// Finds a shortest path to a state where the property fails, and prints it.
pub fn fails<M>(what: &str, property: &'static str, model: &M)
where
    M: Clone + Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let found = || HasDiscoveries::AllOf(BTreeSet::from([property]));
    let (checker, figures) = run(model.clone(), found(), usize::MAX);
    let Some(mut path) = checker.discovery(property) else {
        let failed: Vec<_> = checker.discoveries().into_keys().collect();
        panic!("{what}: no counter-example to \"{property}\" in {figures}; found: {failed:?}");
    };
    // The checker keeps the last path that it saw before it stopped; another search takes as long as the first.
    let mut shorter = (figures.states < MANY).then(|| path.clone());
    while let Some(found_path) = shorter {
        let deepest = found_path.clone().into_actions().len() + 1;
        path = found_path;
        shorter = run(model.clone(), found(), deepest).0.discovery(property);
    }
    print!("{what}: counter-example to \"{property}\" found in {figures}: {path}");
}
