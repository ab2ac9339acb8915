//! The files for containers, as far as they can be tested without a registry: the Dockerfile copies the build's output
//! to where the server loads it, and servers start with the Kubernetes configurations and pass the probe.
//!
//! `tests/repository.rs` compares the files for Kubernetes with each other.

use super::{command, module, run, said, symlink, temp_dir, write_program, Output, Server, MODULE};
use std::fs;
use std::path::{Path, PathBuf};
use testkit::{project_file, server_binary, skipped, until, Options, Reply};

const DOCKERFILE: &str = "packaging/container/Dockerfile";
const STATEFUL_SET: &str = "packaging/kubernetes/statefulset.yaml";
const VALUES: &str = "packaging/kubernetes/values.yaml";
const REPLICATION: &str = "packaging/kubernetes/ot-operator.yaml";
const FAILOVER: &str = "packaging/kubernetes/spotahome-operator.yaml";
const CLUSTER: &str = "packaging/kubernetes/valkey-operator.yaml";

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
    let [(_, detecting), (build, building), (init, copying), (_, serving)] = &stages[..] else { panic!("{stages:?}") };
    assert_eq!((build.as_str(), init.as_str()), ("build", "module"));
    let folder = building.iter().find_map(|line| line.strip_prefix("WORKDIR ")).expect("a folder");
    let compiling = building.last().unwrap();
    for way in ["cargo build --release --locked --lib ", "scripts/musl.sh build "] {
        assert!(compiling.contains(way), "{compiling}");
    }
    assert!(compiling.ends_with(&format!("strip --strip-debug {}", module_name())), "{compiling}");
    assert!(detecting[0].ends_with(">/tmp/libc") && compiling.contains("$(cat libc)"), "{detecting:?}");
    let built = format!("{folder}/{}", module_name());
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
    assert_eq!(to, format!("/{}", module_name()));
    // Other files name the target, with the version that they pull.
    let image = format!("--target {init} -t redis-lock-module:{} .", env!("CARGO_PKG_VERSION"));
    assert!(project_file(DOCKERFILE).contains(&image), "{image}");
    // The build context contains everything that the build needs.
    let ignored = project_file("packaging/container/Dockerfile.dockerignore");
    assert_eq!(ignored.lines().collect::<Vec<_>>(), ["target", ".git", ".servers", ".data"]);
}

fn module_name() -> &'static str {
    MODULE.rsplit('/').next().unwrap()
}

/// `make test-images` runs the servers; this is what a pod needs to know beforehand.
#[test]
fn the_images_run_without_root_and_check_the_module() {
    let stages = stages();
    for (stage, instructions) in stages.iter().filter(|(name, _)| name.is_empty() || name == "module") {
        let user = instructions.iter().find_map(|line| line.strip_prefix("USER ")).expect("a user");
        assert!(user.parse::<u32>().is_ok_and(|user| user > 0), "{stage}: {user}");
    }
    let health = stages.last().unwrap().1.iter().find(|line| line.starts_with("HEALTHCHECK ")).expect("a check");
    assert!(health.contains(" -e LOCK.SCAN 0 COUNT 1 "), "{health}");
}

/// Runs scripts/images.sh where only these programs exist, each of which prints its name and its arguments.
fn images(programs: &[&str]) -> Output {
    let dir = temp_dir();
    for tool in ["sh", "dirname", "sed", "head"] {
        let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(tool)).into_iter().find(|it| it.exists());
        symlink(found.unwrap(), dir.join(tool)).unwrap();
    }
    for program in programs {
        // It starts a container as a user other than root, which is healthy at once.
        let answer = "case $1 in run) echo 1 ;; exec) echo 999 ;; inspect) echo healthy ;; esac";
        let text = format!("#!/bin/sh\necho \"{program} $*\" >&2\n{answer}\n");
        write_program(&dir.join(program), &text);
    }
    let output = run(command("scripts/images.sh").env("PATH", &dir));
    fs::remove_dir_all(dir).unwrap();
    output
}

#[test]
fn all_images_are_built_with_what_is_there() {
    let bases = ["library/redis:7.2", "library/redis:8", "valkey/valkey:8", "valkey/valkey:9"];
    for program in ["docker", "podman", "buildah"] {
        let said = said(&images(&[program]));
        for base in bases.iter().flat_map(|base| [(*base).to_string(), format!("{base}-alpine")]) {
            assert!(said.contains(&format!("--build-arg SERVER=docker.io/{base} .")), "{base}: {said}");
        }
        let built: Vec<_> = said.lines().filter(|line| line.contains(" build -f ")).collect();
        assert_eq!(built.len(), 2 * (bases.len() + 1), "{said}");
        // Health checks are not part of the other format.
        assert!(built.iter().all(|line| line.contains(" --format docker ") == (program != "docker")), "{said}");
        let target = format!("-t redis-lock-module:{}-alpine ", env!("CARGO_PKG_VERSION"));
        assert!(built.iter().any(|line| line.contains(&target) && line.ends_with(" --target module .")), "{said}");
        let started = said.lines().filter(|line| line.contains(" run -d ")).count();
        assert_eq!(started, if program == "buildah" { 0 } else { 2 * bases.len() }, "{said}");
    }
    let without = images(&[]);
    assert_eq!(without.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&without.stderr).lines().count(), 1, "{without:?}");
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

/// The servers' settings in the file of an operator that takes them as words or as a map, as lines of a configuration.
fn settings() -> [String; 2] {
    let words = block(FAILOVER, "command:").replace('"', "");
    let words: Vec<_> = words.lines().filter_map(|line| line.trim().strip_prefix("- ")).skip(2).collect();
    let options = words.chunks(2).map(|pair| format!("{} {}", pair[0].trim_start_matches("--"), pair[1]));
    let map = block(CLUSTER, "config:").replace([':', '"'], "");
    [options.collect::<Vec<_>>().join("\n"), format!("loadmodule /modules/libredis_lock.so\n{map}")]
}

#[test]
fn servers_start_with_the_configurations_for_kubernetes() {
    let blocks =
        [(STATEFUL_SET, "server.conf: |"), (VALUES, "valkeyConfig: |-"), (REPLICATION, "redis-additional.conf: |")];
    let texts = blocks.map(|(file, key)| block(file, key)).into_iter().chain(settings());
    if Server::connected().1.is_before_7() {
        return skipped("the configurations for Kubernetes", "this server has no module settings in a file");
    }
    for text in texts {
        assert!(text.lines().count() > 5 && text.contains("loadmodule "), "{text}");
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
fn the_readiness_probe_detects_the_module_and_waits_for_the_data() {
    let set = project_file(STATEFUL_SET);
    let probe = set.lines().find_map(|line| line.trim().strip_prefix("command: ["));
    let probe = probe.expect("a command").trim_end_matches(']').replace('"', "");
    let probe: Vec<_> = probe.split(", ").collect();
    assert_eq!(probe[0], "valkey-cli");
    // The image checks the same, and so do the other files.
    assert!(project_file(DOCKERFILE).contains(&probe[1..].join(" ")), "{probe:?}");
    for file in [VALUES, REPLICATION, FAILOVER] {
        assert!(project_file(file).replace(['"', ','], "").contains(&probe[1..].join(" ")), "{file}: {probe:?}");
    }
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

    // A minute of loading, with connections served after each key.
    conn.int(&["EVAL", "for n = 1, 600 do redis.call('SET', n, string.rep('x', 2000)) end return 1", "0"]);
    for (name, value) in
        [("key-load-delay", "100000"), ("rdbcompression", "no"), ("loading-process-events-interval-bytes", "1024")]
    {
        conn.ok(&["CONFIG", "SET", name, value]);
    }
    conn.send(&["DEBUG", "RELOAD"]);
    let mut watcher = with.conn();
    until("the server is loading", || match watcher.execute(&["PING"]) {
        Reply::Error(text) if text.starts_with("LOADING") => Some(()),
        _ => None,
    });
    assert!(!is_ready(&with), "the data is not loaded");
}
