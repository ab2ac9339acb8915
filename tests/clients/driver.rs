//! Does what `tests/integration/languages` asks for, with the lock of `examples/rust`.
//!
//! A line of JSON in, a line of JSON out; see `tests/integration/languages/driver.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]

use std::collections::HashMap;
use std::io::stdin;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{json, Value};

#[path = "../../examples/rust/redis_lock/mod.rs"]
mod redis_lock;
use redis_lock::{Error, Lock, Options};

fn main() {
    let (sender, commands) = channel();
    let waiting: Arc<Mutex<Option<Arc<Lock>>>> = Arc::default();
    let (stop, current) = (sender.clone(), Arc::clone(&waiting));
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            let command: Value = serde_json::from_str(&line).expect("JSON");
            if command["do"] == "cancel" {
                let lock = current.lock().unwrap().clone();
                lock.expect("a lock is waited for").cancel();
            } else {
                sender.send(command).unwrap();
            }
        }
        std::process::exit(0);
    });
    let mut locks = HashMap::new();
    while let Ok(command) = commands.recv() {
        let client = client(&command);
        if command["do"] == "hold" {
            // Asked for the same again, it uses the same again.
            let known = locks.entry(command.to_string()).or_insert_with(|| lock(client, &command, stop.clone()));
            let (lock, warned) = known.clone();
            warned.lock().unwrap().clear();
            *waiting.lock().unwrap() = Some(Arc::clone(&lock));
            let end = hold(&lock, &warned, &commands);
            println!("{}", end.unwrap_or_else(|error| error_line(&*error)));
        } else {
            let reply: String = redis::cmd("ECHO").arg("hello").query(&mut client.get_connection().unwrap()).unwrap();
            println!("{}", json!({ "event": "pong", "reply": reply }));
        }
    }
}

fn client(command: &Value) -> redis::Client {
    redis::Client::open(format!("redis://127.0.0.1:{}/?protocol=resp{}", command["port"], command["protocol"])).unwrap()
}

fn lock(client: redis::Client, command: &Value, stop: Sender<Value>) -> (Arc<Lock>, Arc<Mutex<String>>) {
    let time = |name: &str| Duration::from_millis(command[name].as_u64().unwrap());
    let text = |name: &str| command[name].as_str().unwrap().to_string();
    let warned = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&warned);
    let options = Options {
        lease: time("lease_ms"),
        wait: time("wait_ms"),
        timeout: time("timeout_ms"),
        owner: Some(text("owner")),
        session: command["session"] == true,
        fallback: command["fallback"] == true,
        on_lost: Arc::new(move |_| stop.send(json!({ "do": "stop" })).unwrap()),
        on_fallback: Arc::new(move |warning| *heard.lock().unwrap() = warning.into()),
    };
    (Arc::new(Lock::new(client, text("prefix") + &text("key"), options)), warned)
}

fn hold(lock: &Lock, warned: &Mutex<String>, orders: &Receiver<Value>) -> Result<Value, Box<dyn std::error::Error>> {
    let guard = lock.acquire()?;
    println!("{}", json!({ "event": "held", "token": guard.token(), "warned": *warned.lock().unwrap() }));
    let order = orders.recv()?;
    if order["do"] == "stop" {
        println!("{}", json!({ "event": "stopped", "left_ms": guard.left().as_secs_f64() * 1000.0 }));
    }
    guard.check()?;
    if order["do"] == "fail" {
        Err("the work failed")?;
    }
    guard.release()?;
    Ok(json!({ "event": "left" }))
}

fn error_line(error: &(dyn std::error::Error + 'static)) -> Value {
    let kind = match error.downcast_ref() {
        Some(Error::Refused(_)) => "refused",
        Some(Error::Lost(_)) => "lost",
        Some(Error::Unsupported(_)) => "unsupported",
        Some(Error::Reply(_)) => "reply",
        Some(Error::Redis(_)) => "connection",
        None => "work",
    };
    json!({ "event": "error", "kind": kind, "name": "Error", "text": error.to_string() })
}
