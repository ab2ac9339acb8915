//! A TCP relay that can fall silent without closing, as a network does that loses packets; lose one
//! reply; and lead to another server from some moment on, as a name does after a failover.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes on between its own port and another of 127.0.0.1, until it is cut.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: AtomicU16,
    is_cut: AtomicBool,
    /// The command whose next reply is lost, and how.
    to_lose: Mutex<Option<(String, Loss)>>,
}

/// How a reply is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The connection ends instead.
    Closed,
    /// Nothing comes on this connection from then on.
    Silent,
}

impl Relay {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            is_cut: AtomicBool::new(false),
            to_lose: Mutex::new(None),
        });
        let relay = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let target = shared.target.load(Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let losing = Arc::new(Mutex::new(None));
                let to_server = (client.try_clone().unwrap(), server.try_clone().unwrap());
                pass_on(to_server, Arc::clone(&shared), Arc::clone(&losing), true);
                pass_on((server, client), Arc::clone(&shared), losing, false);
            }
        });
        relay
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
    }

    /// New connections lead to this port of 127.0.0.1.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// The next reply to this command does not arrive.
    pub fn lose_reply_to(&self, command: &str, how: Loss) {
        *self.shared.to_lose.lock().unwrap() = Some((command.into(), how));
    }

    /// Whether that reply is still to come.
    pub fn has_reply_to_lose(&self) -> bool {
        self.shared.to_lose.lock().unwrap().is_some()
    }
}

impl Shared {
    /// How the reply to these bytes is lost, if it is.
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

fn pass_on(ends: (TcpStream, TcpStream), shared: Arc<Shared>, losing: Arc<Mutex<Option<Loss>>>, is_request: bool) {
    let (mut from, mut to) = ends;
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..length];
            if is_request {
                if let Some(how) = shared.loss(bytes) {
                    *losing.lock().unwrap() = Some(how);
                }
            } else {
                match *losing.lock().unwrap() {
                    Some(Loss::Silent) => continue,
                    Some(Loss::Closed) => break,
                    None => {}
                }
            }
            if !shared.is_cut.load(Ordering::SeqCst) && to.write_all(bytes).is_err() {
                break;
            }
        }
        if !shared.is_cut.load(Ordering::SeqCst) {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    });
}
