//! The steps of a run, as data. The same list always does the same thing. A step that makes no sense at that point
//! does nothing, so a list stays valid when steps are left out.

// The path is given because a test of the module includes this file too.
#[path = "steps/random.rs"]
mod random;

pub use random::Random;

/// The number of a client, a key, an ID, a grant or a server, taken modulo how many there are.
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
    /// Its channel, if it waits without a connection.
    pub notify: Option<Number>,
    /// Whether it takes the holder's result instead of the lock.
    pub wants_result: bool,
}

/// A value that somebody else puts into a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// `SET key text`
    Foreign,
    /// `SET key text PX ms`
    ForeignFor(Ms),
    /// SETNX or GETSET of the pattern with a timestamp this far ahead; below zero, it has passed.
    Timestamp(i32),
}

/// How much time passes.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// The event-loop iteration ends.
    Turn,
    Us(Ms),
    /// Until the next timer of a server fires.
    Timer,
}

/// What happens to the old master when another takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It cannot reach its replicas, but some of its clients stay with it.
    CutOff,
    /// It stalls for this time.
    Stopped(Ms),
    /// Its machine is suspended for this time.
    Suspended(Ms),
    /// It has crashed.
    Dead,
    /// It cooperates: nothing is lost.
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
    /// LOCK.RELEASE with a result
    Share {
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
    /// A command of an attempt without a connection is resent, or arrives again.
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
    /// The server's memory use is above its limit.
    FillMemory {
        is_full: bool,
    },
    /// A connection ends.
    Disconnect {
        client: Number,
    },
    /// Ends the connection to which the last answer was sent, before the answer leaves the server.
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
    /// A server stalls.
    Stop {
        server: Number,
        time: Ms,
    },
    Suspend {
        server: Number,
        time: Ms,
    },
    /// `kill -9`, then a start from the AOF
    Restart {
        server: Number,
    },
    LoseSlot {
        key: Number,
        deleted: bool,
    },
    RegainSlots,
    /// A grace is set or changed.
    SetGrace {
        longer: bool,
    },

    /// From now on replication takes this long.
    Lag(Ms),
    Promote {
        replica: Number,
        fate: Fate,
    },
    /// Every server that can do so becomes a replica of the newest master.
    Heal,
}

/// The faults in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One server: clients, time, and changes to keys that events report.
    Calm,
    /// One server on a bad day: pauses, clock steps, suspends, changes that no event reports.
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
