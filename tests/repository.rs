//! The files around the code are right: workflows call existing `make` targets, the nightly one runs what `make
//! nightly` runs, dependabot watches folders that are not empty, the version is the same everywhere (release.rs), the
//! packages contain an unchanged copy of the Lua file, `make advisories` covers all crates, and `make subjects`
//! distinguishes good and bad commit subjects.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "repository/release.rs"]
mod release;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The targets in a list of commands: `make fuzz SECONDS=60 && make lint` calls `fuzz` and `lint`.
fn calls(text: &str) -> BTreeSet<String> {
    let is_target = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let target = |after: &str| after.chars().take_while(|letter| is_target(*letter)).collect::<String>();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split("make ").skip(1).map(target)).collect()
}

/// The targets that the Makefile has rules for.
fn targets() -> BTreeSet<String> {
    let makefile = read("Makefile");
    let rule =
        |line: &str| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')).map(|(name, _)| name.into());
    makefile
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(rule)
        .collect()
}

fn yaml_files() -> Vec<PathBuf> {
    let folders = [".github", ".github/workflows", ".github/ISSUE_TEMPLATE"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "yml")).collect()
}

/// Runs one of the project's scripts with this input.
fn run(script: &str, input: &str) -> Output {
    let mut child = Command::new(root().join(script))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// YAML files as parsed by Python, or `None` if Python cannot read YAML.
fn parsed(files: &[PathBuf]) -> Option<Vec<Value>> {
    // The key `on` is read as true.
    let program = "import sys, json\n\
                   try: import yaml\n\
                   except ImportError: sys.exit(3)\n\
                   for file in sys.argv[1:]:\n \
                   for document in yaml.safe_load_all(open(file)): print(json.dumps(document))";
    let output = Command::new("python3").args(["-c", program]).args(files).output().ok();
    let Some(output) = output.filter(|output| output.status.code() != Some(3)) else {
        println!("skipped: python3 has no yaml (Debian: python3-yaml)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect())
}

/// The names in a pod's list.
fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// The server loads the module from where the init container puts it. tests/integration/package/containers.rs starts
/// servers with these configurations.
#[test]
fn the_kubernetes_files_agree_with_each_other() {
    let folder = root().join("packaging/kubernetes");
    let files =
        ["statefulset.yaml", "values.yaml", "ot-operator.yaml", "spotahome-operator.yaml", "valkey-operator.yaml"];
    let Some(parsed) = parsed(&files.map(|file| folder.join(file))) else { return };
    let [conf, service, set, values, ot_conf, ot, failover, cluster] = &parsed[..] else { panic!("{}", parsed.len()) };
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mut volumes = pod["volumes"].as_array().unwrap().clone();
    volumes.extend(set["spec"]["volumeClaimTemplates"].as_array().unwrap().iter().map(|it| it["metadata"].clone()));
    let volumes = Value::Array(volumes);
    let (replication, redis) = (&ot["spec"], &failover["spec"]["redis"]);
    let mounts = &replication["storage"]["volumeMount"];
    let mut initial = replication["initContainer"].clone();
    initial["volumeMounts"] = mounts["mountPath"].clone();
    let (settings, extra) = (&conf["data"]["server.conf"], &ot_conf["data"]["redis-additional.conf"]);
    let chart = (&values["extraVolumeMounts"], &values["extraVolumes"], &values["valkeyConfig"]);
    let pods = [
        (&pod["initContainers"][0], &container["volumeMounts"], &volumes, settings),
        (&values["extraInitContainers"][0], chart.0, chart.1, chart.2),
        (&initial, &mounts["mountPath"], &mounts["volume"], extra),
        (&redis["initContainers"][0], &redis["extraVolumeMounts"], &redis["extraVolumes"], &redis["command"]),
    ];
    for (init, mounts, volumes, conf) in pods {
        assert_eq!(names(mounts), names(volumes), "each volume is mounted: {init}");
        let image = init["image"].as_str().unwrap().trim_end_matches("-alpine");
        assert_eq!(image, format!("redis-lock-module:{}", env!("CARGO_PKG_VERSION")));
        for mount in [&init["volumeMounts"][0], &mounts[0]] {
            assert_eq!((mount["name"].as_str(), mount["mountPath"].as_str()), (Some("modules"), Some("/modules")));
        }
        assert_eq!(init["args"][0], "/modules/");
        let words = conf.as_array().map(|words| words.iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>());
        let text = words.map_or_else(|| conf.as_str().unwrap().to_string(), |words| words.join(" "));
        assert!(text.contains("loadmodule /modules/libredis_lock.so"), "{text}");
    }
    assert_eq!(replication["redisConfig"]["additionalRedisConfig"], ot_conf["metadata"]["name"]);
    assert!(initial["image"].as_str().unwrap().ends_with("-alpine"), "the operator's images are Alpine's");
    // The requirements of the Pod Security Standard `restricted`.
    for document in [set, values, ot, failover, cluster] {
        let found = security_contexts(document);
        let (containers, pods): (Vec<_>, Vec<_>) = found.iter().partition(|it| it["capabilities"].is_object());
        // The chart has its own for the pod.
        assert!(!containers.is_empty() && pods.is_empty() == std::ptr::eq(document, values), "{document}");
        for pod in pods {
            assert_eq!(pod["runAsNonRoot"], true, "{pod}");
            assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault", "{pod}");
        }
        for container in containers {
            assert_eq!(container["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(container["capabilities"]["drop"][0], "ALL", "{container}");
        }
    }
    assert_eq!(container["securityContext"], pod["initContainers"][0]["securityContext"]);

    // The rest of the first file: labels, ports and paths.
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&set["spec"]["selector"]["matchLabels"], &service["spec"]["selector"]), (labels, labels));
    assert_eq!(set["spec"]["serviceName"], service["metadata"]["name"]);
    assert_eq!(container["ports"][0]["containerPort"], service["spec"]["ports"][0]["port"]);
    let mounted = |name: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["name"] == name).unwrap()["mountPath"].as_str().unwrap().to_string()
    };
    assert_eq!(container["args"][0], format!("{}/{}", mounted("conf"), "server.conf"));
    let text = settings.as_str().unwrap();
    assert!(text.lines().any(|line| line == format!("dir {}", mounted("data"))), "{text}");
    let config_map = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "conf").unwrap();
    assert_eq!(config_map["configMap"]["name"], conf["metadata"]["name"]);

    // Where there are failovers, a master needs all of its replicas.
    let (servers, text) = (|count: &Value| count.as_u64().unwrap() - 1, extra.as_str().unwrap());
    let replicas = format!("min-replicas-to-write {}", servers(&replication["clusterSize"]));
    assert!(text.lines().any(|line| line == replicas), "{text}");
    let words = redis["command"].as_array().unwrap();
    let at = words.iter().position(|word| word == "--min-replicas-to-write").unwrap();
    assert_eq!(words[at + 1], servers(&redis["replicas"]).to_string());
    let cluster = &cluster["spec"];
    assert_eq!(cluster["config"]["min-replicas-to-write"], cluster["replicas"].to_string());
    // The image of the last one contains the module.
    let dockerfile = read("packaging/container/Dockerfile");
    let args = &cluster["containers"][0]["args"];
    assert!(dockerfile.ends_with(&format!("CMD [{}, {}]\n", args[0], args[1])), "{args}");
}

/// Each security context in a document, of pods and of containers.
fn security_contexts(value: &Value) -> Vec<Value> {
    let own = |(key, value): (&String, &Value)| key.ends_with("ecurityContext").then(|| value.clone());
    match value {
        Value::Object(map) => map.iter().filter_map(own).chain(map.values().flat_map(security_contexts)).collect(),
        Value::Array(list) => list.iter().flat_map(security_contexts).collect(),
        _ => Vec::new(),
    }
}

/// Each section of SECURITY.md that a template refers to exists.
#[test]
fn templates_refer_to_existing_sections() {
    let security = read("SECURITY.md");
    let mut named = 0;
    for file in yaml_files() {
        let text = fs::read_to_string(&file).unwrap();
        for section in text.split("SECURITY.md lists under \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(security.contains(&format!("\n## {section}\n")), "{}: {section}", file.display());
            named += 1;
        }
    }
    assert!(named > 0, "no template names a section");
}

/// INSTALL lists the servers that `make servers` fetches.
#[test]
fn install_lists_the_fetched_servers() {
    let page = read("docs/INSTALL.md");
    let list = page.split("`make servers` fetches others (").nth(1).unwrap().split(')').next().unwrap();
    let words = list.split([' ', ',', ';', '\n']).filter(|word| word.contains('.'));
    let named: BTreeSet<String> = words.map(str::to_string).collect();
    let is_fetched = |line: &&str| ["debian", "wheel ", "source_of "].iter().any(|way| line.starts_with(way));
    let version = |line: &str| Some(line.split(' ').nth(1)?.split_once('-')?.1.to_string());
    let script = read("scripts/fetch-servers.sh");
    let fetched: BTreeSet<String> = script.lines().filter(is_fetched).filter_map(version).collect();
    assert!(fetched.len() >= 10, "{fetched:?}");
    assert_eq!(named, fetched);
}

#[test]
fn each_target_that_a_workflow_calls_exists() {
    let targets = targets();
    let mut called = 0;
    for file in yaml_files() {
        let calls = calls(&fs::read_to_string(&file).unwrap());
        called += calls.len();
        let missing: Vec<_> = calls.difference(&targets).collect();
        assert!(missing.is_empty(), "{} calls make {missing:?}", file.display());
    }
    assert!(called >= 10, "found only {called} calls of make");
    assert!(!targets.contains("no-such-target"));
}

/// Each script that a workflow runs is there and executable.
#[test]
fn each_script_that_a_workflow_runs_exists() {
    let mut called = BTreeSet::new();
    for file in yaml_files() {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = lines.flat_map(|line| line.split([' ', '"', '(', ')']));
        called.extend(words.filter(|word| word.starts_with("scripts/") || word.starts_with(".ci/")).map(String::from));
    }
    assert!(called.len() >= 4, "{called:?}");
    for script in called {
        let mode = fs::metadata(root().join(&script)).unwrap_or_else(|error| panic!("{script}: {error}")).permissions();
        assert!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o111 != 0, "{script} is not executable");
    }
}

/// Only a tag publishes.
#[test]
fn only_a_tag_starts_a_release() {
    let Some(yaml) = parsed(&[root().join(".github/workflows/release.yml")]) else { return };
    // `on` is read as true.
    assert_eq!(yaml[0]["true"], serde_json::json!({"push": {"tags": ["v*"]}}));
}

#[test]
fn the_nightly_workflow_runs_what_make_nightly_runs() {
    let makefile = read("Makefile");
    let list = makefile.lines().find_map(|line| line.strip_prefix("NIGHTLY = ")).unwrap();
    let list: BTreeSet<_> = list.split(' ').map(str::to_string).collect();
    assert_eq!(calls(&read(".github/workflows/nightly.yml")), list);
}

#[test]
fn workflows_and_templates_are_what_their_reader_expects() {
    let files = yaml_files();
    let Some(parsed) = parsed(&files) else { return };
    for (file, yaml) in files.iter().zip(parsed) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if file.parent().unwrap().ends_with("workflows") {
            assert!(yaml["name"].is_string() && yaml["true"].is_object(), "{name}: no name, or nothing starts it");
            assert_eq!(yaml["permissions"]["contents"], "read", "{name}");
            for (job, steps) in yaml["jobs"].as_object().unwrap() {
                assert!(steps["runs-on"].is_string() && steps["timeout-minutes"].is_u64(), "{name}: {job}");
                let steps = steps["steps"].as_array().unwrap();
                let does_one = |step: &&Value| step["uses"].is_string() != step["run"].is_string();
                assert!(!steps.is_empty() && steps.iter().all(|step| does_one(&step)), "{name}: {job}");
            }
        } else if name == "bug" || name == "feature" {
            let fields = yaml["body"].as_array().unwrap();
            assert!(fields.iter().any(|field| field["validations"]["required"] == true), "{name}: nothing is required");
        }
    }
}

/// A tag can be moved by the action's owner, or by an attacker; a commit cannot. A token with write access is never
/// exposed to the code of the project and its dependencies.
#[test]
fn workflows_pin_actions_and_grant_no_write_token() {
    let files: Vec<_> = yaml_files().into_iter().filter(|file| file.parent().unwrap().ends_with("workflows")).collect();
    let mut pinned = 0;
    for file in &files {
        for line in fs::read_to_string(file).unwrap().lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            let (commit, version) = action.split_once('@').unwrap().1.split_once(" # v").unwrap_or((action, ""));
            let is_commit = commit.len() == 40 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
            assert!(is_commit && version.split('.').count() == 3, "{}: {line}", file.display());
            pinned += 1;
        }
    }
    assert!(pinned > 5, "{pinned}");

    let Some(parsed) = parsed(&files) else { return };
    let mut writing = BTreeSet::new();
    for (file, yaml) in files.iter().zip(parsed) {
        assert!(yaml["true"]["pull_request_target"].is_null(), "{}", file.display());
        for (job, content) in yaml["jobs"].as_object().unwrap() {
            let permissions = content["permissions"].as_object();
            let writes = permissions.is_some_and(|all| all.values().any(|it| it == "write"));
            if writes {
                writing.insert(job.clone());
            }
            for step in content["steps"].as_array().unwrap() {
                let action = step["uses"].as_str().unwrap_or_default();
                let is_checkout = action.starts_with("actions/checkout@");
                // This uploads what was compiled elsewhere, and runs none of it.
                let runs = step["run"].as_str().unwrap_or_default().replace("cargo publish --no-verify", "");
                let runs_ours = ["./", ".ci/", "scripts/", "cargo ", "docker build", "npm install ."];
                let is_ours = is_checkout
                    || !calls(&runs).is_empty()
                    || runs_ours.iter().any(|ours| runs.replace("./package/", "").contains(ours));
                assert!(!(writes && is_ours), "{}: {job}: {step}", file.display());
                let keeps_token = is_checkout && step["with"]["persist-credentials"] != false;
                assert!(!keeps_token, "{}: {job}: {step}", file.display());
            }
        }
    }
    let publishes = ["attest", "crates", "npm", "publish", "pypi", "registry", "rubygems"];
    assert_eq!(writing.iter().collect::<Vec<_>>(), publishes, "the jobs that publish");
}

#[test]
fn an_advisory_in_any_lock_file_fails() {
    let dir = std::env::temp_dir().join(format!("redis-lock-advisories-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let advisories = |cargo: &str| {
        // A separate process writes it: a file that another thread has open for writing cannot be run.
        let script = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0/cargo\" && chmod 755 \"$0/cargo\" &&
            PATH=$0:$PATH exec make --silent advisories LANGUAGES=rust";
        let mut make = Command::new("sh");
        make.arg("-c").arg(script).arg(&dir).arg(cargo).current_dir(root()).env_remove("MAKEFLAGS");
        make.output().unwrap()
    };
    let output = advisories("echo \"$*\"");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("deny check advisories\n"), "{said}");
    let locks = ["Cargo.lock", "benches/clients/rust/Cargo.lock", "clients/rust/Cargo.lock", "fuzz/Cargo.lock"];
    for lock in locks {
        assert!(said.contains(&format!("\naudit --file {lock}\n")), "{lock}: {said}");
    }
    for fails in locks {
        let output = advisories(&format!("test \"$*\" != 'audit --file {fails}'"));
        assert!(!output.status.success(), "{fails}");
    }
    assert!(!advisories("test \"$1\" != deny || test \"$2\" = --version").status.success());
    let output = advisories("test \"$1\" != audit");
    assert!(String::from_utf8_lossy(&output.stderr).contains("'cargo install cargo-audit --locked' first"));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn dependabot_watches_existing_folders() {
    let Some(yaml) = parsed(&[root().join(".github/dependabot.yml")]) else { return };
    for update in yaml[0]["updates"].as_array().unwrap() {
        let file = match update["package-ecosystem"].as_str().unwrap() {
            "cargo" => "Cargo.toml",
            "github-actions" => ".github/workflows/ci.yml",
            "pip" => "requirements.txt",
            "npm" => "package.json",
            "gomod" => "go.mod",
            "maven" => "pom.xml",
            other => panic!("what does {other} look at?"),
        };
        let folders = update["directories"].as_array().cloned().unwrap_or_else(|| vec![update["directory"].clone()]);
        for folder in folders {
            let path = root().join(folder.as_str().unwrap().trim_start_matches('/')).join(file);
            assert!(path.is_file(), "{} is not there", path.display());
        }
    }
}

#[test]
fn a_subject_is_short_and_imperative() {
    let check = |subject: &str| run("scripts/subjects.sh", &format!("{subject}\n"));
    // Letters count, not bytes.
    for good in ["Fix the lease", "Use one clock", "Address a test of 7.0", &format!("F{}", "ü".repeat(71))] {
        let output = check(good);
        assert!(output.status.success(), "{good}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let cases = [
        (&*format!("F{}", "i".repeat(72)), "longer than 72 characters"),
        ("fix the lease", "no capital letter first"),
        ("fixup! Fix the lease", "no capital letter first"),
        ("WIP", "not ready"),
        ("Fix the lease.", "a full stop at the end"),
        ("Fixes the lease", "not in the imperative"),
        ("Updating the lease", "not in the imperative"),
        ("Dropped the lease", "not in the imperative"),
    ];
    for (bad, why) in cases {
        let output = check(bad);
        assert_eq!(output.status.code(), Some(1), "{bad}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("subjects: {why}: {bad}\n"));
    }
}

/// The files of that name below a folder, as tracked by git.
fn tracked(folder: &str, name: &str) -> Vec<String> {
    let output = Command::new("git").args(["ls-files", "--", folder]).current_dir(root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    files.lines().filter(|file| file.ends_with(&format!("/{name}"))).map(Into::into).collect()
}

#[test]
fn each_package_has_an_unchanged_copy_of_the_lua_file() {
    let source = read("portable/lock.lua");
    let copies = tracked("clients", "lock.lua");
    assert!(copies.len() >= 2, "clients/ has no copies: {copies:?}");
    let stale: Vec<&String> = copies.iter().filter(|copy| read(copy) != source).collect();
    assert!(stale.is_empty(), "these differ from portable/lock.lua, `make copies` refreshes them: {stale:?}");
}
