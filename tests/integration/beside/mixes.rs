//! The mix of steps in a run: the simulator's, or one with more of the steps that its runs rarely reach.

use super::model::steps::{Acquire, Plan, Random, Share, Step, Time, CLIENTS, IDS};

/// The keys of many clients.
const TWO: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Calm,
    Rough,
    /// Many clients share two locks, which are constantly renamed, copied and swapped.
    ManyClients,
}

fn small(random: &mut Random, most: u64) -> u8 {
    u8::try_from(random.below(most)).unwrap()
}

impl Mix {
    pub const fn of(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Calm,
            1 => Self::Rough,
            _ => Self::ManyClients,
        }
    }

    fn step(self, random: &mut Random) -> Step {
        match self {
            Self::Calm => Step::any(random, Plan::Calm),
            Self::Rough => Step::any(random, Plan::Rough),
            Self::ManyClients => many_clients(random),
        }
    }

    /// A seed's steps. Sometimes the next holder disconnects before the grant reaches it.
    pub fn steps(self, seed: u64, count: usize) -> Vec<Step> {
        let mut random = Random::new(seed);
        let mut steps = Vec::with_capacity(count + 1);
        while steps.len() < count {
            let step = self.step(&mut random);
            let may_pass_on = matches!(
                step,
                Step::Release { .. } | Step::Share { .. } | Step::ReleaseAll { .. } | Step::Disconnect { .. }
            );
            steps.push(step);
            if may_pass_on && random.below(6) == 0 {
                steps.push(Step::Lose);
            }
        }
        steps
    }
}

fn many_clients(random: &mut Random) -> Step {
    let key = small(random, TWO);
    let grant = small(random, 16);
    match random.below(100) {
        0..=29 => Step::Acquire(Acquire {
            client: small(random, u64::from(CLIENTS)),
            keys: vec![key],
            share: random.of(&[Share::Shared, Share::Shared, Share::Limit(4), Share::Limit(6)]),
            lease: random.of(&[1_000, 2_000, 3_000, 30_000]),
            wait: random.of(&[0, 0, 0, 200]),
            id: (random.below(4) == 0).then(|| small(random, u64::from(IDS))),
            session: random.below(8) == 0,
            in_transaction: false,
            notify: None,
            wants_result: false,
        }),
        30..=44 => Step::Release { grant, key },
        45..=52 => Step::Extend { grant, lease: random.of(&[500, 1_500, 20_000]) },
        53..=64 => Step::Check { grant },
        65..=79 => Step::Rename { from: key, to: small(random, TWO) },
        80..=81 => Step::Copy { from: key, to: small(random, TWO) },
        82 => Step::Swap,
        83..=94 => Step::Pass(random.of(&[Time::Turn, Time::Us(100), Time::Us(3_000), Time::Us(50_000)])),
        _ => Step::any(random, Plan::Calm),
    }
}
