//! A random run: any steps of a plan, determined by a seed.

use super::{Acquire, Fate, Ms, Plan, Put, Share, Step, Time, CHANNELS, CLIENTS, IDS, KEYS};

/// A small random number generator. The same seed gives the same run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    fn small(&mut self, most: u8) -> u8 {
        u8::try_from(self.below(u64::from(most))).unwrap()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

fn lease(random: &mut Random, plan: Plan) -> Ms {
    match plan {
        Plan::Group => random.of(&[100, 500, 1_000, 2_000, 2_500, 2_500, 2_501, 4_000]),
        Plan::Calm | Plan::Rough => random.of(&[10, 50, 100, 500, 1_000, 1_000, 3_000]),
    }
}

fn command(random: &mut Random, plan: Plan) -> Acquire {
    let mut keys = vec![random.small(KEYS)];
    let many = random.one_in(3);
    if many {
        for _ in 0..random.below(3) {
            let key = random.small(KEYS);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    let share = match random.below(4) {
        _ if many => Share::Alone,
        0 => Share::Shared,
        1 => Share::Limit(1 + random.small(3)),
        _ => Share::Alone,
    };
    let wait = if random.one_in(3) { 0 } else { random.of(&[20, 200, 1_000, 2_000, 10_000]) };
    let id = (!random.one_in(3)).then(|| random.small(IDS));
    let (session, in_transaction) = (random.one_in(3), random.one_in(20));
    let notify = (id.is_some() && wait > 0 && random.one_in(2)).then(|| random.small(CHANNELS));
    let wants_result = wait > 0 && share == Share::Alone && keys.len() == 1 && !session && random.one_in(2);
    Acquire {
        client: random.small(CLIENTS),
        keys,
        share,
        lease: lease(random, plan),
        wait,
        id,
        session,
        in_transaction,
        notify,
        wants_result,
    }
}

fn time(random: &mut Random, plan: Plan) -> Time {
    match random.below(20) {
        0..=7 => Time::Turn,
        8..=10 => Time::Us(Ms::try_from(random.below(3_000)).unwrap()),
        11..=14 => Time::Timer,
        15..=18 => Time::Us(1_000 * Ms::try_from(random.below(400)).unwrap()),
        _ if plan == Plan::Group => Time::Us(1_000 * Ms::try_from(random.below(8_000)).unwrap()),
        _ => Time::Us(1_000 * Ms::try_from(random.below(3_000)).unwrap()),
    }
}

impl Step {
    /// Any step of this plan.
    pub fn any(random: &mut Random, plan: Plan) -> Self {
        let key = |random: &mut Random| random.small(KEYS);
        match random.below(100) {
            0..=19 => {
                let command = command(random, plan);
                if command.keys.len() > 1 || random.one_in(10) {
                    Self::AcquireAll(Acquire { share: Share::Alone, wants_result: false, ..command })
                } else {
                    Self::Acquire(command)
                }
            }
            20..=21 => Self::Recover {
                client: random.small(CLIENTS),
                key: key(random),
                lease: lease(random, plan),
                id: random.one_in(2).then(|| random.small(IDS)),
            },
            22..=25 => Self::Extend { grant: random.small(16), lease: lease(random, plan) },
            26..=27 => Self::ExtendAll {
                grant: random.small(16),
                more: random.one_in(3).then(|| key(random)),
                lease: lease(random, plan),
            },
            28..=33 => Self::Release { grant: random.small(16), key: key(random) },
            34..=36 => Self::Share { grant: random.small(16), key: key(random) },
            37 if random.one_in(2) => Self::Lose,
            37..=43 => Self::ReleaseAll { grant: random.small(16), more: random.one_in(4).then(|| key(random)) },
            44..=45 => Self::Check { grant: random.small(16) },
            46..=48 => Self::Cancel { key: key(random), id: random.small(IDS) },
            49..=51 => Self::Disconnect { client: random.small(CLIENTS) },
            52 => Self::Lose,
            53 if random.one_in(3) => Self::Unblock { client: random.small(CLIENTS) },
            53..=56 => Self::Claim { number: random.small(24), client: random.small(CLIENTS) },
            57 => Self::Again { command: random.small(8), client: random.small(CLIENTS) },
            58 if random.one_in(2) => Self::Multi,
            58 => Self::CancelChannel { key: key(random), channel: random.small(CHANNELS) },
            59 => Self::Subscribe { channel: random.small(CHANNELS), is_there: !random.one_in(3) },
            60..=93 => Self::Pass(time(random, plan)),
            _ => Self::any_fault(random, plan),
        }
    }

    fn any_fault(random: &mut Random, plan: Plan) -> Self {
        let key = |random: &mut Random| random.small(KEYS);
        let server = random.small(3);
        match (random.below(16), plan) {
            (0..=1, Plan::Calm | Plan::Rough) => Self::Delete { key: key(random) },
            (2, Plan::Calm | Plan::Rough) => Self::Rename { from: key(random), to: key(random) },
            (3, Plan::Calm | Plan::Rough) => Self::Copy { from: key(random), to: key(random) },
            (4, Plan::Calm | Plan::Rough) if random.one_in(4) => Self::Flush,
            (5, Plan::Calm | Plan::Rough) if random.one_in(4) => Self::Swap,
            (6, Plan::Calm | Plan::Rough) => Self::SetGrace { longer: random.one_in(2) },
            (7, Plan::Rough) => Self::Evict { key: key(random) },
            (8, Plan::Rough) => Self::Put {
                key: key(random),
                what: match random.below(4) {
                    0 => Put::Foreign,
                    1 => Put::ForeignFor(random.of(&[10, 100, 1_000])),
                    _ => Put::Timestamp(random.of(&[-1_000, 50, 1_000])),
                },
            },
            (9, Plan::Rough) | (12, Plan::Group) => Self::Pause(random.of(&[5, 100, 1_500])),
            (10, Plan::Rough) => Self::SetClock { server, by: random.of(&[-5_000, -700, -60, 60, 700, 5_000]) },
            (11, Plan::Rough) => Self::Stop { server, time: random.of(&[30, 300, 3_000]) },
            (12, Plan::Rough) => Self::Suspend { server, time: random.of(&[30, 300, 3_000, 20_000]) },
            (13, Plan::Rough) if random.one_in(4) => Self::Restart { server },
            (14, Plan::Rough) => Self::LoseSlot { key: key(random), deleted: random.one_in(2) },
            (15, Plan::Rough) => Self::RegainSlots,

            (0..=3, Plan::Group) => Self::Promote {
                replica: server,
                fate: match random.below(8) {
                    0 | 1 => Fate::CutOff,
                    2 | 3 => Fate::Stopped(random.of(&[600, 2_000, 8_000, 12_000])),
                    4 | 5 => Fate::Suspended(random.of(&[600, 2_000, 8_000, 12_000])),
                    6 => Fate::Dead,
                    _ => Fate::Agrees,
                },
            },
            (4..=7, Plan::Group) => Self::Heal,
            (8, Plan::Group) => Self::Lag(random.of(&[0, 1, 50, 900])),
            (9, Plan::Group) => Self::Stop { server, time: random.of(&[30, 300, 600]) },
            (10, Plan::Group) => Self::Suspend { server, time: random.of(&[30, 300, 600]) },
            (11, Plan::Group) => Self::SetClock { server, by: random.of(&[-5_000, -700, -60, 60, 700]) },
            (_, Plan::Rough) if random.one_in(2) => Self::FillMemory { is_full: random.one_in(3) },
            _ => Self::Pass(time(random, plan)),
        }
    }
}
