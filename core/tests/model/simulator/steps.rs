//! The steps of a run, as data: the same list does the same again. A step that makes no sense at its point does
//! nothing, so a list stays valid when steps are left out.

/// A small generator: a run is repeated by its seed.
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

/// A number of a client, a key, an ID, a grant or a server, taken modulo how many there are.
pub type Number = u8;
/// Milliseconds.
pub type Ms = u32;

/// How many others may hold the lock too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Alone,
    Shared,
    Limit(u8),
}

impl Share {
    /// The most holders, the caller included.
    pub fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Shared => usize::MAX,
            Self::Limit(most) => usize::from(most),
        }
    }
}

/// Somebody asks for a lock, or for several.
#[derive(Clone, Debug)]
pub struct Acquire {
    pub client: Number,
    pub keys: Vec<Number>,
    pub share: Share,
    pub lease: Ms,
    pub wait: Ms,
    pub id: Option<Number>,
    pub session: bool,
    pub in_transaction: bool,
    /// The channel on which it is notified, if it waits without a connection.
    pub notify: Option<Number>,
}

/// What somebody else puts into a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// `SET key text`
    Foreign,
    /// `SET key text PX ms`
    ForeignFor(Ms),
    /// SETNX or GETSET of the pattern with a timestamp this far ahead; below zero, it has passed.
    Timestamp(i32),
}

/// How long a run passes.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// The event-loop iteration ends.
    Turn,
    Us(Ms),
    /// Until the next timer of a server fires.
    Timer,
}

/// What becomes of the master when another takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not reach its replicas, and some of its clients do not leave it.
    CutOff,
    /// It stands still for this time.
    Stopped(Ms),
    /// Its machine is suspended for this time.
    Suspended(Ms),
    /// It has crashed.
    Dead,
    /// It agrees: nothing is lost.
    Agrees,
}

#[derive(Clone, Debug)]
pub enum Step {
    Acquire(Acquire),
    AcquireAll(Acquire),
    Recover {
        client: Number,
        key: Number,
        lease: Ms,
        id: Option<Number>,
    },
    Extend {
        grant: Number,
        lease: Ms,
    },
    ExtendAll {
        grant: Number,
        more: Option<Number>,
        lease: Ms,
    },
    Release {
        grant: Number,
        key: Number,
    },
    ReleaseAll {
        grant: Number,
        more: Option<Number>,
    },
    Check {
        grant: Number,
    },
    Cancel {
        key: Number,
        id: Number,
    },
    /// LOCK.CANCEL key CHANNEL name
    CancelChannel {
        key: Number,
        channel: Number,
    },
    /// A command of an attempt without a connection is sent again, or arrives once more.
    Again {
        command: Number,
        client: Number,
    },
    /// An attempt claims its grant.
    Claim {
        number: Number,
        client: Number,
    },
    /// The next command runs in a transaction.
    Multi,
    /// A channel gets a subscriber, or loses its last one.
    Subscribe {
        channel: Number,
        is_there: bool,
    },
    /// The server uses more memory than it may.
    FillMemory {
        is_full: bool,
    },
    /// A connection ends.
    Disconnect {
        client: Number,
    },
    /// Ends the connection to which the last answer was sent, which has not left yet.
    Lose,
    /// CLIENT UNBLOCK
    Unblock {
        client: Number,
    },
    Pass(Time),

    Delete {
        key: Number,
    },
    Evict {
        key: Number,
    },
    Put {
        key: Number,
        what: Put,
    },
    Rename {
        from: Number,
        to: Number,
    },
    Copy {
        from: Number,
        to: Number,
    },
    Flush,
    Swap,

    Pause(Ms),
    /// The wall clock is set.
    SetClock {
        server: Number,
        by: i32,
    },
    /// A server stands still.
    Stop {
        server: Number,
        time: Ms,
    },
    Suspend {
        server: Number,
        time: Ms,
    },
    /// kill -9, and a start from the AOF
    Restart {
        server: Number,
    },
    LoseSlot {
        key: Number,
        deleted: bool,
    },
    RegainSlots,
    /// A grace is set, or changed.
    SetGrace {
        longer: bool,
    },

    /// From here on replication takes this long.
    Lag(Ms),
    Promote {
        replica: Number,
        fate: Fate,
    },
    /// Every server that can becomes a replica of the newest master.
    Heal,
}

/// The faults in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One server: clients, time, and changes of keys that events report.
    Calm,
    /// One server on a bad day: pauses, clocks that are set, suspends, changes that no event reports.
    Rough,
    /// A master and two replicas, with a grace.
    Group,
}

pub const CLIENTS: u8 = 10;
pub const KEYS: u8 = 4;
pub const IDS: u8 = 5;
pub const CHANNELS: u8 = 3;

impl Plan {
    pub const fn servers(self) -> usize {
        match self {
            Self::Calm | Self::Rough => 1,
            Self::Group => 3,
        }
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
    /// Any step of such a plan.
    pub fn any(random: &mut Random, plan: Plan) -> Self {
        let key = |random: &mut Random| random.small(KEYS);
        match random.below(100) {
            0..=19 => {
                let command = command(random, plan);
                if command.keys.len() > 1 || random.one_in(10) {
                    Self::AcquireAll(Acquire { share: Share::Alone, ..command })
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
            28..=36 => Self::Release { grant: random.small(16), key: key(random) },
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
