//! What stands between clients and a server, or a replica and its master: a port that stays the same when the server
//! starts again on another, and a network that can fall silent and come back. After the silence old connections are
//! closed: what was sent in them meanwhile is lost and never arrives late.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct Inner {
    target: AtomicU16,
    is_cut: AtomicBool,
    next: AtomicU64,
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
}

pub struct Gate {
    port: u16,
    inner: Arc<Inner>,
}

impl Gate {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner { target: target.into(), ..Inner::default() });
        let accepting = Arc::clone(&inner);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.accept(client);
            }
        });
        Self { port, inner }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to another port.
    pub fn lead_to(&self, target: u16) {
        self.inner.target.store(target, Ordering::SeqCst);
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn cut(&self) {
        self.inner.is_cut.store(true, Ordering::SeqCst);
    }

    /// New connections get through; those of before are closed.
    pub fn heal(&self) {
        for streams in self.inner.open.lock().unwrap().values() {
            for stream in streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.inner.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Inner {
    fn accept(self: &Arc<Self>, client: TcpStream) {
        // Who connects to a network that is cut learns nothing either; who connects to a dead server does.
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target.load(Ordering::SeqCst))) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let (Ok(one), Ok(other)) = (client.try_clone(), server.try_clone()) else { return };
        self.open.lock().unwrap().insert(number, [one, other]);
        self.pass_on(number, from, to);
        self.pass_on(number, server, client);
    }

    fn pass_on(self: &Arc<Self>, number: u64, mut from: TcpStream, mut to: TcpStream) {
        let inner = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = [0; 16_384];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if !inner.is_cut.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            // The end of a connection does not get through either, until the network is back.
            while inner.is_cut.load(Ordering::SeqCst) {
                thread::sleep(std::time::Duration::from_millis(5));
            }
            let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
            inner.open.lock().unwrap().remove(&number);
        });
    }
}
