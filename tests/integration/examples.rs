//! The README's example, and what `examples/python` does with the package in `clients/python`.
//!
//! The Node examples need the compiled package: `make test-clients` runs them.

use std::process::{Command, Output};
use std::time::Instant;

use testkit::install;
use testkit::{bound, skipped, until_within, Server, DEADLINE};

/// The output of an example on that server, with one step of work; `None`, with a message, if redis-py is missing.
fn run(text: &str, server: &Server) -> Option<Output> {
    let python = install::python().map_err(|why| skipped("examples/python", &why)).ok()?;
    let example = text.replace("Redis()", &format!("Redis(port={})", server.port()));
    assert_ne!(example, text, "the example connects in a different way");
    let example = example.replace("range(10)", "range(1)").replace("sleep(10)", "sleep(0.1)");
    let mut command = Command::new(python);
    command.args(["-W", "error", "-c", &example]);
    Some(command.env("PYTHONPATH", install::sources().join("../../clients/python/src")).output().unwrap())
}

#[test]
fn the_readme_shows_an_example_that_runs() {
    let example = include_str!("../../examples/python/report.py");
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&format!("```python\n{example}```\n")),
        "README.md does not show examples/python/report.py"
    );
    let server = Server::start();
    let Some(output) = run(example, &server) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("working, token 1"), "{output:?}");
    assert_eq!(server.conn().int(&["DBSIZE"]), 0, "the lock was not released");
}

#[test]
fn the_example_with_asyncio_waits_in_the_queue() {
    let (server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]).to_string();
    let since = Instant::now();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(include_str!("../../examples/python/report_asyncio.py"), &server));
        // Python and its libraries take long to start on a busy machine.
        until_within(3 * DEADLINE, "it waits", || {
            let waits = conn.execute(&["LOCK.INFO", "report"]).field("waiters").int() == 1;
            (waits || running.is_finished()).then_some(())
        });
        conn.int(&["LOCK.RELEASE", "report", &token]);
        let Some(output) = running.join().unwrap() else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.starts_with("working, token 1"), "{output:?}");
    });
    bound::wall("an example", 4 * DEADLINE, since.elapsed());
    assert_eq!(conn.int(&["DBSIZE"]), 0, "the lock was not released");
}
