//! A TCP relay that can stop passing bytes without closing, like a network that loses packets, and recover; lose a
//! reply; and switch to another server, like a host name after a failover.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes between its own port and another port on 127.0.0.1, until it is cut.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    target: AtomicU16,
    is_cut: AtomicBool,
    /// How many times it was healed.
    heals: AtomicUsize,
    /// The command whose next reply is lost, and how.
    to_lose: Mutex<Option<(String, Loss)>>,
    /// Both ends of each connection, by the connection's number.
    open: Mutex<HashMap<usize, [TcpStream; 2]>>,
}

/// How a reply is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The connection is closed instead.
    Closed,
    /// Nothing more arrives on this connection.
    Silent,
}

impl Relay {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { target: target.into(), ..Shared::default() });
        let relay = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                let (shared, heals) = (Arc::clone(&shared), shared.heals.load(Ordering::SeqCst));
                // A packet that is lost here must not hold up other connections. A server that is down refuses them,
                // and so does the relay.
                thread::spawn(move || shared.connect(number, client, heals));
            }
        });
        relay
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the relay: nothing gets through, but no connection is closed.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
    }

    /// New connections get through again. Earlier ones end: bytes sent over them in the meantime never arrive late.
    pub fn heal(&self) {
        let mut open = self.shared.open.lock().unwrap();
        self.shared.heals.fetch_add(1, Ordering::SeqCst);
        open.drain().for_each(|(_, ends)| close(&ends));
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// New connections lead to this port on 127.0.0.1.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// The next reply to this command does not arrive.
    pub fn lose_reply_to(&self, command: &str, how: Loss) {
        *self.shared.to_lose.lock().unwrap() = Some((command.into(), how));
    }
}

impl Shared {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    fn connect(self: &Arc<Self>, number: usize, client: TcpStream, heals: usize) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", self.target.load(Ordering::SeqCst)))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ends = [client.try_clone()?, server.try_clone()?];
        let ways = [(true, client.try_clone()?, server.try_clone()?), (false, server, client)];
        {
            let mut open = self.open.lock().unwrap();
            if self.heals.load(Ordering::SeqCst) != heals {
                return Ok(());
            }
            open.insert(number, ends);
        }
        let losing = Arc::new(Mutex::new(None));
        for (is_request, from, to) in ways {
            let (shared, losing) = (Arc::clone(self), Arc::clone(&losing));
            thread::spawn(move || {
                shared.pass_on(from, to, &losing, is_request);
                let mut open = shared.open.lock().unwrap();
                // A close does not get through either, until the relay heals.
                if !shared.is_cut() {
                    open.remove(&number).iter().for_each(close);
                }
            });
        }
        Ok(())
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream, losing: &Mutex<Option<Loss>>, is_request: bool) {
        let mut buffer = [0; 16_384];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..length];
            if is_request {
                if let Some(how) = self.loss(bytes) {
                    *losing.lock().unwrap() = Some(how);
                }
            } else {
                match *losing.lock().unwrap() {
                    Some(Loss::Silent) => continue,
                    Some(Loss::Closed) => break,
                    None => {}
                }
            }
            if !self.is_cut() && to.write_all(bytes).is_err() {
                break;
            }
        }
    }

    /// How the reply to these bytes should be lost, if at all.
    fn loss(&self, request: &[u8]) -> Option<Loss> {
        let mut to_lose = self.to_lose.lock().unwrap();
        let (command, how) = to_lose.as_ref()?;
        let (found, how) = (request.windows(command.len()).any(|window| window == command.as_bytes()), *how);
        found.then(|| {
            *to_lose = None;
            how
        })
    }
}

fn close(ends: &[TcpStream; 2]) {
    for end in ends {
        let _ = end.shutdown(Shutdown::Both);
    }
}
