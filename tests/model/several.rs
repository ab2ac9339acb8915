//! Several keys and several holders: random steps on the crate's own rules, holders, queue and sessions, put together
//! as `src/server` does it, against a plain account of what is promised.
//!
//! `SEVERAL_STEPS` sets how many steps (200000).

mod bound;
mod core;
pub mod drive;
pub mod plain;
mod serving;

use self::core::Core;
use drive::{drive, Tally, UNIT};
use plain::Settings;

fn steps() -> usize {
    std::env::var("SEVERAL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(200_000)
}

#[test]
fn random_steps_of_many_clients_end_as_a_plain_account_says() {
    for seed in 1..=20 {
        drive(&mut Core::default(), seed, steps() / 20);
    }
}

#[test]
fn so_they_do_where_connections_end_waits_are_over_and_keys_expire() {
    let mut tally = Tally::default();
    for seed in 1..=20 {
        let retention = [None, Some(0), Some(UNIT), Some(4 * UNIT)][usize::try_from(seed % 4).unwrap()];
        let margin = [0, UNIT][usize::try_from(seed % 3 / 2).unwrap()];
        let settings = Settings { margin, retention, place: 3 * UNIT, is_restless: true };
        tally += drive(&mut Core::with(settings), seed, steps() / 20);
    }
    println!("{tally:?}");
    let Tally { grants, deadlocks, time_outs, sessions_ended, keys_expired } = tally;
    for count in [grants, deadlocks, time_outs, sessions_ended, keys_expired] {
        assert!(count > steps() / 2_000, "{tally:?}");
    }
}
