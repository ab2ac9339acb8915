//! Several keys and several holders: random steps on the driver and the engine, on a fake server, against a plain
//! account of what is promised.
//!
//! `SEVERAL_STEPS` sets how many steps (200000).

pub mod drive;
pub mod plain;
mod server;

use drive::{drive, Tally, UNIT};
use plain::Settings;
use server::Server;

fn steps() -> usize {
    std::env::var("SEVERAL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(200_000)
}

/// Both with a server that stands still while time passes, and with one that does all in its moment.
fn drive_both(seed: u64, settings: Settings) -> Tally {
    let mut tally = Tally::default();
    for runs_on in [false, true] {
        tally += drive(&mut Server::new(Settings { runs_on, ..settings }), seed, steps() / 20);
    }
    tally
}

#[test]
fn random_steps_of_many_clients_end_as_a_plain_account_says() {
    for seed in 1..=20 {
        drive_both(seed, Settings::default());
    }
}

#[test]
fn so_they_do_where_connections_end_waits_are_over_and_keys_expire() {
    let mut tally = Tally::default();
    for seed in 1..=20 {
        let retention = [None, Some(0), Some(UNIT), Some(4 * UNIT)][usize::try_from(seed % 4).unwrap()];
        let margin = [0, UNIT][usize::try_from(seed % 3 / 2).unwrap()];
        let settings = Settings { margin, retention, place: 3 * UNIT, is_restless: true, runs_on: false };
        tally += drive_both(seed, settings);
    }
    println!("{tally:?}");
    let Tally { grants, deadlocks, time_outs, sessions_ended, keys_expired } = tally;
    for count in [grants, deadlocks, time_outs, sessions_ended, keys_expired] {
        assert!(count > steps() / 1_000, "{tally:?}");
    }
}
