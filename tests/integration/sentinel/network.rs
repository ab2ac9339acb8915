//! A port that leads to a server, and can be cut and mended.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes on between its own port and a server's. Cut, it falls silent and closes nothing, as
/// a network does that loses packets.
pub struct Front {
    pub port: u16,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Front {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::new(Line::default());
        let shared = Arc::clone(&line);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is down refuses: so does this.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for stream in [&client, &server] {
                    let _ = stream.set_nodelay(true);
                    shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                }
                pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), &shared);
                pass_on(server, client, &shared);
            }
        });
        Self { port, line }
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn cut(&self) {
        self.line.is_cut.store(true, Ordering::SeqCst);
    }

    /// New connections get through again; those that lost something end.
    pub fn mend(&self) {
        for stream in self.line.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.line.is_cut.store(false, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, line: &Arc<Line>) {
    let line = Arc::clone(line);
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        let is_cut = || line.is_cut.load(Ordering::SeqCst);
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if !is_cut() && to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        if !is_cut() {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    });
}
