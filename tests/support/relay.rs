//! A TCP relay that can fall silent without closing, as a network does that loses packets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

/// Passes bytes on between its own port and another of 127.0.0.1, until it is cut.
pub struct Relay {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::clone(&cut));
                pass_on(server, client, Arc::clone(&cut));
            }
        });
        Self { port, is_cut }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if !is_cut.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        if !is_cut.load(Ordering::SeqCst) {
            let _ = to.shutdown(Shutdown::Both);
        }
    });
}
