//! The driver and the engine in a simulated world: servers with clocks that are set and machines that are suspended, a
//! network with lagging replicas, clients that die and resend. One seed determines everything. A run is a list of
//! steps, and a judge that knows only the contract inspects the keys and the replies.
//!
//! A failing run prints its seed and the fewest steps that fail in the same way. With `SIMULATE_TRACE=1` it also prints
//! the servers after each of these steps.
//!
//!     make simulate SEED=7 SECONDS=60

mod findings;
mod judge;
mod raw;
mod shrink;
mod site;
mod steps;
mod world;

use shrink::{run, Outcome};
use std::time::{Duration, Instant};
use steps::{Acquire, Plan, Random, Share, Step, Time};
use world::Tally;

/// The number of steps in one world; the next world has other settings.
const STEPS: usize = 3_000;

fn steps(plan: Plan, seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut steps = Vec::with_capacity(STEPS);
    while steps.len() < STEPS {
        let step = Step::any(&mut random, plan);
        let step = if has_cycles(plan, seed) { for_long(step) } else { step };
        let may_pass_on = matches!(step, Step::Release { .. } | Step::ReleaseAll { .. } | Step::Disconnect { .. });
        steps.push(step);
        if may_pass_on && random.below(6) == 0 {
            steps.push(Step::Lose);
        }
    }
    steps
}

/// Whether this is a world in which clients hold locks with their sessions and wait long enough to wait for each other.
fn has_cycles(plan: Plan, seed: u64) -> bool {
    plan == Plan::Calm && seed.is_multiple_of(5)
}

fn for_long(step: Step) -> Step {
    let command = |command: Acquire| {
        let id = command.id.filter(|_| command.share != Share::Alone);
        Acquire { session: true, lease: 10_000, wait: command.wait.max(2_000), id, notify: None, ..command }
    };
    match step {
        Step::Acquire(own) => Step::Acquire(command(own)),
        Step::AcquireAll(own) => Step::AcquireAll(command(own)),
        // The leases would be too long for a grace.
        Step::SetGrace { .. } => Step::Pass(Time::Turn),
        other => other,
    }
}

fn plan(seed: u64) -> Plan {
    match seed % 3 {
        0 => Plan::Calm,
        1 => Plan::Rough,
        _ => Plan::Group,
    }
}

/// Runs a seed. A finding is reported with the fewest steps that show it.
fn simulate(seed: u64) -> Result<Tally, Finding> {
    let plan = plan(seed);
    let steps = steps(plan, seed);
    match run(plan, seed, &steps) {
        Outcome::Fine(tally) => Ok(tally),
        Outcome::Found { message, at } => {
            let short = shrink::shorten(plan, seed, &steps[..=at], &message);
            let again = if number("SIMULATE_TRACE").is_some() { shrink::trace } else { run };
            let message = match again(plan, seed, &short) {
                Outcome::Found { message, .. } => message,
                Outcome::Fine(_) => message,
            };
            let lines: Vec<String> = short.iter().map(|step| format!("    {step:?}\n")).collect();
            let (count, lines) = (lines.len(), lines.concat());
            let text = format!(
                "seed {seed} ({plan:?}), step {at}: make simulate SEED={seed}\n{message}\n{count} steps show it:\n{lines}"
            );
            Err(Finding { at, text })
        }
    }
}

/// A finding, and the step of its seed where it was found.
struct Finding {
    at: usize,
    text: String,
}

/// Runs one seed after another until `goes_on` returns false.
fn simulate_all(mut seeds: impl Iterator<Item = u64>, mut goes_on: impl FnMut() -> bool) -> Tally {
    let (begun, mut sum) = (Instant::now(), Tally::default());
    while goes_on() {
        let Some(seed) = seeds.next() else { break };
        match simulate(seed) {
            Ok(tally) => sum += tally,
            Err(Finding { at, text }) => {
                let (steps, took) = (sum.steps + at as u64, begun.elapsed());
                panic!("found after {steps} steps, in {took:.1?} including the search for fewer of them: {text}");
            }
        }
    }
    let a_minute = u128::from(sum.steps) * 60_000 / begun.elapsed().as_millis().max(1);
    println!("{a_minute} steps a minute: {sum:#?}");
    sum
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn fixed_seeds_are_without_a_finding() {
    // After them come the seeds of old findings: a claim that ends in the same millisecond as its grant, so that the
    // set keeps the native expiry; a set whose last holder is not the one that has to claim its grant; two simultaneous
    // grants that nobody claims; a lost grant whose attempt asked for a copy of the key.
    let found = [784_921_784_289, 901_109_689_152, 595_617_627_183, 722_186_284_701];
    let sum = simulate_all((0..1_000).chain(found), || true);
    let Tally { grants, hand_offs, deadlocks, time_outs, sessions_ended, undelivered, promotions, barred, .. } = sum;
    let Tally { cancelled, notified, claims, results, passed_over, .. } = sum;
    let counts = [grants, hand_offs, deadlocks, time_outs, sessions_ended, undelivered, promotions, barred];
    for count in counts.into_iter().chain([cancelled, notified, claims, results, passed_over]) {
        assert!(count > 100, "{sum:?}");
    }
}

#[test]
#[ignore = "`make simulate` and the nightly run it: it may find something new"]
fn fresh_seeds_are_without_a_finding() {
    let seconds = number("SIMULATE_SECONDS").unwrap_or(3);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let first = number("SIMULATE_SEED").unwrap_or_else(|| u64::try_from(clock % 1_000_000_000_000).unwrap());
    println!("from seed {first}, for {seconds} s");
    let end = Instant::now() + Duration::from_secs(seconds);
    simulate_all(first.., || Instant::now() < end);
}
