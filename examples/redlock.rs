//! Redlock over five independent servers with LOCK.*: takes a lock, shows that nobody else gets it, and that it is
//! available without two of the servers but not without three.
//!
//! `cargo run --example redlock` starts its own five servers. With addresses, such as `cargo run --example redlock
//! redis://10.0.0.1/ redis://10.0.0.2/ redis://10.0.0.3/ ...`, it takes and releases a lock on those.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use redlock_example::{NotLocked, Redlock, Settings};
use std::time::Duration;
use testkit::Server;

const LEASE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    if !addresses.is_empty() {
        let redlock = Redlock::new(&addresses, Settings::default())?;
        return Ok(show(&redlock, "a client")?);
    }

    let mut servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    let addresses: Vec<String> = servers.iter().map(|server| format!("redis://127.0.0.1:{}/", server.port())).collect();
    println!("Five servers of its own: {}", addresses.join(" "));
    let one = Redlock::new(&addresses, Settings::default())?;
    let other = Redlock::new(&addresses, Settings::default())?;
    show(&one, "one client")?;
    let held = one.lock("door", LEASE)?;
    println!("While one holds, the other gets: {}", other.lock("door", LEASE).err().ok_or("two hold")?);
    drop(held);
    servers.truncate(3);
    println!("Two servers are killed.");
    show(&other, "the other client")?;
    servers.truncate(2);
    println!("A third is killed.");
    println!("Now anybody gets: {}", other.lock("door", LEASE).err().ok_or("a minority granted it")?);
    Ok(())
}

/// Takes a lock, reports it, and releases it.
fn show(redlock: &Redlock, who: &str) -> Result<(), NotLocked> {
    let held = redlock.lock("door", LEASE)?;
    println!("{who} has the lock on {} servers, for {:?} from now", held.granted(), held.validity());
    Ok(())
}
