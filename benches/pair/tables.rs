//! The results of a bench of pairs, as tables.

use super::work::Workload;
use crate::bounds::list::{at_most, judged};
use crate::measure::state::State;
use crate::measure::{median, print_table, Cost, Ratio};

/// Prints the results on a server, with this many operations in a round.
pub fn print(workloads: &[Workload], operations: usize, state: State, server: &str) {
    println!("\n{}:", state.name());
    print_costs(workloads, operations);
    print_ratios(workloads, state, server);
}

/// Prints the cost of one operation, the median of the rounds.
fn print_costs(workloads: &[Workload], operations: usize) {
    let mut rows = Vec::new();
    for workload in workloads {
        for contender in &workload.contenders {
            let middle = |of: fn(&Cost) -> f64| median(contender.costs.iter().map(of));
            let micros = |seconds: f64| format!("{:.3}", seconds * 1e6 / operations as f64);
            rows.push(vec![
                workload.name.into(),
                contender.name.into(),
                micros(middle(|cost| cost.cpu.as_secs_f64())),
                micros(middle(|cost| cost.wall.as_secs_f64())),
                format!("{:.0} %", 100.0 * middle(Cost::busy)),
            ]);
        }
    }
    let header = ["operation", "done with", "server CPU, µs", "wall, µs", "server busy"];
    print_table(2, &header, &rows);
}

/// Ours against each peer, as the median of the rounds' ratios. Each ratio compares within a round, so that anything
/// that slows down a whole round (other work on the machine, a lower CPU clock) affects both sides.
fn print_ratios(workloads: &[Workload], state: State, server: &str) {
    let mut rows = Vec::new();
    for Workload { name, contenders } in workloads {
        let (ours, peers) = contenders.split_first().expect("ours is the first");
        for peer in peers {
            let ratio = |of: fn(&Cost) -> f64| {
                let (ours, theirs): (Vec<f64>, Vec<f64>) =
                    ours.costs.iter().zip(&peer.costs).map(|(our, their)| (of(our), of(their))).unzip();
                Ratio::of(&ours, &theirs).expect("as many rounds of each")
            };
            let cpu = ratio(|cost| cost.cpu.as_secs_f64());
            let mut row = vec![
                (*name).into(),
                peer.name.into(),
                format!("{:.2}", cpu.median),
                format!("{:.2} to {:.2}", cpu.low, cpu.high),
                format!("{:.2}", ratio(|cost| cost.wall.as_secs_f64()).median),
            ];
            row.extend(judged(cpu.median, at_most(name, peer.name, state, server)));
            rows.push(row);
        }
    }
    let header = ["LOCK.*", "against", "server CPU", "in the rounds", "wall", "expected at most", "verdict"];
    print_table(2, &header, &rows);
}
