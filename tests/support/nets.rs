//! The safety nets of the module have nothing to catch in a test, unless that changes locks in ways that a server tells
//! nobody of.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The grants that only the scan of all lines found, as the server on that port counts them. Nothing where it does not
/// answer, or on servers whose events of keys are not listened to: Valkey from 8.1 on, until 9.1.2.
pub fn missed_wakeups(port: u16) -> Option<u64> {
    const SOON: Duration = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), SOON).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.set_write_timeout(Some(SOON)).ok()?;
    stream.write_all(b"INFO server\r\nINFO lock\r\nQUIT\r\n").ok()?;
    let mut text = Vec::new();
    // A server that is busy, stopped or wants a password says nothing of it.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_told = field("valkey_version:").is_none_or(|version| {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (parts.next(), parts.next());
        !((Some(8), Some(1))..(Some(9), Some(2))).contains(&version)
    });
    field("lock_missed_wakeups:").filter(|_| is_told)?.parse().ok()
}
