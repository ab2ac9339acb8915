//! `docs/LOCK_TOP.md` shows the program's real output: each capture is compared with a new one, except for numbers and
//! times.
//!
//! `LOCK_TOP_CAPTURES=write cargo test -p lock-top page::` writes new captures into the page.

use crate::held::{hold, metrics, HOUR};
use crate::screen::Screen;
use crate::{address, once, run, text};
use testkit::{project_file, root, skipped, Conn, Server};

const PAGE: &str = "docs/LOCK_TOP.md";

/// Two programs that wait for each other, and a third one queued after them.
fn incident(server: &Server) -> [Conn; 4] {
    let [mut billing, mut reports, mut watcher] = [server.conn(), server.conn(), server.conn()];
    billing.int(&["LOCK.ACQUIRE", "invoices", "EX", "600", "OWNER", "billing:7"]);
    reports.int(&["LOCK.ACQUIRE", "report", "EX", "600", "OWNER", "reports:3", "SESSION"]);
    let wait = |key, id, owner| ["LOCK.ACQUIRE", key, "EX", "600", "WAIT", "600000", "ID", id, "OWNER", owner];
    billing.send(&wait("report", "1001", "billing:7"));
    watcher.until_waiters("report", 1);
    let mailer = server.waiter(&wait("report", "3003", "mailer:1"));
    reports.send(&wait("invoices", "2002", "reports:3"));
    watcher.until_waiters("invoices", 1);
    [billing, reports, mailer, watcher]
}

/// Masks what differs between runs: numbers and their widths, and the numbers and addresses of clients, which not every
/// module reports for a holder.
fn masked(capture: &str) -> String {
    let word = |word: &str| {
        if word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|c| "0123456789.smhd,/".contains(c))
        {
            return "N".to_string();
        }
        let digits = word.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        digits.fold(word.to_string(), |text, run| text.replacen(run, "0", 1))
    };
    let is_of_client = |word: &&str| word.starts_with('#') || word.starts_with("127.0.0.1:");
    let line =
        |line: &str| line.split_whitespace().filter(|word| !is_of_client(word)).map(word).collect::<Vec<_>>().join(" ");
    capture.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Replaces a capture in the page. Returns the new page, and the old capture.
fn replaced(page: &str, name: &str, capture: &str) -> (String, String) {
    let mark = format!("<!-- capture: {name} -->\n```text\n");
    let (before, rest) = page.split_once(&mark).unwrap_or_else(|| panic!("{PAGE} has no capture {name}"));
    let (old, after) = rest.split_once("```\n").expect("the capture ends");
    let lines: Vec<&str> = capture.trim_end().lines().map(str::trim_end).collect();
    (format!("{before}{mark}{}\n```\n{after}", lines.join("\n")), old.to_string())
}

#[test]
fn the_captures_match_what_is_shown() {
    let (server, mut conn) = Server::connected();
    if conn.is_before_7() {
        return skipped("the_captures_match", "the limits and the grace are not in CONFIG before 7.0");
    }
    let _clients = incident(&server);
    let is_writing = std::env::var("LOCK_TOP_CAPTURES").is_ok_and(|what| what == "write");
    if is_writing {
        // Waits so that the page shows times as an operator would see them.
        std::thread::sleep(std::time::Duration::from_secs(5));
    }
    let at = address(&server);
    let mut captures = vec![("once", once(&[&at]))];
    if let Some(screen) = Screen::start("page", 22, &["--interval", "0.5", &at]) {
        captures.push(("view", screen.until_shows(&["CYCLE: ", "LINE CLIENT", "3003", "0.0       0.0    0.0"])));
        screen.press(&["v"]);
        let picture = screen.until_shows(&["who waits for whom", "mailer:1"]);
        let lower = picture.lines().skip_while(|line| !line.contains("who waits for whom"));
        captures.push(("picture", lower.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")));
        screen.press(&["r"]);
        let dialog = screen.until_shows(&["Send this?", "y: send it"]);
        let framed = dialog.lines().filter_map(|line| line.get(line.find(['|', '+'])?..=line.rfind(['|', '+'])?));
        captures.push(("release", framed.collect::<Vec<_>>().join("\n")));
    }
    hold(&mut conn, "ledger", 50 * HOUR, "billing:8");
    hold(&mut conn, "backup", 2 * HOUR + HOUR / 12, "nightly");
    captures.push(("held", text(&run(&["--held-for", "1h", &at]).stdout)));
    let (mut page, mut different) = (project_file(PAGE), Vec::new());
    for (name, capture) in captures {
        let (new, old) = replaced(&page, name, &capture);
        if is_writing || masked(&old) != masked(&capture) {
            different.push(format!("{name}:\n{}\nthe page has:\n{}", masked(&capture), masked(&old)));
            page = new;
        }
    }
    if is_writing {
        std::fs::write(root().join(PAGE), page).unwrap();
    } else {
        assert!(different.is_empty(), "{}", different.join("\n\n"));
    }
}

#[test]
fn the_page_has_the_help_word_for_word() {
    let help = crate::text(&crate::run(&["--help"]).stdout);
    let page = project_file(PAGE);
    assert!(page.contains(&format!("```text\n{help}```\n")), "{PAGE} lacks this text of --help:\n{help}");
}

#[test]
fn the_page_has_the_metrics_and_a_cron_line_that_writes_them() {
    let (server, mut conn) = Server::connected();
    if conn.is_before_7() {
        return skipped("the_page_has_the_metrics", "the permission %R~ needs 7.0");
    }
    let (page, at, dir) = (project_file(PAGE), address(&server), testkit::temp_dir());
    let rules = crate::rights::documented_rules("docs/OPERATING.md", "watcher");
    conn.ok(&[&["ACL", "SETUSER", "watcher"], &*rules.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    hold(&mut conn, "report", 2 * HOUR, "alice");
    std::fs::write(dir.join("password"), "secret\n").unwrap();

    let line = page.lines().find_map(|line| line.strip_prefix("*/15 * * * * prometheus ")).expect("a line for cron");
    assert!(!line.contains('%'), "cron would end the line there");
    let dir_name = dir.to_str().unwrap();
    let mut command = line.to_string();
    for (documented, here) in [
        ("/var/lib/prometheus/node-exporter", dir_name),
        ("/etc/lock-top.pass", "password"),
        ("db1:6379", &at),
        ("{ lock-top ", &format!("{{ {} ", env!("CARGO_BIN_EXE_lock-top"))),
    ] {
        assert!(command.contains(documented), "{documented}: {command}");
        command = command.replace(documented, here);
    }
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let written = std::fs::read_to_string(dir.join("lock-top.prom")).unwrap();
    assert!(!dir.join("lock-top.tmp").exists());
    let values = metrics(&written, &at);
    assert_eq!(values.iter().map(|(_, value)| *value).take(3).collect::<Vec<_>>(), [1.0, 1.0, 1.0], "{written}");

    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let documented: Vec<&str> = rows.map(|row| row.0).filter(|name| name.starts_with("lock_")).collect();
    assert_eq!(documented, values.iter().map(|(name, _)| name).collect::<Vec<_>>());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn numbers_and_widths_are_masked_and_words_are_not() {
    assert_eq!(masked("a #12 127.0.0.1:7   3.2s 9m58s 1/5000\n b:7 907ms,\n"), "a N N N\nb:0 N");
    assert_ne!(masked("held for 3s by alice"), masked("held for 3s by bob"));
}
