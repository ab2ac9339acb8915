//! Drives the locks of the rslock crate, as locks.py drives those of Python: the same steps, the same answers.
//!
//! locks PORT

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use rslock::{Lock, LockError, LockManager};

const INTERVAL: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 200;

async fn step(locks: &mut LockManager, held: &mut HashMap<String, Lock>, words: &[&str]) -> Result<String, LockError> {
    let &[verb, name, seconds] = words else { panic!("not a step: {words:?}") };
    let lease = Duration::from_secs(seconds.parse().unwrap());
    locks.set_retry(if verb == "take" { ATTEMPTS } else { 1 }, INTERVAL);
    let (lock, answer) = match verb {
        "try" | "take" => (locks.lock(name.as_bytes(), lease).await?, "held"),
        "extend" => (locks.extend(&held[name], lease).await?, "done"),
        _ => {
            locks.unlock(&held[name]).await;
            return Ok("done".into());
        }
    };
    held.insert(name.into(), lock);
    Ok(answer.into())
}

fn main() {
    let port = std::env::args().nth(1).expect("a port");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut locks = LockManager::new(vec![format!("redis://127.0.0.1:{port}/")]);
    let mut held = HashMap::new();
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        println!(
            "{}",
            match runtime.block_on(step(&mut locks, &mut held, &words)) {
                Ok(answer) => answer,
                Err(LockError::Unavailable) => "refused".into(),
                Err(error) => format!("fails {error:?}"),
            }
        );
    }
}
