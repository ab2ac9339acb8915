//! Several holders of one lock, and several locks at once.

use super::{in_each_way, with_a_clock, Place};
use testkit::{expire_at_ms, Reply};

/// Sends a command for these locks, with their queues.
fn all(place: &mut Place, name: &str, locks: &[&str], rest: &str) -> Reply {
    let args = place.way.all(name, locks, rest);
    place.conn.execute(&args)
}

#[test]
fn neighbours_that_fit_are_notified_together_and_an_exclusive_one_waits() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        let first = place.is_granted(1, "c", "");
        for (id, how) in [(2, "SHARED"), (3, "LIMIT 3"), (4, "LIMIT 2"), (5, ""), (6, "SHARED")] {
            place.waits(id, "c", how);
        }
        place.release(first);
        // An attempt for at most two holders does not fit beside two others, so it and those behind it wait.
        subscriber.receives("granted 2 k");
        subscriber.receives("granted 3 k");
        assert_eq!(place.queue(), ["2!", "3!", "4", "5", "6"]);
        let (two, three) = (place.is_granted(2, "c", "SHARED"), place.is_granted(3, "c", "LIMIT 3"));
        assert_eq!(place.conn.int(&["ZCARD", "k"]), 2);
        place.release(two);
        subscriber.receives("granted 4 k");
        let four = place.is_granted(4, "c", "LIMIT 2");
        place.release(three);
        subscriber.received_nothing(&mut place.conn, "c");
        place.release(four);
        subscriber.receives("granted 5 k");
        let five = place.is_granted(5, "c", "");
        place.release(five);
        subscriber.receives("granted 6 k");
    });
}

#[test]
fn a_notified_attempt_counts_as_a_holder_for_newcomers() {
    in_each_way(|place| {
        let _subscriber = place.subscriber("c");
        let first = place.is_granted(1, "c", "");
        place.waits(2, "c", "LIMIT 2");
        place.release(first);
        // There are two slots, and one of them is for attempt 2.
        place.is_granted(3, "c", "LIMIT 2");
        place.waits(4, "c", "LIMIT 2");
        place.is_granted(2, "c", "LIMIT 2");
    });
}

#[test]
fn at_most_sixteen_are_notified_at_once_and_each_claim_notifies_more() {
    in_each_way(|place| {
        let _subscriber = place.subscriber("c");
        let first = place.is_granted(1, "c", "");
        for id in 101..=140 {
            place.waits(id, "c", "SHARED");
        }
        place.release(first);
        let notified = |place: &mut Place| place.queue().iter().filter(|id| id.ends_with('!')).count();
        assert_eq!(notified(place), 16);
        place.is_granted(101, "c", "SHARED");
        assert_eq!(notified(place), 31);
        place.is_granted(102, "c", "SHARED");
        assert_eq!(notified(place), 38);
        for id in 103..=140 {
            place.is_granted(id, "c", "SHARED");
        }
        assert_eq!(place.conn.int(&["ZCARD", "k"]), 40);
    });
}

#[test]
fn each_holder_has_its_token_and_lease() {
    with_a_clock(|clocked| {
        let place = &mut clocked.place;
        let one = place.execute("LOCK.ACQUIRE k PX 10000 LIMIT 2 ID 1 OWNER alice").int();
        let two = place.execute("LOCK.ACQUIRE k PX 20000 LIMIT 2 ID 2 DETAILS").list()[0].int();
        assert!(place.execute("LOCK.ACQUIRE k PX 10000 LIMIT 2").is_nil());
        assert!(place.execute("LOCK.ACQUIRE k PX 10000").is_nil());
        assert_eq!(place.execute(&format!("LOCK.CHECK k {one}")), Reply::Int(10_000));
        assert_eq!(place.execute(&format!("LOCK.EXTEND k {one} PX 90000")), Reply::Int(1));
        assert_eq!(place.execute(&format!("LOCK.CHECK k {one}")), Reply::Int(90_000));
        assert_eq!(place.execute("LOCK.CHECK k 7"), Reply::Int(0));
        // The key ends with its last holder, after lease, margin and retention.
        assert_eq!(expire_at_ms(&mut place.conn, "k"), (clocked.now_us + 999) / 1_000 + 151_000);
        for (command, error) in [
            ("LOCK.ACQUIRE k PX 1000 ID 1", "with SHARED or LIMIT: send it again with one of them"),
            ("LOCK.EXTEND k x PX 1000", "token is not"),
        ] {
            let reply = clocked.place.execute(command);
            assert!(reply.error().contains(error), "{reply:?}");
        }
        assert_eq!(clocked.place.execute("LOCK.ACQUIRE k PX 1000 LIMIT 2 ID 1").int(), one, "sent again");
        // The second grant expires: it can still be released late, and a third gets its slot and details of it.
        clocked.pass(21_000_000);
        assert_eq!(clocked.place.execute(&format!("LOCK.EXTEND k {two} PX 1000")), Reply::Int(0));
        let details = clocked.place.execute("LOCK.ACQUIRE k PX 1000 LIMIT 2 DETAILS");
        assert_eq!(details.list()[1..], [Reply::Int(0), Reply::Int(two), Reply::Nil]);
        assert_eq!(clocked.place.execute(&format!("LOCK.RELEASE k {two}")), Reply::Int(0), "another took its slot");
        clocked.pass(2_000_000);
        let three = details.list()[0].int();
        assert_eq!(clocked.place.execute(&format!("LOCK.RELEASE k {three}")), Reply::Int(-1));
        clocked.place.release(one);
        assert_eq!(clocked.place.conn.int(&["DBSIZE"]), 0);
    });
}

#[test]
fn several_locks_are_taken_extended_and_released_under_one_token() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        let (both, a) = (["{x}a", "{x}b"], ["{x}a"]);
        let token = all(place, "ACQUIRE", &both, "PX 60000 ID 7 OWNER alice").int();
        assert_eq!(all(place, "ACQUIRE", &both, "PX 1000 ID 7").int(), token, "sent again");
        assert!(all(place, "ACQUIRE", &both, "PX 60000 ID 8").is_nil());
        assert!(all(place, "ACQUIRE", &a, "PX 60000 ID 8").is_nil());
        assert_eq!(all(place, "EXTEND", &both, &format!("{token} PX 90000")), Reply::Int(1));
        assert_eq!(all(place, "EXTEND", &["{x}a", "{x}c"], &format!("{token} PX 5000")), Reply::Int(0));
        let left = place.execute(&format!("LOCK.CHECK {{x}}a {token}")).int();
        assert!(left > 60_000, "not changed by half an extension: {left}");
        let waits = place.execute("LOCK.ACQUIRE {x}b PX 60000 WAIT 60000 ID 9 NOTIFY c");
        assert_eq!(waits.list()[0].text(), "WAITING");
        assert_eq!(all(place, "RELEASE", &["{x}a", "{x}b", "{x}c"], &token.to_string()), Reply::Int(2));
        subscriber.receives("granted 9 {x}b");
        assert!(all(place, "ACQUIRE", &both, "PX 60000").is_nil(), "somebody waits for one of them");
        assert_eq!(place.conn.int(&["EXISTS", "{x}a", "{x}b"]), 0, "all or nothing");
    });
}

#[test]
fn commands_for_several_locks_name_the_wrong_argument() {
    let names: Vec<String> = (0..65).map(|number| format!("{number:04096}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    in_each_way(|place| {
        for (locks, rest, error) in [
            (&["a", "b", "a"][..], "PX 1000", "ERR key 3 is the same as key 1"),
            (&["a{b"], "PX 1000", "ERR key has a brace but no hash tag"),
            (&["a"], "PX 0", "ERR lease is not"),
            (&["a"], "PX 1000 WAIT 5", "ERR WAIT needs the lock module"),
            (&["a"], "PX 1000 SHARED", "ERR SHARED needs the lock module, or one key"),
            (&["a"], "PX 1000 SESSION", "ERR SESSION needs the lock module"),
            (&["a"], "PX 1000 BOGUS", "ERR syntax error: argument 5 is not an option of LOCK.MACQUIRE"),
            (&names, "PX 1000", "ERR keys 1 to 65 total more than 262144 bytes"),
        ] {
            let reply = all(place, "ACQUIRE", locks, rest);
            assert!(reply.error().starts_with(error), "{locks:?} {rest}: {reply:?}");
        }
        let mut odd = place.way.all("ACQUIRE", &["a", "b"], "PX 1000");
        let count = odd.iter().position(|word| word == "4").unwrap();
        odd[count] = "3".into();
        odd.remove(count + 4);
        let reply = place.conn.execute(&odd);
        assert!(reply.error().starts_with("ERR the keys are not 1 to 1024 locks and as many queues"), "{reply:?}");
        assert_eq!(place.conn.int(&["DBSIZE"]), 0);
        let token = all(place, "ACQUIRE", &names[1..], "PX 1000").int();
        assert_eq!(all(place, "RELEASE", &names, &token.to_string()), Reply::Int(64));
    });
}
