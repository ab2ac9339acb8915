//! The view in a real terminal: it follows the servers, acts only after confirmation, and reconnects to a server.

use crate::address;
use crate::once::cycle;
use crate::screen::Screen;
use std::time::{Duration, Instant};
use testkit::{module, until, Server};

#[test]
fn a_lock_its_queue_and_the_picture_of_a_cycle_are_shown() {
    let server = Server::start();
    let _clients = cycle(&server);
    let Some(screen) = Screen::start("terminal", 24, &["--interval", "0.5", &address(&server)]) else { return };
    screen.until_shows(&["CYCLE: ", "holders and line", "LINE CLIENT"]);
    screen.press(&["v"]);
    screen.until_shows(&["who waits for whom", "└─ ", "CYCLE: see above"]);
    screen.press(&["?"]);
    screen.until_shows(&["picture of who waits for whom"]);
    screen.press(&["x", "q"]);
    screen.until_shows(&["ended with 0"]);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    for (signal, status) in [("TERM", "143"), ("HUP", "129"), ("INT", "130"), ("QUIT", "131")] {
        let Some(screen) = Screen::start("signal", 24, &["--interval", "0.5", &address(&server)]) else { return };
        screen.until_shows(&["nobody waits for a lock"]);
        screen.signal(signal);
        let shown = screen.until_shows(&[&format!("ended with {status}")]);
        assert!(!shown.contains("nobody waits"), "{signal}:\n{shown}");
        assert_eq!(screen.cursor_and_program(), (true, false), "{signal}");
        // A terminal in raw mode would not echo typed text.
        screen.press(&["t", "y", "p", "e", "d"]);
        screen.until_shows(&["typed"]);
    }
}

/// An interactive shell with job control: it continues when a job stops, and sets its own terminal mode.
const JOBS: &str = "set -m; \"$@\"; status=$?; stty sane; echo \"stopped with $status\"; read typed; fg; \
     echo \"ended with $?\"; sleep 300";

#[test]
fn suspending_restores_the_terminal() {
    let server = Server::start();
    // The key, the signal, and the signal that no program can catch.
    for how in ["C-z", "TSTP", "STOP"] {
        let args = ["--interval", "0.5", &address(&server)];
        let Some(screen) = Screen::start_in(JOBS, "suspend", 24, &args) else { return };
        screen.until_shows(&["nobody waits for a lock"]);
        match how {
            "C-z" => screen.press(&[how]),
            signal => screen.signal(signal),
        }
        screen.until_shows(&["stopped with 1"]);
        if how != "STOP" {
            assert_eq!(screen.cursor_and_program(), (true, false), "{how}");
        }
        screen.widen(100);
        screen.press(&["w", "o", "r", "d", "Enter"]);
        let whole = ["lock-top  1 server", "nobody waits for a lock", "q:quit"];
        until("the whole screen, without what the shell wrote", || {
            let shown = screen.shows();
            (whole.iter().all(|text| shown.contains(text)) && !shown.contains("stopped with")).then_some(())
        });
        // It reads single keys again.
        screen.press(&["?"]);
        screen.until_shows(&["picture of who waits for whom"]);
        screen.press(&["x", "q"]);
        screen.until_shows(&["ended with 0"]);
        assert_eq!(screen.cursor_and_program(), (true, false), "{how}");
    }
}

#[test]
fn it_is_not_suspended_where_nobody_could_wake_it() {
    let server = Server::start();
    // This terminal's shell has no job control.
    let Some(screen) = Screen::start("alone", 24, &["--interval", "0.5", &address(&server)]) else { return };
    screen.until_shows(&["nobody waits for a lock"]);
    screen.press(&["C-z"]);
    screen.signal("TSTP");
    screen.press(&["?"]);
    screen.until_shows(&["picture of who waits for whom"]);
    screen.press(&["x", "q"]);
    screen.until_shows(&["ended with 0"]);
}

#[test]
fn a_release_is_sent_only_after_yes() {
    let (server, mut holder) = Server::connected();
    let token = holder.int(&["LOCK.ACQUIRE", "report", "EX", "600", "OWNER", "alice"]);
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "600", "WAIT", "600000", "OWNER", "bob"]);
    let Some(screen) = Screen::start("release", 24, &["--interval", "0.5", &address(&server)]) else { return };
    screen.until_shows(&["held for", "alice"]);
    screen.press(&["r"]);
    screen.until_shows(&["Send this?", &format!("LOCK.RELEASE report {token}")]);
    screen.press(&["n"]);
    screen.until_shows(&["nothing was sent"]);
    assert_eq!(holder.int(&["LOCK.EXTEND", "report", &token.to_string(), "EX", "600"]), 1);
    screen.press(&["r", "y"]);
    screen.until_shows(&["report: released"]);
    assert!(waiter.read().int() > token);
    screen.until_shows(&["nobody waits for a lock"]);
}

#[test]
fn a_value_is_deleted_only_while_it_is_foreign() {
    let (server, mut other) = Server::connected();
    other.ok(&["SET", "report", "theirs"]);
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "600", "WAIT", "600000"]);
    let Some(screen) = Screen::start("foreign", 24, &["--interval", "60", &address(&server)]) else { return };
    screen.until_shows(&["foreign", "another program"]);
    screen.press(&["r"]);
    screen.until_shows(&["DEL report"]);
    // Before the answer, the other program's value is deleted, and the waiter gets a lock that nobody may delete.
    assert_eq!(other.int(&["DEL", "report"]), 1);
    let token = waiter.read().int();
    screen.press(&["y"]);
    screen.until_shows(&["no longer foreign: nothing changed"]);
    assert_eq!(other.int(&["LOCK.RELEASE", "report", &token.to_string()]), 1);
}

#[test]
fn a_waiter_is_cancelled() {
    let (server, mut holder) = Server::connected();
    holder.int(&["LOCK.ACQUIRE", "report", "EX", "600"]);
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "600", "WAIT", "600000", "ID", "4711"]);
    let Some(screen) = Screen::start("cancel", 24, &["--interval", "0.5", &address(&server)]) else { return };
    screen.until_shows(&["4711"]);
    screen.press(&["Tab", "End", "c"]);
    screen.until_shows(&["LOCK.CANCEL report 4711"]);
    screen.press(&["y"]);
    screen.until_shows(&["report: cancelled"]);
    assert!(waiter.read().is_nil());
}

#[test]
fn a_server_that_goes_away_is_named_and_comes_back() {
    let dir = testkit::temp_dir();
    let socket = dir.join("s");
    let socket = socket.to_str().unwrap().to_string();
    let server = Server::with().args(&["--unixsocket", &socket]).start();
    let Some(screen) = Screen::start("back", 24, &["--interval", "0.5", &socket]) else { return };
    screen.until_shows(&["1 server", "nobody waits"]);
    drop(server);
    screen.until_shows(&["1 server, no answer", "connection refused"]);
    let (server, mut holder) = Server::with().args(&["--unixsocket", &socket]).connected();
    holder.int(&["LOCK.ACQUIRE", "again", "EX", "60"]);
    let _waiter = server.waiter(&["LOCK.ACQUIRE", "again", "EX", "60", "WAIT", "60000"]);
    screen.until_shows(&["1 server ", "again"]);
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
fn without_colour_the_screen_has_none() {
    let server = Server::start();
    for (args, colored) in [(&["--no-color"][..], false), (&[], true)] {
        let at = address(&server);
        let args = [args, &[&at]].concat();
        let Some(screen) = Screen::start("colour", 24, &args) else { return };
        screen.until_shows(&["nobody waits"]);
        let has = ["\x1b[36m", "\x1b[38;5;6m"].iter().any(|cyan| screen.raw().contains(cyan));
        assert_eq!(has, colored, "{}", screen.raw().escape_debug());
    }
}

#[test]
fn a_busy_server_gets_few_requests_over_one_connection() {
    let (server, mut conn) = Server::connected();
    let mut waiting = Vec::new();
    for n in 0..60 {
        let key = format!("k{n}");
        conn.int(&["LOCK.ACQUIRE", &key, "EX", "600"]);
        waiting.push(server.sent(&["LOCK.ACQUIRE", &key, "EX", "600", "WAIT", "600000"]));
    }
    until("all wait", || conn.info("lock", "lock_waiters").filter(|waiters| waiters == "60"));
    let clients = |conn: &mut testkit::Conn| conn.info("clients", "connected_clients").unwrap().parse::<u64>().unwrap();
    let blocked = |conn: &mut testkit::Conn| conn.info("clients", "blocked_clients").unwrap().parse::<u64>().unwrap();
    let before = clients(&mut conn) + blocked(&mut conn);
    let Some(screen) = Screen::start("load", 24, &["--all", "--interval", "0.5", &address(&server)]) else { return };
    screen.until_shows(&["k1"]);
    assert_eq!(clients(&mut conn) + blocked(&mut conn), before + 1);
    let calls = |conn: &mut testkit::Conn| {
        let names = ["info", "lock.top", "lock.scan", "lock.info", "select", "config|get", "config"];
        names.iter().map(|name| conn.calls(name)).sum::<usize>()
    };
    let (began, first) = (Instant::now(), calls(&mut conn));
    // Held keys request many polls, but few are made.
    while began.elapsed() < Duration::from_secs(3) {
        screen.press(&["Down", "s"]);
    }
    let took = began.elapsed();
    let made = calls(&mut conn) - first;
    // 13 commands per poll, at most one poll per 0.3 s, one at the start; plus the commands of this test.
    let most = 14 * (usize::try_from(took.as_millis() / 300).unwrap() + 2);
    assert!((1..most).contains(&made), "{made} calls in {took:?}, at most {most}");
}

#[test]
fn a_server_error_can_be_fixed_while_watching() {
    let server = Server::with().without_module().start();
    let mut conn = server.conn();
    let Some(screen) = Screen::start("right", 24, &["--interval", "0.5", "--pass", "secret", &address(&server)]) else {
        return;
    };
    screen.until_shows(&["wrong user or password"]);
    conn.ok(&["CONFIG", "SET", "requirepass", "secret"]);
    conn.ok(&["AUTH", "secret"]);
    screen.until_shows(&["the module is not loaded: LOCK.TOP is unknown"]);
    conn.ok(&["MODULE", "LOAD", module().to_str().unwrap()]);
    let limits = if conn.is_before_7() { "nobody waits" } else { "0/5000" };
    screen.until_shows(&["1 server ", limits]);
    conn.ok(&["CONFIG", "SET", "requirepass", ""]);
}
