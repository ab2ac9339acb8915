//! The crate as users get it: the packed file, unpacked into the project of a user that has nothing else. The examples of
//! the README run there.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::Server;

const README: &str = include_str!("../README.md");

/// Where it is built, kept from one run to the next.
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

/// The blocks of the README in that language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("```{language}\n");
    README.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Packs the crate, and gives the folder of the unpacked file.
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

#[test]
fn the_packed_crate_has_what_it_needs_and_the_examples_of_its_readme_run() {
    let unpacked = packed();
    let mut found = BTreeSet::new();
    files(&unpacked, &unpacked, &mut found);
    for name in ["Cargo.toml", "README.md", "LICENSE", "src/lib.rs", "src/lock.lua", "src/aio/mod.rs"] {
        assert!(found.contains(name), "{name} is not in the crate: {found:?}");
    }
    assert!(!found.iter().any(|name| name.starts_with("driver") || name.starts_with("tests")), "{found:?}");

    let server = Server::start();
    let (folder, [dependencies]) = (kept().join("project"), blocks("toml")[..].try_into().unwrap());
    let dependencies: &str = dependencies;
    fs::create_dir_all(folder.join("src/bin")).unwrap();
    let project = "[package]\nname = \"project\"\nedition = \"2024\"\n";
    // The line for threads, with the features of that for tokio.
    let dependencies =
        dependencies.replace("serverlock = \"0.1\"", "serverlock = { version = \"0.1\", features = [\"tokio\"] }");
    assert!(dependencies.contains("features = [\"tokio\"] }"), "{dependencies}");
    let tokio = "tokio = { version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }";
    let patch = format!("[patch.crates-io]\nserverlock = {{ path = {unpacked:?} }}\n\n[workspace]\n");
    fs::write(folder.join("Cargo.toml"), format!("{project}\n{dependencies}{tokio}\n\n{patch}")).unwrap();
    let examples = blocks("rust");
    assert_eq!(examples.len(), 2);
    for (number, example) in examples.iter().enumerate() {
        let source = example.replace("localhost:6379", &format!("127.0.0.1:{}", server.port));
        assert_ne!(source, *example);
        fs::write(folder.join(format!("src/bin/example{number}.rs")), source).unwrap();
    }
    run(cargo(&folder).args(["build", "--quiet"]));
    let says = |number: usize| {
        let output = run(&mut Command::new(kept().join(format!("debug/example{number}"))));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(says(0).starts_with("working, token "));
    assert!(server.is_free("report"));
    assert!(says(1).starts_with("held to the end, token "));
    assert_eq!(server.call::<String>(&["GET", "report:last"]), "done");
    server.call::<i64>(&["LOCK.ACQUIRE", "nightly", "PX", "1", "OWNER", "alice"]);
    support::until("it has expired", || server.info("nightly", "state") == "expired");
    assert!(says(1).starts_with("somebody crashed before us: Some(\"alice\")\n"));
    server.call::<i64>(&["LOCK.ACQUIRE", "nightly", "EX", "60"]);
    assert_eq!(says(1), "the lock \"nightly\": somebody else has it\n");
}
