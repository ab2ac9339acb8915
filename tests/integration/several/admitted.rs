//! Who is admitted beside whom, what stands in the key, and what is refused.

use super::{acquire, acquire_all};
use crate::support::{Conn, Reply, Server};

fn members(conn: &mut Conn, key: &str) -> Vec<String> {
    conn.call(&["ZRANGE", key, "0", "-1"]).list().iter().map(Reply::text).collect()
}

#[test]
fn holders_stand_in_a_sorted_set_by_their_timestamp() {
    let server = Server::start();
    let mut conn = server.conn();
    let first = acquire(&mut conn, &["k", "EX", "50", "SHARED", "ID", "7", "OWNER", "alice"]);
    let second = acquire(&mut conn, &["k", "EX", "40", "LIMIT", "2"]);
    assert_eq!(members(&mut conn, "k"), [second.clone(), format!("{first}0000000000000000007 alice")]);
    let scores = conn.call(&["ZRANGE", "k", "0", "-1", "WITHSCORES"]);
    let score: f64 = scores.list()[3].text().parse().unwrap();
    let timestamp: f64 = conn.call(&["LOCK.INFO", "k"]).field("timestamp").text().parse().unwrap();
    assert!((score - timestamp).abs() < 1e-6);
    // 50 s, the margin, and the retention of a minute.
    let ttl = conn.int(&["PTTL", "k"]);
    assert!((105_000..=111_001).contains(&ttl), "{ttl}");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &first]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &first]), 0);
    assert_eq!(members(&mut conn, "k"), [&second[..]]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &second]), 1);
    assert_eq!(conn.int(&["EXISTS", "k"]), 0);
}

#[test]
fn a_caller_is_admitted_where_fewer_live_than_it_bears() {
    let server = Server::start();
    let mut conn = server.conn();
    for _ in 0..3 {
        acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    }
    for refused in [&["EX", "60"][..], &["EX", "60", "LIMIT", "1"], &["EX", "60", "LIMIT", "3"]] {
        assert!(conn.call(&[&["LOCK.ACQUIRE", "k"], refused].concat()).is_nil(), "{refused:?}");
    }
    acquire(&mut conn, &["k", "EX", "60", "LIMIT", "4"]);
    acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    assert!(conn.call(&["LOCK.MACQUIRE", "2", "k", "l", "EX", "60"]).is_nil());
    assert_eq!(conn.int(&["EXISTS", "l"]), 0);
    // A plain holder bears nobody.
    acquire(&mut conn, &["one", "EX", "60"]);
    assert!(conn.call(&["LOCK.ACQUIRE", "one", "EX", "60", "SHARED"]).is_nil());
    assert!(conn.call(&["LOCK.ACQUIRE", "one", "EX", "60", "LIMIT", "9"]).is_nil());
}

#[test]
fn each_holder_has_a_lease_and_an_attempt_of_its_own() {
    let server = Server::start();
    let mut conn = server.conn();
    let long = acquire(&mut conn, &["k", "EX", "60", "SHARED", "ID", "1"]);
    let short = acquire(&mut conn, &["k", "EX", "5", "SHARED", "ID", "2"]);
    assert_eq!(acquire(&mut conn, &["k", "EX", "5", "SHARED", "ID", "1"]), long);
    assert!(conn.int(&["LOCK.CHECK", "k", &long]) > 50_000, "never shorter");
    assert_eq!(acquire(&mut conn, &["k", "EX", "90", "SHARED", "ID", "2"]), short);
    assert!(conn.int(&["LOCK.CHECK", "k", &short]) > 80_000);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &short, "EX", "20"]), 1);
    assert!((10_000..=20_000).contains(&conn.int(&["LOCK.CHECK", "k", &short])));
    assert_eq!(conn.int(&["LOCK.CANCEL", "k", "1"]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &long]), 0);
    assert_eq!(conn.int(&["LOCK.CANCEL", "k", "1"]), 0);
    assert_eq!(conn.int(&["ZCARD", "k"]), 1);
}

#[test]
fn who_needs_a_place_succeeds_the_one_overdue_longest() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let longest = acquire(&mut conn, &["k", "PX", "1", "LIMIT", "3", "OWNER", "first"]);
    let other = acquire(&mut conn, &["k", "PX", "2", "LIMIT", "3", "OWNER", "second"]);
    let live = acquire(&mut conn, &["k", "EX", "60", "LIMIT", "3"]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(conn.call(&["LOCK.RECOVER", "k", "EX", "60"]).is_nil(), "somebody lives");
    // Sharing needs nobody's place.
    let details = conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "DETAILS"]);
    assert!(details.list()[1].is_nil());
    let details = conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), longest);
    assert_eq!(details.list()[3].text(), "first");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &longest]), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &other]), -1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &live]), 1);
}

#[test]
fn an_expired_lock_passes_from_one_holder_to_several_and_back() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let plain = acquire(&mut conn, &["k", "PX", "1", "OWNER", "alone"]);
    std::thread::sleep(std::time::Duration::from_millis(10));
    let details = conn.call(&["LOCK.ACQUIRE", "k", "PX", "1", "SHARED", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), plain);
    assert_eq!(details.list()[3].text(), "alone");
    assert_eq!(conn.text(&["TYPE", "k"]), "zset");
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(conn.call(&["LOCK.INFO", "k"]).field("state").text(), "expired");
    let recovered = conn.call(&["LOCK.RECOVER", "k", "EX", "60"]);
    assert_eq!(recovered.list()[2], details.list()[0]);
    assert_eq!(conn.text(&["TYPE", "k"]), "string");
    assert!(recovered.list()[0].int() > details.list()[0].int(), "tokens of a key grow");
}

#[test]
fn what_is_no_set_of_holders_is_of_the_wrong_type_and_stays() {
    let server = Server::start();
    let mut conn = server.conn();
    let member = "1763710000482913";
    for set in [
        &["5", "x"][..],
        &["9999999999", member, "9999999999", "x"],
        &["-1", member],
        &["10000000000", member],
        &["inf", member],
        &["-inf", member],
        &["9999999999", ""],
        &["9999999999", "9999999999999999"],
        &["9999999999", member, "9999999998", "1763710000482913 bob"],
    ] {
        conn.call(&["DEL", "k"]);
        conn.call(&[&["ZADD", "k"], set].concat());
        let before = conn.call(&["ZRANGE", "k", "0", "-1", "WITHSCORES"]);
        for command in [
            "LOCK.ACQUIRE k EX 5",
            "LOCK.ACQUIRE k EX 5 SHARED",
            "LOCK.ACQUIRE k EX 5 LIMIT 100 WAIT 1000",
            "LOCK.RECOVER k EX 5",
            "LOCK.EXTEND k 1763710000482913 EX 5",
            "LOCK.RELEASE k 1763710000482913",
            "LOCK.CHECK k 1763710000482913",
            "LOCK.CANCEL k 5",
            "LOCK.INFO k",
            "LOCK.MACQUIRE 2 j k EX 5",
            "LOCK.MEXTEND 2 j k 1763710000482913 EX 5",
            "LOCK.MRELEASE 2 j k 1763710000482913",
        ] {
            let args: Vec<&str> = command.split(' ').collect();
            assert!(conn.call(&args).error().starts_with("WRONGTYPE "), "{set:?}: {command}");
        }
        assert_eq!(conn.call(&["ZRANGE", "k", "0", "-1", "WITHSCORES"]), before);
        assert_eq!(conn.int(&["EXISTS", "j"]), 0);
        assert_eq!(conn.call(&["LOCK.SCAN", "0", "COUNT", "100"]).list()[1].list().len(), 0);
    }
}

#[test]
fn several_locks_are_taken_extended_and_released_together() {
    let server = Server::start();
    let mut conn = server.conn();
    let token = acquire_all(&mut conn, &["a", "b", "c"], &["EX", "10", "ID", "5", "OWNER", "me"]);
    let values: Vec<String> = ["a", "b", "c"].iter().map(|key| conn.text(&["GET", key])).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    assert_eq!(acquire_all(&mut conn, &["c", "a", "b"], &["EX", "60", "ID", "5"]), token);
    assert!(conn.int(&["LOCK.CHECK", "b", &token]) > 50_000);
    for others in [&["a", "d"][..], &["a", "b"], &["d", "c", "e"]] {
        let count = others.len().to_string();
        let call = [&["LOCK.MACQUIRE", &count], others, &["EX", "10", "ID", "6"]].concat();
        assert!(conn.call(&call).is_nil(), "{others:?}");
    }
    // The ID holds only some of these.
    assert!(conn.call(&["LOCK.MACQUIRE", "2", "a", "d", "EX", "10", "ID", "5"]).is_nil());
    assert_eq!(conn.int(&["EXISTS", "d", "e"]), 0);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "3", "a", "b", "c", &token, "EX", "20"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "b", &token]), 1);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "3", "a", "b", "c", &token, "EX", "90"]), 0);
    assert!(conn.int(&["LOCK.CHECK", "a", &token]) <= 20_000, "nothing has changed");
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &token]), 2);
    assert_eq!(conn.int(&["DBSIZE"]), 0);
}

#[test]
fn scan_tells_of_the_locks_of_a_database_by_their_state() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let token = acquire(&mut conn, &["held", "EX", "60", "OWNER", "alice"]);
    acquire(&mut conn, &["shared", "EX", "60", "SHARED"]);
    acquire(&mut conn, &["shared", "EX", "60", "SHARED"]);
    acquire(&mut conn, &["expired", "PX", "1"]);
    conn.ok(&["SET", "classic", "1000000000.5"]);
    conn.ok(&["SET", "foreign", "data"]);
    conn.call(&["RPUSH", "list", "1"]);
    conn.ok(&["SELECT", "1"]);
    acquire(&mut conn, &["elsewhere", "EX", "60"]);
    conn.ok(&["SELECT", "0"]);
    std::thread::sleep(std::time::Duration::from_millis(10));
    let mut scan = |args: &[&str]| {
        let (mut cursor, mut rows) = ("0".to_string(), Vec::new());
        loop {
            let reply = conn.call(&[&["LOCK.SCAN", &cursor], args].concat());
            rows.extend(reply.list()[1].list().to_vec());
            cursor = reply.list()[0].text();
            if cursor == "0" {
                rows.sort_by_key(|row| row.field("key").text());
                return rows;
            }
        }
    };
    let names = |rows: &[Reply]| rows.iter().map(|row| row.field("key").text()).collect::<Vec<_>>();
    let all = scan(&["COUNT", "2"]);
    assert_eq!(names(&all), ["classic", "expired", "held", "shared"]);
    let states: Vec<String> = all.iter().map(|row| row.field("state").text()).collect();
    assert_eq!(states, ["expired", "expired", "held", "held"]);
    assert_eq!(all[2].field("token").int().to_string(), token);
    assert_eq!(all[2].field("owner").text(), "alice");
    assert!((1..=60_000).contains(&all[2].field("free-in-ms").int()));
    assert_eq!(all.iter().map(|row| row.field("holders").int()).collect::<Vec<_>>(), [0, 0, 1, 2]);
    assert_eq!(names(&scan(&["STATE", "HELD"])), ["held", "shared"]);
    assert_eq!(names(&scan(&["STATE", "foreign"])), ["foreign"]);
    assert_eq!(names(&scan(&["MATCH", "h*"])), ["held"]);
}

#[test]
fn info_tells_of_the_holder_that_ends_last_and_in_full_of_all() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut bound = server.conn();
    let client = bound.int(&["CLIENT", "ID"]);
    let first = acquire(&mut bound, &["k", "EX", "30", "SHARED", "SESSION"]);
    let last = acquire(&mut conn, &["k", "EX", "60", "SHARED", "ID", "4", "OWNER", "bob"]);
    let info = conn.call(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!(info.field("token").int().to_string(), last);
    assert_eq!(info.field("owner").text(), "bob");
    assert!((60_000..=61_000).contains(&info.field("free-in-ms").int()));
    let holders = info.field("holders");
    let tokens: Vec<String> = holders.list().iter().map(|holder| holder.field("token").int().to_string()).collect();
    assert_eq!(tokens, [first, last]);
    assert_eq!(holders.list()[0].field("session").int(), client);
    assert!(holders.list()[1].field("session").is_nil());
    assert_eq!(holders.list()[1].field("id").text(), "4");
}
