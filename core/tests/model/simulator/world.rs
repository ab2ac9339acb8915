//! A run: servers, clients, and their commands.

#[path = "commands.rs"]
mod commands;
#[path = "faults.rs"]
mod faults;
#[path = "group.rs"]
mod group;
#[path = "holders.rs"]
mod holders;
#[path = "notify.rs"]
mod notify;
#[path = "tally.rs"]
mod tally;
#[path = "time.rs"]
mod time;

use self::holders::Extends;
use super::judge::{Asked, Attempt, Cause, Court, Now, Predecessor, Reported, Spans, Unclaimed, Waits, Writes};
use super::raw::Raw;
use super::site::Site;
use super::steps::{Acquire, Fate, Ms, Number, Plan, Put, Share, Step, Time, CHANNELS, CLIENTS, IDS, KEYS};
use crate::fake::{Blocked, Mutant, Node, OwnedKeyName, Settings};
use redis_lock_core::driver::{Ask, ChannelName, Outcome};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::grant::Granted;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::ReplyShape;
use redis_lock_core::engine::{KeyChange, Limits};
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::request::{self, Request};
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;
use std::collections::VecDeque;
use std::fmt;
pub use tally::Tally;

/// A little longer than a change can go unnoticed.
const SILENCE: u64 = 1_100_000;
/// Grants that clients remember.
const REMEMBERED: usize = 16;

struct Client {
    conn: u64,
    site: usize,
}

/// A grant that a client remembers.
#[derive(Clone)]
struct Known {
    token: u64,
    places: Vec<OwnedKeyName>,
    site: usize,
}

/// The client that an entry from the server notifies or answers.
enum Addressee<'a> {
    /// The attempt with this ID, on its channel.
    Notified(u64),
    /// A blocked client.
    Answered(u64, &'a Answer),
}

pub struct Run {
    plan: Plan,
    now: u64,
    sites: Vec<Site>,
    courts: Vec<Court>,
    spans: Spans,
    clients: Vec<Client>,
    conns: u64,
    known: VecDeque<Known>,
    /// Commands of attempts without a connection, newest first, and whether each is for several keys.
    commands: VecDeque<(Acquire, bool)>,
    is_multi: bool,
    lag: u64,
    reigns: u64,
    limit: usize,
    is_quiet: bool,
    pub tally: Tally,
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, site) in self.sites.iter().enumerate() {
            let world = site.node.world.borrow();
            let wake = site.node.driver.borrow().engine().wake();
            let timer = site.timer_in_ms();
            writeln!(out, "  server {at} at {}: timer in {timer:?} ms for {wake:?}, {:?}", self.now, world.log.last())?;
            for (db, name) in world.keys.keys() {
                let place = (*db, name.clone());
                let raw = self.raw(at, &place);
                writeln!(out, "    {}: {raw:?}", String::from_utf8_lossy(name))?;
            }
            for attempt in &self.courts[at].queue {
                writeln!(out, "    {attempt:?}")?;
            }
        }
        Ok(())
    }
}

fn place(key: Number) -> OwnedKeyName {
    (0, vec![b'a' + key % KEYS])
}

fn id_of(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

/// What the reply to a grant of these keys reports.
fn reported(granted: &Granted, asked: &Asked) -> Reported {
    let before = (0..asked.places.len()).map(|at| granted.before(at));
    let before = before
        .map(|before| {
            before.map(|before| before.token.map_or(Predecessor::Classic, |token| Predecessor::Token(token.get())))
        })
        .collect();
    Reported { token: granted.token.get(), before }
}

fn us(ms: Ms) -> u64 {
    u64::from(ms) * 1_000
}

/// The longest leases that the graces allow; `None`: no grace.
const LIMITS: [Option<u64>; 3] = [None, Some(1_000_000), Some(100_000)];

impl Run {
    /// A run's settings, determined by its seed.
    fn settings(plan: Plan, seed: u64) -> Settings {
        let of = |all: &[u64], by: u64| all[usize::try_from(seed / by % all.len() as u64).unwrap()];
        let retention = match of(&[0, 2_000, 60_000, u64::MAX], 2) {
            u64::MAX => Retention::Forever,
            ms => Retention::Ms(ms),
        };
        let margin = Micros(match plan {
            Plan::Group => 500_000,
            Plan::Calm | Plan::Rough => of(&[1_000_000, 0, 30_000], 3),
        });
        Settings {
            margin,
            retention,
            limits: Limits {
                waiters: if seed % 11 == 10 { 3 } else { 1_000 },
                queued: if seed % 11 == 10 { 3 } else { 1_000 },
                claim: Micros(of(&[2_000_000, 150_000], 17)),
                result: 65_536,
                place: Micros(of(&[10_000_000, 300_000, 0], 5)),
                tick: Micros(100_000),
            },
            edges: if seed % 13 == 12 { 3 } else { 10_000 },
            grace: (plan == Plan::Group).then_some(grace::Settings {
                grace: Micros(6_000_000),
                margin,
                max_lag: Micros(1_000_000),
                wanted: 2,
            }),
            reports_keys: plan != Plan::Rough || !seed.is_multiple_of(7),
            mutant: Mutant::None,
        }
    }

    pub fn new(plan: Plan, seed: u64) -> Self {
        let settings = Self::settings(plan, seed);
        let mut sites: Vec<Site> = (0..plan.servers()).map(|number| Site::new(settings, number)).collect();
        if plan == Plan::Rough {
            // The clock drifts, uncorrected by a time service.
            sites[0].drift = [0, 0, 200, -200][usize::try_from(seed / 7 % 4).unwrap()];
        }
        if let [master, replicas @ ..] = &mut sites[..] {
            for (at, replica) in replicas.iter_mut().enumerate() {
                replica.follow(0, master);
                master.add_replica(at + 1, 0);
            }
        }
        for site in &sites {
            Self::subscribe_all(&site.node);
        }
        let courts = sites.iter().map(|site| Court::of(site.drift)).collect();
        let clients = (0..u64::from(CLIENTS)).map(|client| Client { conn: client + 1, site: 0 }).collect();
        Self {
            plan,
            now: 0,
            sites,
            courts,
            spans: Spans::default(),
            clients,
            conns: u64::from(CLIENTS),
            known: VecDeque::new(),
            commands: VecDeque::new(),
            is_multi: false,
            lag: 0,
            reigns: 0,
            limit: 0,
            is_quiet: plan == Plan::Calm,
            tally: Tally::default(),
        }
    }

    fn now_at(&self, site: usize) -> Now {
        self.sites[site].now(self.now)
    }

    fn raw(&self, site: usize, place: &OwnedKeyName) -> Raw {
        Raw::of(self.sites[site].node.world.borrow().keys.get(place), self.sites[site].wall(self.now))
    }

    fn is_lost(&self, site: usize, places: &[OwnedKeyName]) -> bool {
        let world = self.sites[site].node.world.borrow();
        world.lost_slots.as_ref().is_some_and(|lost| places.iter().any(|place| lost.contains(&place.1)))
    }

    /// Whether a server executes commands that write.
    fn takes_writes(&mut self, site: usize) -> bool {
        if !self.sites[site].is_running(self.now) || self.sites[site].link.is_some() {
            return false;
        }
        self.sites[site].set_clocks(self.now);
        let world = self.sites[site].node.world.borrow();
        !world.is_paused && !world.is_short_of_replicas
    }

    /// Takes a step, if it makes sense.
    pub fn step(&mut self, step: &Step) {
        self.tally.steps += 1;
        match step {
            Step::Acquire(command) | Step::AcquireAll(command) => {
                self.acquire(command, matches!(step, Step::AcquireAll(_)));
            }
            Step::Recover { client, key, lease, id } => self.recover(*client, *key, *lease, *id),
            Step::Extend { grant, lease } => self.extend(*grant, Extends::First, *lease),
            Step::ExtendAll { grant, more, lease } => self.extend(*grant, Extends::AllAnd(*more), *lease),
            Step::Release { grant, key } => self.release(*grant, *key, false),
            Step::Share { grant, key } => self.release(*grant, *key, true),
            Step::ReleaseAll { grant, more } => self.release_all(*grant, *more),
            Step::Check { grant } => self.check(*grant),
            Step::Cancel { key, id } => self.cancel(*key, *id),
            Step::CancelChannel { key, channel } => self.cancel_channel(*key, *channel),
            Step::Again { command, client } => self.send_again(*command, *client),
            Step::Claim { number, client } => self.claim(*number, *client),
            Step::Multi => self.is_multi = true,
            Step::Subscribe { channel, is_there } => self.subscribe(*channel, *is_there),
            Step::FillMemory { is_full } => self.fill_memory(*is_full),
            Step::Disconnect { client } => self.disconnect(usize::from(client % CLIENTS)),
            Step::Lose => self.lose(),
            Step::Unblock { client } => self.unblock(usize::from(client % CLIENTS)),
            Step::Pass(time) => self.pass(*time),
            Step::Delete { key } => self.change(&place(*key), None, Some(KeyChange::Gone)),
            Step::Evict { key } => self.evict(&place(*key)),
            Step::Put { key, what } => self.put(*key, *what),
            Step::Rename { from, to } => self.rename(&place(*from), &place(*to), true),
            Step::Copy { from, to } => self.rename(&place(*from), &place(*to), false),
            Step::Flush => self.flush(),
            Step::Swap => self.swap(),
            Step::Pause(time) => self.pause(*time),
            Step::SetClock { server, by } => self.set_clock(usize::from(*server) % self.sites.len(), *by),
            Step::Stop { server, time } => self.stop(usize::from(*server) % self.sites.len(), *time, false),
            Step::Suspend { server, time } => self.stop(usize::from(*server) % self.sites.len(), *time, true),
            Step::Restart { server } => self.restart(usize::from(*server) % self.sites.len()),
            Step::LoseSlot { key, deleted } => self.lose_slot(*key, *deleted),
            Step::RegainSlots => self.regain_slots(),
            Step::SetGrace { longer } => self.set_grace(*longer),
            Step::Lag(time) => self.lag = us(*time),
            Step::Promote { replica, fate } => self.promote(usize::from(*replica) % self.sites.len(), *fate),
            Step::Heal => self.heal(),
        }
    }

    /// Called when an entry from the server has ended: judges its writes and answers.
    fn after(&mut self, site: usize, cause: &Cause) -> Writes {
        let journal = std::mem::take(self.sites[site].node.world.borrow_mut().journal.as_mut().unwrap());
        let now = self.now_at(site);
        self.end_claims(site, cause);
        let mut writes = self.courts[site].read(&journal, cause, now);
        let is_master = self.sites[site].link.is_none();
        let reports_keys = self.sites[site].node.world.borrow().settings.reports_keys;
        for changed in journal {
            if !changed.by_module {
                if !reports_keys {
                    // The timer finds an expired key a moment later.
                    self.excuse_key(site, &changed.place, 2_000);
                }
                self.spans_are_void(&changed.place, changed.before.as_ref(), now);
            }
            if is_master && self.plan == Plan::Group {
                self.sites[site].replicate(self.now, changed.place, changed.after);
            }
        }
        let letters = std::mem::take(&mut self.sites[site].node.world.borrow_mut().letters);
        let notified = self.notified(site, &writes, cause);
        self.attempts_left(site, &notified, cause);
        // Each grant is judged against the queue at the time of the grant, so they are judged in token order.
        let mut reported: Vec<(u64, Addressee<'_>)> =
            notified.into_iter().map(|(token, id)| (token, Addressee::Notified(id))).collect();
        reported.extend(letters.iter().map(|(Blocked(conn), answer)| match answer {
            Answer::Granted(grant) => (grant.granted.token.get(), Addressee::Answered(*conn, answer)),
            _ => (0, Addressee::Answered(*conn, answer)),
        }));
        reported.sort_by_key(|(token, _)| *token);
        for (token, what) in reported {
            match what {
                Addressee::Notified(id) => self.notified_one(site, &mut writes, token, id),
                Addressee::Answered(conn, answer) => self.answered(site, &mut writes, conn, answer, cause),
            }
        }
        self.read_messages(site);
        self.sites[site].sent.extend(letters.into_iter().map(|(Blocked(conn), answer)| (conn, answer)));
        writes
    }

    /// Notes that a grant has a new lease from now on.
    fn prolong(&mut self, site: usize, token: u64, places: &[OwnedKeyName], lease: u64, may_be_shorter: bool) {
        let is_other = |other: &Site| other.link.is_none() && !other.is_dead && other.reign != self.sites[site].reign;
        let reign = self.sites[site].reign;
        if self.sites.iter().any(is_other) {
            // Here a new master requires fewer replicas right away, and only its grace keeps it from granting.
            // Extensions are safe only if it requires all replicas, and so has to wait for the old master to come back
            // as a replica.
            self.spans.is_risked(token, places, reign);
        }
        self.spans.extended(token, places, lease, may_be_shorter, reign, self.now);
    }

    /// Runs a server event, not a command.
    fn event(&mut self, site: usize, body: impl FnOnce(&Node)) {
        self.sites[site].set_clocks(self.now);
        body(&self.sites[site].node);
        let writes = self.after(site, &Cause::default());
        Court::assert_everything_was_reported(&writes);
    }

    fn answered(&mut self, site: usize, writes: &mut Writes, conn: u64, answer: &Answer, cause: &Cause) {
        let now = self.now_at(site);
        let court = &mut self.courts[site];
        let how = match answer {
            Answer::Granted(grant) => {
                let token = grant.granted.token.get();
                let asked = {
                    let attempt = court.waiter(conn).map(|attempt| attempt.asked.clone());
                    let attempt = attempt.unwrap_or_else(|| panic!("{conn} is answered, but did not wait"));
                    let world = self.sites[site].node.world.borrow();
                    let raw = |place: &OwnedKeyName| Raw::of(world.keys.get(place), now.wall);
                    let end = |place: &OwnedKeyName| raw(place).holder(token).map_or(0, |holder| holder.timestamp);
                    let written = attempt.places.iter().map(end).collect();
                    court.granted_to_waiter(writes, conn, &reported(&grant.granted, &attempt), written, now)
                };
                let reign = self.sites[site].reign;
                if self.known.iter().any(|known| known.token == token) {
                    self.prolong(site, token, &asked.places, asked.lease, false);
                    self.spans.belongs_to(&asked, token);
                } else {
                    self.spans.granted(&asked, token, reign, self.now);
                }
                self.check_reported(site, &asked, token);
                self.remember(site, &asked, token);
                return;
            }
            Answer::NotGranted(_) => Waits::NotGranted,
            Answer::Result(result) => {
                court.got_result(conn, u64::from_be_bytes((*result.bytes).try_into().unwrap()));
                self.tally.results += 1;
                return;
            }
            Answer::Failed(Error::Replaced) => Waits::Replaced,
            Answer::Failed(Error::Demoted) => {
                assert!(self.sites[site].link.is_some(), "{conn} gets the error of a demotion");
                Waits::Demoted
            }
            Answer::Failed(Error::SlotLost) => Waits::SlotLost,
            Answer::Failed(Error::LeaseBeyondGrace(_)) => Waits::BeyondGrace,
            Answer::Failed(error) => panic!("{conn}: {error}"),
        };
        if how == Waits::NotGranted {
            self.tally.time_outs += 1;
        }
        if how == Waits::SlotLost {
            let places = court.waiter(conn).map(|attempt| attempt.asked.places.clone()).unwrap_or_default();
            assert!(self.is_lost(site, &places), "{conn} gets the error of a lost slot");
        }
        self.courts[site].wait_ended(conn, how, cause, now);
    }
}
