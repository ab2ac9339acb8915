//! The server's cost for several holders and several keys: LOCK.* against scripts that do the same, on one server in
//! one run, measured as in the bench pair. Then the growth of the cost with the number of holders.

pub mod work;

use crate::measure::state::State;
use crate::measure::{Call, Origin};
use crate::pair::connection::{side_by_side, Stand, COLUMNS};
use crate::pair::{tables, CONNECTIONS, KEYS};
use testkit::Server;
use work::{crowds, of_several};

/// A connection's keys if each has many holders.
const FEW_KEYS: usize = 8;

/// Leaves out everything without a bound.
pub const BOUNDED: &str = "--bounds";

const ROUNDS: usize = 9;
const OPERATIONS: usize = 100_000;

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let origin = Origin::of("several", &Server::start(), &settings)
        .with("rounds", settings.rounds)
        .with("operations", format!("{} of each contender in each round", settings.operations))
        .with("on their way", format!("{CONNECTIONS} connections with {KEYS} commands each, {FEW_KEYS} for crowds"))
        .printed();
    let (mut rows, measured) = side_by_side(settings.rounds, (CONNECTIONS, KEYS, settings.operations), of_several);
    for (state, operations, workloads) in measured {
        tables::print(&workloads, operations, state, origin.server());
    }
    if !call.has(BOUNDED) {
        let mut stand = Stand::in_state(State::NoSink, CONNECTIONS, FEW_KEYS, settings.operations);
        let mut workloads = crowds(&mut stand.server.conn());
        for round in 0..=settings.rounds {
            for workload in &mut workloads {
                rows.extend(stand.round(round, workload));
            }
        }
        tables::print(&workloads, stand.operations, State::NoSink, origin.server());
    }
    origin.keep(COLUMNS, &rows);
}
