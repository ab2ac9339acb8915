//! A connection that sends many commands at once, because the client has to be faster than the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use testkit::{Server, DEADLINE};

/// An encoded argument of a command.
pub fn argument(bytes: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(bytes.len() + 16);
    write!(wire, "${}\r\n", bytes.len()).unwrap();
    wire.extend_from_slice(bytes);
    wire.extend_from_slice(b"\r\n");
    wire
}

/// A connection that sends many commands at once.
pub struct Pipe {
    stream: TcpStream,
    out: Vec<u8>,
    received: Vec<u8>,
}

impl Pipe {
    pub fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream, out: Vec::new(), received: Vec::new() }
    }

    /// Adds bytes to what [`Self::flush`] sends.
    pub fn add(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends what was added.
    pub fn flush(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// Waits for `count` replies of one line each and passes them to `each`, without their line endings.
    pub fn replies(&mut self, count: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut seen = 0;
        let mut from = 0;
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some(length) = self.received[from..].iter().position(|&byte| byte == b'\n') {
                each(seen, self.received[from..from + length].trim_ascii_end());
                from += length + 1;
                seen += 1;
            }
            self.received.drain(..from);
            from = 0;
            if seen >= count {
                assert_eq!((seen, self.received.len()), (count, 0), "more replies than commands");
                return;
            }
            let length = self.stream.read(&mut chunk).expect("the server replies");
            assert!(length > 0, "the server closed the connection");
            self.received.extend_from_slice(&chunk[..length]);
        }
    }
}
