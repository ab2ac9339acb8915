use std::{error::Error, thread, time::Duration};

use serverlock::Locks;

fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::new(redis::Client::open("redis://localhost")?); // one for each Redis client in the application
    let held = locks.lock("report", Duration::from_secs(10)).wait(Duration::from_secs(60)).acquire()?;
    println!("working, token {}", held.token());
    for _step in 0..10 {
        held.check()?; // before each step: an error if the lock is no longer held
        thread::sleep(Duration::from_secs(1));
    }
    Ok(held.release()?) // an error if the lock was lost in the meantime
}
