//! The race described in the documentation of SETNX: of many clients that find an expired lock at once, exactly one
//! gets it, and its token is larger than all earlier ones. And dining philosophers who take their forks at once, in
//! random order: none blocks another forever, none starves, and no fork is in two hands. `PHILOSOPHERS_SECONDS` sets
//! how long they dine (3 s by default).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::kinds::acquire_all;
use testkit::dice::Dice;
use testkit::{env_number, until, watch, Conn, Reply, Server, DEADLINE};

const ROUNDS: usize = 50;
const CONTENDERS: usize = 16;

/// The request of all contenders in a round: RECOVER in half of the rounds, ACQUIRE in the others.
fn request(round: usize) -> &'static [&'static str] {
    let recover: &[_] = &["LOCK.RECOVER", "lock.foo", "EX", "30"];
    let acquire: &[_] = &["LOCK.ACQUIRE", "lock.foo", "EX", "30", "DETAILS"];
    [recover, acquire][round % 2]
}

/// Sends this round's request. Returns the details if granted.
fn contend(conn: &mut Conn, round: usize) -> Option<Vec<Reply>> {
    match conn.execute(request(round)) {
        Reply::Nil => None,
        Reply::List(details) => Some(details),
        other => panic!("round {round}: {other:?}"),
    }
}

#[test]
fn one_of_sixteen_takes_an_expired_lock() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let start = Arc::new(Barrier::new(CONTENDERS + 1));
    let (report, reports) = mpsc::channel();
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|_| {
            let (mut conn, start, report) = (server.conn(), Arc::clone(&start), report.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    start.wait();
                    report.send(contend(&mut conn, round)).unwrap();
                }
            })
        })
        .collect();

    let mut conn = server.conn();
    let mut last = conn.int(&["LOCK.ACQUIRE", "lock.foo", "EX", "30"]);
    for round in 0..ROUNDS {
        // Every fifth time, the client that died used the classic pattern.
        let classic = round % 5 == 4;
        if classic {
            conn.ok(&["SET", "lock.foo", "1700000000"]);
        } else {
            assert_eq!(conn.int(&["LOCK.EXTEND", "lock.foo", &last.to_string(), "PX", "1"]), 1);
            until("the lock has expired", || (conn.state("lock.foo") == "expired").then_some(()));
        }

        start.wait();
        let replies: Vec<_> =
            (0..CONTENDERS).map(|_| reports.recv_timeout(DEADLINE).expect("a reply for each")).collect();
        let granted: Vec<_> = replies.into_iter().flatten().collect();
        assert_eq!(granted.len(), 1, "round {round}: {granted:?}");
        let details = &granted[0];
        let token = details[0].int();
        assert!(token > last, "round {round}: token {token} after {last}");
        assert!(details[1].int() >= 0, "round {round}: {details:?}");
        let predecessor = if classic { Reply::Nil } else { Reply::Int(last) };
        assert_eq!(details[2], predecessor, "round {round}");
        assert!(conn.int(&["LOCK.CHECK", "lock.foo", &token.to_string()]) > 0, "round {round}");
        last = token;
    }
    for contender in contenders {
        contender.join().unwrap();
    }
}

const SEATS: usize = 20;

#[test]
fn philosophers_who_take_their_forks_at_once_all_eat() {
    let seconds = env_number("PHILOSOPHERS_SECONDS").unwrap_or(3);
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
                let mut dice = Dice::new(seat as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let mut own = [seat, (seat + 1) % SEATS];
                    if dice.one_in(2) {
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
    // With fair turns, no philosopher eats much less than another.
    assert!(least > 0 && least * 10 >= most, "{meals:?}");
    assert_eq!(server.conn().int(&["DBSIZE"]), 0);
}
