//! Calls of clients to the account, their replies, and the contents of a key.

/// With how many others: the most that may hold, 1 for a caller of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Alone,
    Shared,
    Limit(usize),
}

impl Share {
    pub(super) fn most(self) -> usize {
        match self {
            Share::Alone => 1,
            Share::Shared => usize::MAX,
            Share::Limit(most) => most,
        }
    }
}

/// What is set for a server, in its time.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub margin: u64,
    /// Nothing: for ever.
    pub retention: Option<u64>,
    /// How long a place is kept.
    pub place: u64,
    /// Connections have sessions and end, and waits have an end.
    pub is_restless: bool,
    /// While time passes, all that comes about does so in its moment; else the server stands still meanwhile, and all
    /// of it comes at the end.
    pub runs_on: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { margin: 0, retention: None, place: NEVER, is_restless: false, runs_on: false }
    }
}

/// Timers fire in whole milliseconds.
const MS: u64 = 1_000;

impl Settings {
    /// How long a step takes. With parts of a millisecond, a timer is late by less than one.
    pub fn step(&self) -> u64 {
        if self.runs_on {
            MS
        } else {
            1
        }
    }
}

/// When so much time has passed, and a timer for any part of it has fired.
pub fn after(now: u64, time: u64) -> u64 {
    (now + time).next_multiple_of(MS)
}

/// Longer than any run.
pub const NEVER: u64 = u64::MAX / 4;

#[derive(Clone, Debug)]
pub struct Call {
    pub client: usize,
    pub keys: Vec<u8>,
    pub share: Share,
    pub lease: u64,
    pub waits: bool,
    /// For how long, if it waits.
    pub wait: u64,
    pub session: bool,
    pub id: Option<u64>,
    /// ACQUIRE with DETAILS; MACQUIRE does not tell of predecessors.
    pub details: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    Acquire(Call),
    /// MACQUIRE
    AcquireAll(Call),
    Recover {
        key: u8,
        lease: u64,
    },
    Release {
        keys: Vec<u8>,
        grant: usize,
    },
    Extend {
        keys: Vec<u8>,
        grant: usize,
        lease: u64,
    },
    Check {
        key: u8,
        grant: usize,
    },
    Cancel {
        key: u8,
        id: u64,
    },
    /// DEL, by somebody else.
    Delete {
        key: u8,
    },
    Pass {
        time: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The number of the grant, and of the one that it succeeds.
    Granted(usize, Option<usize>),
    Nil,
    Unblocked,
    Deadlock,
    /// The ID holds the lock in another way: alone, or among several.
    OtherShare,
    Number(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub number: usize,
    pub end: u64,
    pub id: Option<u64>,
    /// The client that it ends with.
    pub session: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    #[default]
    Nothing,
    One(Grant),
    Several(Vec<Grant>),
}

impl Content {
    pub fn grants(&self) -> &[Grant] {
        match self {
            Content::Nothing => &[],
            Content::One(grant) => std::slice::from_ref(grant),
            Content::Several(grants) => grants,
        }
    }

    pub(super) fn grants_mut(&mut self) -> &mut [Grant] {
        match self {
            Content::Nothing => &mut [],
            Content::One(grant) => std::slice::from_mut(grant),
            Content::Several(grants) => grants,
        }
    }

    pub(super) fn grant_mut(&mut self, number: usize) -> Option<&mut Grant> {
        match self {
            Content::Nothing => None,
            Content::One(grant) => Some(grant).filter(|grant| grant.number == number),
            Content::Several(grants) => grants.iter_mut().find(|grant| grant.number == number),
        }
    }
}
