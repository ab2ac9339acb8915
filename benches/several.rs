//! The cost of several holders and several keys for the server: LOCK.* against scripts that do the same, on one server in
//! one run, measured as in the bench pair. Then the growth of the cost with the number of holders.

pub mod work;

use crate::measure::{Call, Origin};
use crate::pair::lane::{Stand, COLUMNS};
use crate::pair::{tables, KEYS, LANES};
use crate::support::Server;
use work::{crowds, of_several};

/// Keys of a lane where many hold each.
const FEW_KEYS: usize = 8;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 100_000;

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let origin = Origin::of("several", &Server::start(), &settings)
        .with("rounds", settings.rounds)
        .with("operations", format!("{} of each contender in each round", settings.operations))
        .with("on their way", format!("{LANES} connections with {KEYS} commands each, {FEW_KEYS} of crowds"))
        .printed();
    let mut rows = Vec::new();
    for (keys, part) in [(KEYS, of_several as fn(&mut _) -> _), (FEW_KEYS, crowds)] {
        let mut stand = Stand::new(Server::start(), LANES, keys, settings.operations);
        let mut workloads = part(&mut stand.server.conn());
        rows.extend(stand.rounds(settings.rounds, &mut workloads));
        tables::print(&workloads, stand.operations, origin.server());
    }
    origin.keep(COLUMNS, &rows);
}
