//! Shortens a failing run: leaves out parts of its list of steps as long as it fails in the same way.

use super::steps::{Plan, Step, Time};
use super::world::{Run, Tally};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic on this thread is a finding, which is not printed.
    static IS_JUDGED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

pub enum Outcome {
    Fine(Tally),
    Found { message: String, at: usize },
}

/// Runs a list of steps in a world with the settings of a seed.
pub fn run(plan: Plan, seed: u64, steps: &[Step]) -> Outcome {
    run_with(plan, seed, steps, false)
}

/// Like [`run`], and prints the servers after each step.
pub fn trace(plan: Plan, seed: u64, steps: &[Step]) -> Outcome {
    run_with(plan, seed, steps, true)
}

fn run_with(plan: Plan, seed: u64, steps: &[Step], traces: bool) -> Outcome {
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_JUDGED.get() {
                print(info);
            }
        }));
    });
    let at = Cell::new(0);
    IS_JUDGED.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(plan, seed);
        for (number, step) in steps.iter().enumerate() {
            at.set(number);
            run.step(step);
            if traces {
                println!("{step:?}\n{run}");
            }
        }
        run.end();
        run.tally
    }));
    IS_JUDGED.set(false);
    match result {
        Ok(tally) => Outcome::Fine(tally),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            Outcome::Found { message: text.unwrap_or_default(), at: at.get() }
        }
    }
}

/// A finding's message without names and numbers.
fn kind(message: &str) -> String {
    let letters = message.chars().filter(|char| !char.is_ascii_digit());
    letters.filter(|char| char.is_ascii_lowercase() || *char == ' ').take(60).collect()
}

/// The shortest list of steps found that fails in the same way.
pub fn shorten(plan: Plan, seed: u64, steps: &[Step], message: &str) -> Vec<Step> {
    let wanted = kind(message);
    let fails = &|steps: &[Step]| match run(plan, seed, steps) {
        Outcome::Found { message, at } if kind(&message) == wanted => Some(at),
        _ => None,
    };
    let mut short = steps.to_vec();
    loop {
        let before = short.len();
        leave_out(&mut short, fails);
        merge_times(&mut short, fails);
        if short.len() == before {
            return short;
        }
    }
}

/// Leaves parts out: halves first, single steps last.
fn leave_out(short: &mut Vec<Step>, fails: impl Fn(&[Step]) -> Option<usize>) {
    let mut part = short.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < short.len() {
            let mut fewer = short.clone();
            fewer.drain(from..(from + part).min(short.len()));
            match fails(&fewer) {
                Some(at) => {
                    fewer.truncate(at + 1);
                    *short = fewer;
                }
                None => from += part,
            }
        }
        part /= 2;
    }
}

/// Merges two steps in which only time passes.
fn merge_times(short: &mut Vec<Step>, fails: impl Fn(&[Step]) -> Option<usize>) {
    let mut at = 0;
    while at + 1 < short.len() {
        if let (Step::Pass(Time::Us(first)), Step::Pass(Time::Us(second))) = (&short[at], &short[at + 1]) {
            let mut fewer = short.clone();
            fewer[at] = Step::Pass(Time::Us(first + second));
            fewer.remove(at + 1);
            if let Some(end) = fails(&fewer) {
                fewer.truncate(end + 1);
                *short = fewer;
                continue;
            }
        }
        at += 1;
    }
}
