//! The files for containers, as far as they can be tested without a registry: the Dockerfile copies the build's output
//! to where the server loads it, and servers start with the Kubernetes configurations and pass the probe.
//!
//! `tests/repository.rs` compares the files for Kubernetes with each other.

use super::{command, module, run, temp_dir, Server, MODULE};
use std::fs;
use std::path::{Path, PathBuf};
use testkit::{project_file, server_binary, skipped, Options};

const DOCKERFILE: &str = "packaging/container/Dockerfile";
const STATEFUL_SET: &str = "packaging/kubernetes/statefulset.yaml";
const VALUES: &str = "packaging/kubernetes/values.yaml";

/// The Dockerfile's instructions, each on one line, by stage name; the last stage has no name.
fn stages() -> Vec<(String, Vec<String>)> {
    let text = project_file(DOCKERFILE).replace("\\\n", " ");
    let mut stages = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("ARG ")) {
        if let Some(image) = line.strip_prefix("FROM ") {
            stages.push((image.split_once(" AS ").map_or("", |(_, name)| name).to_string(), Vec::new()));
        } else {
            stages.last_mut().expect("FROM comes first").1.push(line.to_string());
        }
    }
    stages
}

/// The source and the target of a stage's COPY from `build`.
fn copied(stage: &[String]) -> (String, String) {
    let line = stage.iter().find(|line| line.starts_with("COPY --from=build ")).expect("a COPY");
    assert!(line.contains(" --chmod=755 "), "servers refuse a module that is not executable: {line}");
    let words: Vec<_> = line.split(' ').collect();
    (words[words.len() - 2].into(), words[words.len() - 1].into())
}

#[test]
fn the_dockerfile_copies_the_module_where_it_is_loaded() {
    let stages = stages();
    let [(build, building), (init, copying), (_, serving)] = &stages[..] else { panic!("{stages:?}") };
    assert_eq!((build.as_str(), init.as_str()), ("build", "module"));
    let folder = building.iter().find_map(|line| line.strip_prefix("WORKDIR ")).expect("a folder");
    assert!(building.iter().any(|line| line.starts_with("RUN cargo build --release --locked --lib ")), "{building:?}");
    let built = format!("{folder}/target/release/libredis_lock.so");
    let packages = building.iter().find(|line| line.starts_with("RUN apt-get ")).expect("packages");
    let installed = project_file("scripts/install-deps.sh");
    for package in packages.split_whitespace().filter(|word| word.starts_with("libclang")) {
        assert!(installed.contains(package), "{package}");
    }

    let (from, to) = copied(serving);
    assert_eq!((from, to.as_str()), (built.clone(), format!("/{MODULE}").as_str()));
    assert_eq!(serving.last().unwrap(), &format!("CMD [\"--loadmodule\", \"{to}\"]"));
    let (from, to) = copied(copying);
    assert_eq!(from, built);
    assert!(copying.contains(&format!("ENTRYPOINT [\"cp\", \"{to}\"]")), "{copying:?}");
    assert_eq!(Path::new(&to).file_name(), Path::new(MODULE).file_name());
    // Other files name the target, with the version that they pull.
    let image = format!("--target {init} -t redis-lock-module:{} .", env!("CARGO_PKG_VERSION"));
    assert!(project_file(DOCKERFILE).contains(&image), "{image}");
    // The build context contains everything that the build needs.
    let ignored = project_file("packaging/container/Dockerfile.dockerignore");
    assert_eq!(ignored.lines().collect::<Vec<_>>(), ["target", ".git", ".servers", ".data"]);
}

/// The text of a block in a YAML file: the lines below `key` that are indented further.
fn block(file: &str, key: &str) -> String {
    let text = project_file(file);
    let (before, rest) = text.split_once(key).unwrap_or_else(|| panic!("{file}: {key}"));
    let indent = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 2;
    let lines = rest.lines().skip(1).map_while(|line| line.strip_prefix(&*" ".repeat(indent)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The client beside the tests' server: what `valkey-cli` or `redis-cli` is in its image.
fn client() -> Option<PathBuf> {
    let server = PathBuf::from(server_binary());
    let name = server.file_name()?.to_str()?.replace("server", "cli");
    let client = Some(name).filter(|name| name.ends_with("-cli")).map(|name| server.with_file_name(name));
    client.filter(|client| command(client).arg("--version").output().is_ok())
}

#[test]
fn servers_start_with_the_configurations_for_kubernetes() {
    let (set, chart) = (block(STATEFUL_SET, "server.conf: |"), block(VALUES, "commonConfiguration: |-"));
    assert!(set.lines().count() > 5 && chart.lines().count() > 5, "{set}\n{chart}");
    if Server::connected().1.is_before_7() {
        return skipped("the configurations for Kubernetes", "this server has no module settings in a file");
    }
    for text in [set, chart] {
        let dir = temp_dir();
        let file = dir.join("server.conf");
        // The container's paths become this test's paths.
        let here = text.replace("/modules/libredis_lock.so", module().to_str().unwrap());
        fs::write(&file, here.replace("dir /data", "")).unwrap();
        let (server, mut conn) = Options::default().without_module().config(&file).dir(&dir).connected();
        for line in text.lines().filter(|line| line.starts_with("lock.") || line.starts_with("min-replicas-")) {
            let (name, value) = line.split_once(' ').unwrap();
            assert_eq!(conn.execute(&["CONFIG", "GET", name]).field(name).text(), value);
        }
        assert_eq!(conn.state("k"), "free");
        drop(server);
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn the_readiness_probe_detects_the_module() {
    let set = project_file(STATEFUL_SET);
    let probe = set.lines().find_map(|line| line.trim().strip_prefix("command: ["));
    let probe: Vec<_> = probe.expect("a command").trim_end_matches(']').split(", ").collect();
    assert_eq!(probe[0], "valkey-cli");
    let Some(client) = client() else { return skipped("the readiness probe", "this server has no client beside it") };
    let is_ready = |server: &Server| {
        let mut probe_here = command(&client);
        run(probe_here.args(["-p", &server.port().to_string()]).args(&probe[1..])).status.success()
    };
    let (with, mut conn) = Server::connected();
    if conn.is_before_7() {
        return skipped("the readiness probe", "this server's client does not have -e");
    }
    assert!(is_ready(&with));
    assert!(!is_ready(&Server::with().without_module().start()));
}
