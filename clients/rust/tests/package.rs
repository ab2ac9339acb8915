//! The crate as users get it: the packed file, unpacked for a user's project that has nothing else. The README's
//! examples run there.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::Server;

const README: &str = include_str!("../README.md");
const MIGRATING: &str = include_str!("../../../docs/MIGRATING.md");
const REPORT: &str = include_str!("../../../examples/rust/report.rs");

/// The build folder, kept from one run to the next.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("package")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(folder).env("CARGO_TARGET_DIR", kept()).env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

/// The README's blocks in that language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("```{language}\n");
    README.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Packs the crate, and returns the folder of the unpacked file.
fn packed() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(cargo(source).args(["package", "--quiet", "--no-verify", "--allow-dirty", "-p", "serverlock"]));
    let name = format!("serverlock-{}", env!("CARGO_PKG_VERSION"));
    let unpacked = kept().join(&name);
    let _ = fs::remove_dir_all(&unpacked);
    run(Command::new("tar").arg("-xzf").arg(kept().join(format!("package/{name}.crate"))).arg("-C").arg(kept()));
    unpacked
}

fn files(folder: &Path, from: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, from, found);
        } else {
            found.insert(path.strip_prefix(from).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// Creates a user's project, with the README's line for threads and also the features tokio and testing.
fn project(name: &str, unpacked: &Path, more: &str) -> PathBuf {
    let folder = kept().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("src/bin")).unwrap();
    let lines = blocks("toml")[0];
    // The crate is not in a registry yet: clients/suite/install.py tests the path, this test the packed crate.
    let threads = "serverlock = { path = \"../redis-lock/clients/rust\" }";
    assert!(lines.contains(threads) && lines.contains("features = [\"tokio\"]"), "{lines}");
    let redis = "redis = \"1.8\"";
    assert!(lines.contains(redis), "{lines}");
    let lines = lines.replace(redis, "redis = { version = \"1.8\", features = [\"bb8\", \"r2d2\"] }");
    let lines = lines.replace(threads, "serverlock = { version = \"1.0\", features = [\"testing\", \"tokio\"] }");
    let tokio = "tokio = { version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }";
    let manifest = format!(
        "[package]\nname = {name:?}\nedition = \"2024\"\n\n{lines}{tokio}\n{more}\n\n\
         [patch.crates-io]\nserverlock = {{ path = \"{}\" }}\n\n[workspace]\n",
        unpacked.display()
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    folder
}

/// The output of one of the project's programs.
fn says(name: &str) -> String {
    String::from_utf8(run(&mut Command::new(kept().join("debug").join(name))).stdout).unwrap()
}

#[test]
fn the_packed_crate_has_what_it_needs_and_its_examples_run() {
    let unpacked = packed();
    let mut found = BTreeSet::new();
    files(&unpacked, &unpacked, &mut found);
    for name in ["Cargo.toml", "README.md", "LICENSE", "src/lib.rs", "src/lock.lua", "src/aio/mod.rs"] {
        assert!(found.contains(name), "{name} is not in the crate: {found:?}");
    }
    assert!(!found.iter().any(|name| name.starts_with("driver") || name.starts_with("tests")), "{found:?}");

    let server = Server::start();
    let at = format!("127.0.0.1:{}", server.port);
    let more = "rslock = { version = \"=0.10.0\", features = [\"tokio-comp\"] }\nbb8 = \"0.9\"\nr2d2 = \"0.8\"";
    let folder = project("examples", &unpacked, more);
    let write = |name: &str, source: String| fs::write(folder.join("src/bin").join(name), source).unwrap();
    let examples = blocks("rust");
    assert_eq!(examples.len(), 6);
    for (number, example) in examples.iter().enumerate() {
        let source = example.replace("localhost:6379", &at);
        assert_eq!(source == *example, example.contains("testing"));
        write(&format!("example{number}.rs"), source);
    }
    let report = REPORT.replace("//localhost", &format!("//{at}")).replace("0..10", "0..1");
    assert!(report.contains(&at) && report.contains("0..1 "));
    write("report.rs", report);
    for (name, line) in [("before.rs", line_of('-')), ("after.rs", line_of('+'))] {
        let end = if name == "after.rs" { "lock.release().await?" } else { "manager.unlock(&lock).await" };
        write(name, program(&line, end, &at));
    }
    run(cargo(&folder).args(["build", "--quiet"]));

    assert!(says("example0").starts_with("working, token "));
    assert!(says("report").starts_with("working, token "));
    assert!(server.is_free("report"));
    assert!(says("example1").starts_with("held to the end, token "));
    assert_eq!(server.call::<String>(&["GET", "report:last"]), "done");
    server.call::<i64>(&["LOCK.ACQUIRE", "nightly", "PX", "1", "OWNER", "alice"]);
    support::until("it has expired", || server.info("nightly", "state") == "expired");
    assert!(says("example1").starts_with("somebody crashed before us: Some(\"alice\")\n"));
    server.call::<i64>(&["LOCK.ACQUIRE", "nightly", "EX", "60"]);
    assert_eq!(says("example1"), "the lock \"nightly\": somebody else has it\n");

    let once = says("example2");
    assert!(
        once.starts_with("working, token ") && once.ends_with(", after a crash: false\nwrote report.pdf\n"),
        "{once}"
    );
    assert_eq!(says("example2"), "another machine is running this tick, or has run it\n");
    assert_eq!(server.info("nightly report", "state"), "held");

    let page = says("example3");
    assert!(page.starts_with("42 pages, token "), "{page}");
    assert_eq!(says("example3"), page, "it comes from the cache");
    assert!(server.is_free("page:lock"));

    assert_eq!(says("example4"), "");
    assert_eq!(says("example5"), "");
    assert!(server.is_free("report"));

    assert_eq!(says("before"), "foreign\n");
    assert_eq!(says("after"), "held\n");
    assert!(server.is_free("report"));
}

/// The line in docs/MIGRATING.md for rslock, before or after the change.
fn line_of(side: char) -> String {
    let block = MIGRATING.split("```diff\n").find(|block| block.starts_with("-let lock = manager.lock(")).unwrap();
    block.lines().find_map(|line| line.strip_prefix(side)).unwrap().to_owned()
}

/// A program that takes a lock with that line, and prints its state on the server.
fn program(line: &str, end: &str, at: &str) -> String {
    format!(
        "#[tokio::main]\nasync fn main() -> Result<(), Box<dyn std::error::Error>> {{
            let client = redis::Client::open(\"redis://{at}\")?;
            let mut connection = client.get_connection()?;
            let lease = std::time::Duration::from_secs(30);
            let manager = rslock::LockManager::new(vec![\"redis://{at}\"]);
            let locks = serverlock::aio::Locks::new(client);
            {line}
            let info: Vec<redis::Value> = redis::cmd(\"LOCK.INFO\").arg(\"report\").query(&mut connection)?;
            println!(\"{{}}\", redis::from_redis_value_ref::<String>(&info[1])?);
            {end};
            drop((manager, locks));
            Ok(())
        }}"
    )
}
