//! The faults of a run, and their times: computed from a seed alone, so that the same seed gives the same plan.
//!
//! A plan also says what is promised under its faults; the rest is not judged.

use std::fmt::{self, Display, Formatter};
use testkit::dice::Dice;

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// One server with `appendfsync always`.
    Always,
    /// One server with `appendfsync everysec`.
    Everysec,
    /// One server that keeps nothing, with a failover grace.
    Nothing,
    /// A master and a replica, with a failover grace.
    Pair,
    /// Three masters and three replicas, with a failover grace.
    Cluster,
    /// A pair without a grace, which promises nothing: shows that the checks notice two holders.
    Bare,
    /// One server with `appendfsync always` and without the module: clients call portable/lock.lua.
    Script,
}

impl Setup {
    pub const ALL: [Self; 6] = [Self::Always, Self::Everysec, Self::Nothing, Self::Pair, Self::Cluster, Self::Script];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// One server, on which clients without LOCK.* share keys.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Always | Self::Everysec | Self::Nothing | Self::Script)
    }

    pub fn has_module(self) -> bool {
        self != Self::Script
    }

    pub fn is_pair(self) -> bool {
        matches!(self, Self::Pair | Self::Bare)
    }

    /// The promises that hold under all faults of the plan; waits and tokens are always judged.
    pub fn promise(self) -> &'static str {
        match self {
            Self::Always => "one holder until the timestamp; no lock is lost; small histories have an order",
            Self::Script => {
                "one holder until the timestamp; no lock is lost; small histories without waits have an order"
            }
            Self::Everysec => "as always, but what is held or released at a kill -9 may be lost",
            Self::Nothing => "one holder of LOCK.*; across a kill -9 for its lease, thanks to the grace",
            Self::Pair | Self::Cluster => "one holder of LOCK.*; across a change of masters for its lease",
            Self::Bare => "nothing across a change of masters",
        }
    }

    pub fn has_grace(self) -> bool {
        matches!(self, Self::Nothing | Self::Pair | Self::Cluster)
    }

    /// lock.margin-ms: with a grace it cannot be shorter than this.
    pub fn margin_ms(self) -> u64 {
        if self.has_grace() {
            1_000
        } else {
            200
        }
    }
}

/// A fault; each is repaired before the next in its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9, and a restart after a while.
    Kill { down_ms: u64 },
    /// SIGSTOP, and SIGCONT after a while.
    Stop { for_ms: u64 },
    /// Nothing gets through between clients and server.
    Partition { for_ms: u64 },
    /// Memory is short for a moment.
    Evict { all_keys: bool },
    /// CLIENT PAUSE
    Pause { for_ms: u64, all: bool },
    /// CLIENT KILL of all clients.
    KillClients,
    /// The wall clock is set, and corrected after a while.
    Clock { by_ms: i64, for_ms: u64 },
    /// CONFIG SET of one of the settings.
    Config { which: usize },
    /// FAILOVER of a pair, by agreement.
    Failover,
    /// The replica is promoted while the network to its master is cut, and clients still reach the master.
    CutAndPromote { for_ms: u64 },
    /// The replica is promoted while its master stalls and then continues.
    StopAndPromote { for_ms: u64 },
    /// The master dies, the replica is promoted.
    KillAndPromote,
    /// CLUSTER FAILOVER in one of three ways.
    NodeFailover { key: usize, way: usize },
    /// The slot of a key moves to another master.
    MoveSlot { key: usize },
    /// A master dies, and its replica takes over on its own.
    KillNode { key: usize },
    /// SIGSTOP of a master; long enough for a failover or not.
    StopNode { key: usize, for_ms: u64 },
}

impl Fault {
    pub fn kind(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill -9",
            Self::Stop { for_ms } if is_suspend(for_ms) => "suspend",
            Self::Stop { .. } => "SIGSTOP",
            Self::Partition { .. } => "partition",
            Self::Evict { all_keys: false } => "eviction, volatile",
            Self::Evict { all_keys: true } => "eviction, allkeys",
            Self::Pause { .. } => "CLIENT PAUSE",
            Self::KillClients => "killed clients",
            Self::Clock { .. } => "clock step",
            Self::Config { .. } => "CONFIG SET",
            Self::Failover => "FAILOVER",
            Self::CutAndPromote { .. } => "cut, promotion",
            Self::StopAndPromote { for_ms } if is_suspend(for_ms) => "suspend, promotion",
            Self::StopAndPromote { .. } => "SIGSTOP, promotion",
            Self::KillAndPromote => "kill -9, promotion",
            Self::NodeFailover { .. } => "CLUSTER FAILOVER",
            Self::MoveSlot { .. } => "slot move",
            Self::KillNode { .. } => "kill -9 of a node",
            Self::StopNode { .. } => "SIGSTOP of a node",
        }
    }
}

/// Two things can go wrong at once, one from each track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    Servers,
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Milliseconds since the run began; later if the previous fault takes longer.
    pub at_ms: u64,
    pub track: Track,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub setup: Setup,
    pub seed: u64,
    pub for_ms: u64,
    pub faults: Vec<Planned>,
}

/// No faults at the beginning and at the end.
const CALM_MS: u64 = 1_000;

impl Plan {
    pub fn of(setup: Setup, seed: u64, for_ms: u64) -> Self {
        let mut faults = Vec::new();
        for track in [Track::Servers, Track::Rest] {
            // Each track has its own dice, so that a different fault in one does not change the other.
            let salt = setup as usize * 2 + usize::from(track == Track::Rest);
            let mut dice = Dice::new(seed ^ (u64::try_from(salt).unwrap() << 56));
            let mut at_ms = CALM_MS;
            while at_ms + CALM_MS < for_ms {
                let fault = draw(setup, track, &mut dice);
                faults.push(Planned { at_ms, track, fault });
                at_ms += lasts_ms(setup, fault) + dice.between(200, 1_500);
            }
        }
        faults.sort_by_key(|planned| planned.at_ms);
        Self { setup, seed, for_ms, faults }
    }
}

/// Whether a stop of this length is a suspend of the machine: every other one, so that old seeds keep their plans.
pub const fn is_suspend(for_ms: u64) -> bool {
    for_ms.is_multiple_of(2)
}

fn draw(setup: Setup, track: Track, dice: &mut Dice) -> Fault {
    match (track, setup) {
        (Track::Servers, Setup::Always | Setup::Everysec | Setup::Nothing | Setup::Script) => match dice.below(8) {
            0..=2 => Fault::Kill { down_ms: dice.between(0, 400) },
            3 | 4 => Fault::Stop { for_ms: dice.between(20, 1_800) },
            5 | 6 => Fault::Partition { for_ms: dice.between(50, 1_500) },
            _ => Fault::Evict { all_keys: matches!(setup, Setup::Everysec | Setup::Nothing) },
        },
        (Track::Servers, Setup::Bare) => Fault::CutAndPromote { for_ms: 2_500 },
        (Track::Servers, Setup::Pair) => match dice.below(6) {
            0 => Fault::Failover,
            // Some of them last until the new master's grace has ended.
            1 | 2 => Fault::CutAndPromote { for_ms: dice.between(500, 10_000) },
            3 => Fault::StopAndPromote { for_ms: dice.between(300, 10_000) },
            4 => Fault::KillAndPromote,
            _ => Fault::Stop { for_ms: dice.between(20, 2_500) },
        },
        (Track::Servers, Setup::Cluster) => {
            let key = dice.index(4);
            match dice.below(7) {
                0 | 1 => Fault::NodeFailover { key, way: dice.index(3) },
                2 | 3 => Fault::MoveSlot { key },
                4 => Fault::KillNode { key },
                _ => Fault::StopNode { key, for_ms: dice.between(50, 4_000) },
            }
        }
        (Track::Rest, _) => match (dice.below(6), setup) {
            (0 | 1, _) => Fault::Pause { for_ms: dice.between(20, 900), all: dice.percent(30) },
            // The script has no settings, and its tokens can go back when the clock does.
            (2 | 3, _) | (_, Setup::Script) => Fault::KillClients,
            (4, Setup::Always | Setup::Everysec | Setup::Nothing) => {
                let by_ms = i64::try_from(dice.between(300, 5_000)).unwrap();
                let by_ms = if dice.percent(50) { by_ms } else { -by_ms };
                Fault::Clock { by_ms, for_ms: dice.between(200, 3_000) }
            }
            _ => Fault::Config { which: dice.index(4) },
        },
    }
}

/// About how long a fault and its repair take.
fn lasts_ms(setup: Setup, fault: Fault) -> u64 {
    // A new master, or a new server with a grace, grants only after the grace.
    let grace = if setup.has_grace() { 7_000 } else { 0 };
    match fault {
        Fault::Kill { down_ms } => down_ms + 300 + grace,
        Fault::Stop { for_ms } | Fault::Partition { for_ms } | Fault::Pause { for_ms, .. } => for_ms,
        Fault::Clock { for_ms, .. } => for_ms + 300,
        Fault::Evict { .. } => 600,
        Fault::KillClients | Fault::Config { .. } => 50,
        Fault::Failover | Fault::KillAndPromote => 1_000 + grace,
        Fault::CutAndPromote { for_ms } | Fault::StopAndPromote { for_ms } => for_ms.max(grace) + 3_000,
        Fault::NodeFailover { .. } => 2_500 + grace,
        Fault::MoveSlot { .. } => 1_000,
        Fault::KillNode { .. } => 5_000 + grace,
        Fault::StopNode { for_ms, .. } => for_ms + 1_500,
    }
}

impl Plan {
    /// The setup and the promises.
    pub fn title(&self) -> String {
        let Self { setup, seed, for_ms, faults } = self;
        let (name, promise) = (setup.name(), setup.promise());
        format!("{name}, seed {seed}, {for_ms} ms, {} faults; promised: {promise}", faults.len())
    }
}

impl Display for Plan {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.title())?;
        for Planned { at_ms, track, fault } in &self.faults {
            writeln!(out, "{at_ms:>8} {track:?}: {fault:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_determines_the_plan() {
        for setup in Setup::ALL {
            let plan = Plan::of(setup, 7, 60_000);
            assert_eq!(plan, Plan::of(setup, 7, 60_000));
            assert_ne!(plan.faults, Plan::of(setup, 8, 60_000).faults);
        }
    }

    #[test]
    fn a_longer_run_begins_like_a_shorter_one() {
        for setup in Setup::ALL {
            let (short, long) = (Plan::of(setup, 7, 20_000), Plan::of(setup, 7, 90_000));
            for track in [Track::Servers, Track::Rest] {
                let of = |plan: &Plan| {
                    plan.faults.iter().filter(|planned| planned.track == track).copied().collect::<Vec<_>>()
                };
                assert!(of(&long).starts_with(&of(&short)), "{setup:?}");
                assert!(of(&long).len() > of(&short).len());
            }
        }
    }

    #[test]
    fn every_fault_of_a_setup_occurs_in_a_long_run() {
        let kinds = |setup| -> BTreeSet<&str> {
            Plan::of(setup, 1, 600_000).faults.iter().map(|planned| planned.fault.kind()).collect()
        };
        let rest = ["CLIENT PAUSE", "CONFIG SET", "killed clients"];
        let single = ["SIGSTOP", "suspend", "clock step", "kill -9", "partition"];
        let expect = |setup, more: &[&'static str]| {
            assert_eq!(kinds(setup), rest.iter().chain(more).copied().collect(), "{setup:?}");
        };
        expect(Setup::Always, &[&single[..], &["eviction, volatile"]].concat());
        let without_clock: Vec<_> = single.iter().filter(|kind| **kind != "clock step").copied().collect();
        let script: BTreeSet<&str> =
            without_clock.into_iter().chain(["CLIENT PAUSE", "killed clients", "eviction, volatile"]).collect();
        assert_eq!(kinds(Setup::Script), script);
        expect(Setup::Everysec, &[&single[..], &["eviction, allkeys"]].concat());
        expect(Setup::Nothing, &[&single[..], &["eviction, allkeys"]].concat());
        let promotions = ["cut, promotion", "SIGSTOP, promotion", "suspend, promotion", "kill -9, promotion"];
        expect(Setup::Pair, &[&promotions[..], &["FAILOVER", "SIGSTOP", "suspend"]].concat());
        expect(Setup::Cluster, &["CLUSTER FAILOVER", "slot move", "kill -9 of a node", "SIGSTOP of a node"]);
    }
}
