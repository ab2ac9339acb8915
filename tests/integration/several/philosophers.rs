//! Dining philosophers who take their forks at once, in random order: nobody blocks another for ever, nobody
//! starves, and no fork is in two hands.
//!
//! `PHILOSOPHERS_SECONDS` sets how long they dine (3).

use super::acquire_all;
use crate::support::{watch, Server};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const SEATS: usize = 20;

#[test]
fn philosophers_who_take_their_forks_at_once_all_eat() {
    let seconds = std::env::var("PHILOSOPHERS_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(3);
    watch::allow(Duration::from_secs(2 * seconds));
    let server = Server::start();
    let forks: Vec<AtomicBool> = (0..SEATS).map(|_| AtomicBool::new(false)).collect();
    let meals: Vec<AtomicU32> = (0..SEATS).map(|_| AtomicU32::new(0)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seat in 0..SEATS {
            let (server, forks, meals, is_over) = (&server, &forks, &meals, &is_over);
            scope.spawn(move || {
                let mut conn = server.conn();
                let mut turn = seat;
                while !is_over.load(Ordering::Relaxed) {
                    let mut own = [seat, (seat + 1) % SEATS];
                    turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    if turn >> 33 & 1 == 1 {
                        own.reverse();
                    }
                    let names = own.map(|fork| format!("fork{fork}"));
                    let names = names.each_ref().map(String::as_str);
                    let token = acquire_all(&mut conn, &names, &["PX", "60000", "WAIT", "60000"]);
                    for fork in own {
                        assert!(!forks[fork].swap(true, Ordering::SeqCst), "fork {fork} is in two hands");
                    }
                    meals[seat].fetch_add(1, Ordering::Relaxed);
                    for fork in own {
                        forks[fork].store(false, Ordering::SeqCst);
                    }
                    assert_eq!(conn.int(&["LOCK.MRELEASE", "2", names[0], names[1], &token]), 2);
                }
            });
        }
        thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
    });
    let meals: Vec<u32> = meals.iter().map(|meals| meals.load(Ordering::Relaxed)).collect();
    let (least, most) = (*meals.iter().min().unwrap(), *meals.iter().max().unwrap());
    eprintln!("meals: {least} to {most}");
    // Where each is served in its turn, nobody eats a small part of what another does.
    assert!(least > 0 && least * 10 >= most, "{meals:?}");
    assert_eq!(server.conn().int(&["DBSIZE"]), 0);
}
