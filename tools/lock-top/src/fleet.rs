//! The servers in the view. Each has its own thread and connection, so a server that hangs does not delay the others.

use crate::action::Action;
use crate::model::{By, Name, Server};
use crate::options::Options;
use crate::poll::{Poller, Wish, MOST_DETAILS};
use crate::sentinel;
use crate::target::Target;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The longest pause after a failed query.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest time between two queries, even while a key is held.
const SHORTEST_PAUSE: Duration = Duration::from_millis(300);
const SENTINELS_EVERY: Duration = Duration::from_secs(5);

/// The events that the view handles.
pub enum Event {
    Key(ratatui::crossterm::event::KeyEvent),
    /// The terminal was resized.
    Redraw,
    /// The terminal is gone.
    Hangup,
    /// This signal asked lock-top to exit.
    Signal(i32),
    Polled(usize, Box<Server>),
    /// The servers of a cluster, as one of them reports them, or those of the Sentinel group.
    Members(usize, Vec<Target>),
    /// Why no Sentinel could be asked; `None` if one answered.
    Sentinels(Option<String>),
    Outcome(String),
}

/// Orders to a thread.
enum Order {
    Select(Option<Name>),
    Sort(By),
    All(bool),
    Act(Action),
}

struct Worker {
    number: usize,
    address: String,
    /// Named on the command line, so never dropped from the view.
    is_named: bool,
    /// The worker to whose cluster it belongs.
    group: usize,
    orders: Sender<Order>,
    server: Server,
}

/// The number of the group whose servers the Sentinels name.
const SENTINEL_GROUP: usize = usize::MAX;

pub struct Fleet {
    workers: Vec<Worker>,
    /// Other addresses of servers that are already in the view.
    aliases: BTreeSet<String>,
    next: usize,
    wish: Wish,
    interval: Duration,
    events: Sender<Event>,
    only: bool,
}

impl Fleet {
    pub fn start(options: &Options, events: Sender<Event>) -> Self {
        let mut fleet = Self {
            workers: Vec::new(),
            aliases: BTreeSet::new(),
            next: 0,
            wish: Wish {
                by: options.by,
                count: options.count,
                all: options.all,
                selected: None,
                details: MOST_DETAILS,
            },
            interval: options.interval,
            events,
            only: options.only,
        };
        if let Some(name) = options.sentinel.clone() {
            let (sentinels, login, events) = (options.targets.clone(), options.login.clone(), fleet.events.clone());
            thread::spawn(move || loop {
                let event = match sentinel::members(&sentinels, &name, &login) {
                    Ok(members) => {
                        let _ = events.send(Event::Members(SENTINEL_GROUP, members));
                        Event::Sentinels(None)
                    }
                    Err(trouble) => Event::Sentinels(Some(trouble)),
                };
                if events.send(event).is_err() {
                    return;
                }
                thread::sleep(SENTINELS_EVERY);
            });
        } else {
            for target in &options.targets {
                fleet.add(target.clone(), None);
            }
        }
        fleet
    }

    fn add(&mut self, target: Target, group: Option<usize>) {
        let (number, address) = (self.next, target.address());
        if self.aliases.contains(&address) || self.workers.iter().any(|worker| worker.address == address) {
            return;
        }
        self.next = number.wrapping_add(1);
        let (orders, received) = std::sync::mpsc::channel();
        let (wish, interval, events) = (self.wish.clone(), self.interval, self.events.clone());
        let only = self.only;
        thread::spawn(move || work(number, Poller::new(target), wish, interval, only, &received, &events));
        let server = Server::without(&address, "connecting");
        let is_named = group.is_none();
        self.workers.push(Worker { number, address, is_named, group: group.unwrap_or(number), orders, server });
    }

    /// Records a thread's result. A server that is known under another address is not polled twice.
    pub fn polled(&mut self, number: usize, server: Server) {
        let Some(place) = self.workers.iter().position(|worker| worker.number == number) else { return };
        let same = |other: &Worker| server.run_id.is_some() && other.server.run_id == server.run_id;
        let is_double = self.workers.iter().take(place).any(same);
        if is_double {
            // Its thread ends because it gets no more orders.
            let worker = self.workers.remove(place);
            self.aliases.insert(worker.address);
        } else if let Some(worker) = self.workers.get_mut(place) {
            worker.server = server;
        }
    }

    /// Adds new servers, and drops those that are no longer members and do not answer.
    pub fn members(&mut self, from: usize, members: Vec<Target>) {
        let group = self.workers.iter().find(|worker| worker.number == from).map_or(from, |worker| worker.group);
        let addresses: BTreeSet<String> = members.iter().map(Target::address).collect();
        self.workers.retain(|worker| {
            let is_member = worker.group != group || addresses.contains(&worker.address);
            worker.is_named || is_member || worker.server.trouble.is_none()
        });
        for member in members {
            self.add(member, Some(group));
        }
    }

    pub fn servers(&self) -> Vec<Server> {
        self.workers.iter().map(|worker| worker.server.clone()).collect()
    }

    pub fn select(&self, lock: Option<&(String, Name)>) {
        for worker in &self.workers {
            let name = lock.filter(|(address, _)| *address == worker.address).map(|(_, name)| name.clone());
            let _ = worker.orders.send(Order::Select(name));
        }
    }

    pub fn sort(&mut self, by: By) {
        self.wish.by = by;
        self.order(|| Order::Sort(by));
    }

    pub fn all(&mut self, all: bool) {
        self.wish.all = all;
        self.order(|| Order::All(all));
    }

    fn order(&self, order: impl Fn() -> Order) {
        for worker in &self.workers {
            let _ = worker.orders.send(order());
        }
    }

    /// Has an action carried out. Returns whether the action's server is known.
    pub fn act(&self, action: Action) -> bool {
        let worker = self.workers.iter().find(|worker| worker.address == action.address);
        worker.is_some_and(|worker| worker.orders.send(Order::Act(action)).is_ok())
    }
}

/// Queries a server until the view is closed.
fn work(
    number: usize,
    mut poller: Poller,
    mut wish: Wish,
    interval: Duration,
    only: bool,
    orders: &Receiver<Order>,
    events: &Sender<Event>,
) {
    let mut failures: u32 = 0;
    loop {
        let began = Instant::now();
        let server = poller.poll(&wish);
        failures = if server.trouble.is_some() { failures.saturating_add(1) } else { 0 };
        if events.send(Event::Polled(number, Box::new(server))).is_err() {
            return;
        }
        let members = if only || failures > 0 { None } else { poller.members() };
        if members.is_some_and(|members| events.send(Event::Members(number, members)).is_err()) {
            return;
        }
        let pause = interval.max(interval.saturating_mul(failures).min(LONGEST_PAUSE));
        let mut until = began.checked_add(pause).unwrap_or(began);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let order = match orders.recv_timeout(left) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match order {
                Order::Select(name) if wish.selected == name => continue,
                Order::Select(name) => wish.selected = name,
                Order::Sort(by) => wish.by = by,
                Order::All(all) => wish.all = all,
                Order::Act(action) => {
                    if events.send(Event::Outcome(poller.act(&action))).is_err() {
                        return;
                    }
                }
            }
            // Shows the change soon, but limits how often a held key triggers a poll.
            if failures == 0 {
                until = until.min(began.checked_add(SHORTEST_PAUSE).unwrap_or(began));
            }
        }
    }
}
