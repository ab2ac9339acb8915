//! The race that the documentation of SETNX is about: of many that find an expired lock at once,
//! exactly one gets it, and its token is larger than all before.

use std::sync::{mpsc, Arc, Barrier};
use std::thread;

use crate::support::{until, Conn, Reply, Server, DEADLINE};

const ROUNDS: usize = 50;
const CONTENDERS: usize = 16;

/// What all contenders of a round send: in half of the rounds RECOVER, in half ACQUIRE.
fn request(round: usize) -> &'static [&'static str] {
    let recover: &[_] = &["LOCK.RECOVER", "lock.foo", "EX", "30"];
    let acquire: &[_] = &["LOCK.ACQUIRE", "lock.foo", "EX", "30", "DETAILS"];
    [recover, acquire][round % 2]
}

/// Sends this round's request and gives the details if it was granted.
fn contend(conn: &mut Conn, round: usize) -> Option<Vec<Reply>> {
    match conn.call(request(round)) {
        Reply::Nil => None,
        Reply::List(details) => Some(details),
        other => panic!("round {round}: {other:?}"),
    }
}

#[test]
fn of_sixteen_that_find_an_expired_lock_exactly_one_gets_it() {
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
        // Every fifth time the one that died was a client of the classic pattern.
        let classic = round % 5 == 4;
        if classic {
            conn.ok(&["SET", "lock.foo", "1700000000"]);
        } else {
            assert_eq!(conn.int(&["LOCK.EXTEND", "lock.foo", &last.to_string(), "PX", "1"]), 1);
            until("the lock has expired", || {
                (conn.call(&["LOCK.INFO", "lock.foo"]).field("state").text() == "expired").then_some(())
            });
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
