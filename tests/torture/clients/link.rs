//! A client's connection to its server: it reconnects when the connection breaks, goes on to the next server if one is
//! dead or a replica, and follows MOVED and ASK. Every other client is informed of a new master; the rest stay with
//! the old one as long as it answers. A command is never resent automatically.

use super::script::{self, Script};
use crate::world::World;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;
use testkit::{Conn, Reply};

/// A client gives up a connection after this long without a reply: longer than any wait and any stall.
const PATIENCE: Duration = Duration::from_secs(6);

pub struct Link<'a> {
    world: &'a World,
    conns: HashMap<u16, Conn>,
    /// The port of the current server.
    port: Option<u16>,
    /// How many times it had to find another server.
    moves: usize,
    /// The last announced master that it knows; `None` if it gets no announcements.
    news: Option<usize>,
    /// How the client calls locks if the module is not loaded.
    script: Option<Script>,
}

impl<'a> Link<'a> {
    pub fn new(world: &'a World, number: u32) -> Self {
        let news = number.is_multiple_of(2).then_some(0);
        let script = (!world.has_module).then(|| Script::of(number));
        Self { world, conns: HashMap::new(), port: None, moves: 0, news, script }
    }

    /// Sends a command and returns the reply; `None` if the connection ended without one.
    pub fn execute(&mut self, command: &[&str]) -> Option<Reply> {
        let Some(mut words) = self.script.as_ref().and_then(|script| script.words(command)) else {
            return self.send(command);
        };
        loop {
            let reply = self.send(&words)?;
            let Some(load) = self.script.as_mut().and_then(|script| script.load(&reply)) else {
                return Some(script::reply(reply));
            };
            // Nothing has been executed yet.
            let loaded = self.send(&load)?;
            let script = self.script.as_mut()?;
            script.loaded(&loaded);
            words = script.words(command)?;
        }
    }

    fn send<T: AsRef<str>>(&mut self, command: &[T]) -> Option<Reply> {
        let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let (mut port, mut asking) = (self.server()?, false);
        for _ in 0..16 {
            let reply = self.execute_at(port, asking, &command)?;
            let Reply::Error(text) = &reply else { return Some(reply) };
            let mut words = text.split(' ');
            let (code, address) = (words.next()?, words.nth(1));
            match (code, address.and_then(|address| address.rsplit(':').next()?.parse().ok())) {
                ("MOVED", Some(to)) => {
                    (port, asking) = (to, false);
                    self.port = Some(to);
                    thread::sleep(Duration::from_millis(1));
                }
                ("ASK", Some(to)) => (port, asking) = (to, true),
                ("READONLY" | "UNBLOCKED" | "CLUSTERDOWN" | "MASTERDOWN", _) => {
                    self.leave();
                    return Some(reply);
                }
                _ => return Some(reply),
            }
        }
        Some(Reply::Error("TRYAGAIN redirected back and forth".into()))
    }

    /// Sends a command and closes the connection without waiting for a reply, like a client that is killed.
    pub fn send_and_die(&mut self, command: &[&str], after: Duration) {
        let words = self.script.as_ref().and_then(|script| script.words(command));
        let words = words.unwrap_or_else(|| command.iter().map(ToString::to_string).collect());
        let Some(port) = self.server() else { return };
        let Some(mut conn) = self.conns.remove(&port) else { return };
        if conn.try_send(&words).is_ok() {
            self.world.sleep(after);
        }
    }

    /// Connects to the next server to ask. `None` if there is none; then nothing was sent.
    pub fn server(&mut self) -> Option<u16> {
        while !self.world.is_over() {
            let (ports, news) = self.world.servers();
            if self.news.is_some_and(|known| known < news) {
                (self.news, self.port, self.moves) = (Some(news), None, 0);
            }
            let port = *self.port.get_or_insert(ports[self.moves % ports.len()]);
            if self.connect(port) {
                return Some(port);
            }
            self.leave();
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn connect(&mut self, port: u16) -> bool {
        if self.conns.contains_key(&port) {
            return true;
        }
        let Ok(mut conn) = Conn::to(port) else { return false };
        // An accepted connection may have no server behind it.
        conn.set_patience(Duration::from_millis(500));
        if !matches!(conn.try_execute(&["PING"]), Ok(Reply::Status(_))) {
            return false;
        }
        conn.set_patience(PATIENCE);
        self.conns.insert(port, conn);
        true
    }

    fn leave(&mut self) {
        self.port = None;
        self.moves += 1;
    }

    fn execute_at(&mut self, port: u16, asking: bool, command: &[&str]) -> Option<Reply> {
        if !self.connect(port) {
            self.leave();
            // Nothing was sent.
            return Some(Reply::Error("CLUSTERDOWN the server does not accept".into()));
        }
        let conn = self.conns.get_mut(&port)?;
        let asked = if asking { conn.try_execute(&["ASKING"]).map(|_| ()) } else { Ok(()) };
        let reply = asked.and_then(|()| conn.try_execute(command));
        if reply.is_err() {
            self.conns.remove(&port);
            self.leave();
        }
        reply.ok()
    }
}
