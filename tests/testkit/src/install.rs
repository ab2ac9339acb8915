//! Installs the clients of other languages, in the versions that `tests/clients` pins, under `target/clients`. If root
//! runs it on Debian, it also installs the small runtimes (Python, PHP); not Node, which needs hundreds of packages.
//!
//! Installed packages are reused. A folder is named after its content, and appears only when it is complete.
use crate::program::end_within;
use crate::{root, target, watch};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an installation may take over a slow network.
const PATIENCE: Duration = Duration::from_secs(120);

const REQUIREMENTS: &str = include_str!("../../clients/requirements.txt");
const PACKAGE: &str = include_str!("../../clients/package.json");

/// The folder with the programs and the versions.
pub fn sources() -> PathBuf {
    root().join("tests/clients")
}

/// A Python that has the packages in requirements.txt; else the reason why there is none.
pub fn python() -> Result<PathBuf, String> {
    let versions = REQUIREMENTS.split_whitespace().collect::<Vec<_>>().join("-").replace("==", "-");
    let dir = installed(&format!("python-{versions}"), |dir| {
        let venv = || run(Command::new("python3").args(["-m", "venv"]).arg(dir));
        venv().or_else(|error| debian(&["python3-venv"], &error).and_then(|()| venv()))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "-r"];
        run(Command::new(dir.join("bin/python")).args(pip).arg(sources().join("requirements.txt")))
    })?;
    Ok(dir.join("bin/python"))
}

/// A `PYTHONPATH` for [`python`] with these packages and no others: lines of `name==version`, including their
/// dependencies. This allows several versions of a package side by side.
pub fn python_path(pins: &str) -> Result<PathBuf, String> {
    let python = python()?;
    let pins: Vec<&str> = pins.split_whitespace().collect();
    installed(&format!("python-path-{}", pins.join("-").replace("==", "-")), |dir| {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"];
        run(Command::new(python).args(pip).arg("--target").arg(dir).args(pins))
    })
}

/// The `NODE_PATH` with the packages in package.json; else the reason why there is none.
pub fn node_path() -> Result<PathBuf, String> {
    node_path_with(PACKAGE)
}

/// Like [`node_path`], with another package.json.
pub fn node_path_with(package: &str) -> Result<PathBuf, String> {
    run(Command::new("node").arg("--version")).map_err(|error| format!("{error}; apt-get install nodejs npm"))?;
    let pins = package.lines().filter(|line| line.contains("redis") || line.contains("redlock"));
    let versions: Vec<String> = pins.map(|line| line.replace(": ", "-").replace(['"', ',', ' '], "")).collect();
    // Must not contain path characters, as `npm:redis-lock@0.0.9` does.
    let dir = installed(&format!("node-{}", versions.join("-").replace("npm:", "")), |dir| {
        fs::write(dir.join("package.json"), package).map_err(|error| error.to_string())?;
        run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(dir))
    })?;
    Ok(dir.join("node_modules"))
}

/// Compiles a crate with this Cargo.toml and this source. Returns its program, or the reason why there is none.
pub fn program(name: &str, cargo_toml: &str, source_name: &str, source: &str) -> Result<PathBuf, String> {
    let dir = installed(name, |dir| {
        let write = |name: &str, text| fs::write(dir.join(name), text).map_err(|error| error.to_string());
        write("Cargo.toml", cargo_toml)?;
        write(source_name, source)?;
        let build = dir.join("build");
        run(Command::new(env!("CARGO")).args(["build", "--quiet", "--target-dir"]).arg(&build).current_dir(dir))?;
        fs::rename(build.join("debug/locks"), dir.join("locks")).map_err(|error| error.to_string())?;
        fs::remove_dir_all(&build).map_err(|error| error.to_string())
    })?;
    Ok(dir.join("locks"))
}

/// The program of `go_redis`, built with the go-redis that its go.mod pins; else the reason why there is none.
pub fn go_redis() -> Result<PathBuf, String> {
    run(Command::new("go").arg("version")).map_err(|error| format!("{error}; https://go.dev/dl"))?;
    let program = target().join("clients/go-redis-waits");
    let _pause = watch::pause();
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(sources().join("go_redis"));
    // A Go that is too old fails at once, instead of fetching a newer one.
    run(build.env("GOTOOLCHAIN", "local").env("GO111MODULE", "on").env("GOFLAGS", ""))?;
    Ok(program)
}

/// The arguments of `java` for the program of `java_waits`, with the libraries that its pom.xml pins; else the reason
/// why there are none.
pub fn java_waits() -> Result<Vec<String>, String> {
    const POM: &str = include_str!("../../clients/java_waits/pom.xml");
    for tool in ["javac", "mvn"] {
        let hint = |error| format!("{error}; apt-get install default-jdk-headless maven");
        run(Command::new(tool).arg("-version")).map_err(hint)?;
    }
    let sources = sources().join("java_waits");
    let pins: Vec<&str> = POM.split("<version>").skip(2).filter_map(|rest| rest.split('<').next()).collect();
    let dir = installed(&format!("java-waits-{}", pins.join("-")), |dir| {
        let copied = format!("-DoutputDirectory={}", dir.join("lib").display());
        let pom = sources.join("pom.xml");
        run(Command::new("mvn").args(["-q", "-B", "-f"]).arg(pom).args(["dependency:copy-dependencies", &copied]))
    })?;
    let classes = target().join("clients/java-waits-classes");
    let mut compile = Command::new("javac");
    compile.arg("-cp").arg(dir.join("lib/*")).arg("-d").arg(&classes).arg(sources.join("Waits.java"));
    let compiled = run(&mut compile);
    // Java is installed, so the program has to compile.
    assert!(compiled.is_ok(), "{compiled:?}");
    Ok(vec!["-cp".into(), format!("{}/lib/*:{}", dir.display(), classes.display()), "Waits".into()])
}

/// A Ruby that has redis-rb; else what is missing.
pub fn ruby() -> Result<PathBuf, String> {
    let is_there = || run(Command::new("ruby").args(["-e", "require 'redis'"]));
    is_there().or_else(|error| debian(&["ruby", "ruby-redis"], &error).and_then(|()| is_there()))?;
    Ok("ruby".into())
}

/// A Ruby, and the options with which it loads redis-rb 5; else what is missing.
pub fn ruby_with_redis_5() -> Result<(PathBuf, Vec<OsString>), String> {
    let ruby = ruby()?;
    let gems = target().join("clients/redis-rb-5/usr/share/rubygems-integration/all/gems");
    let folders = fs::read_dir(gems).map_err(|_| "`scripts/test-clients.sh ruby` unpacks it".to_string())?;
    let libraries = folders.filter_map(Result::ok).map(|folder| folder.path().join("lib"));
    Ok((ruby, libraries.flat_map(|library| ["-I".into(), library.into()]).collect()))
}

/// A PHP that has phpredis and predis; else what is missing.
pub fn php() -> Result<PathBuf, String> {
    let is_there = || {
        let has_both =
            "exit(extension_loaded('redis') && stream_resolve_include_path('Predis/Autoloader.php') ? 0 : 1);";
        run(Command::new("php").args(["-r", has_both])).map_err(|error| format!("no phpredis or no predis: {error}"))
    };
    let packages = ["php-cli", "php-redis", "php-nrk-predis"];
    is_there().or_else(|error| debian(&packages, &error).and_then(|()| is_there()))?;
    Ok("php".into())
}

/// Prometheus' promtool; else what is missing.
pub fn promtool() -> Result<PathBuf, String> {
    unpacked("promtool", "prometheus")
}

/// Prometheus itself; else what is missing.
pub fn prometheus() -> Result<PathBuf, String> {
    unpacked("prometheus", "prometheus")
}

/// The exporter for Redis; else what is missing.
pub fn redis_exporter() -> Result<PathBuf, String> {
    if run(Command::new("redis_exporter").arg("--version")).is_ok() {
        return Ok("redis_exporter".into());
    }
    unpacked("prometheus-redis-exporter", "prometheus-redis-exporter")
}

/// An installed program, or the file from a Debian package: installing the package would start a service.
fn unpacked(program: &str, package: &str) -> Result<PathBuf, String> {
    if run(Command::new(program).arg("--version")).is_ok() {
        return Ok(program.into());
    }
    let unpack = "cd \"$0\" && get() { apt-get download -qq \"$package\"; } && package=$1 &&
        { get || { apt-get update -qq -o Acquire::http::Timeout=10; get; }; } &&
        dpkg-deb --fsys-tarfile \"$1\"_*.deb | tar -x \"./usr/bin/$2\" && rm \"$1\"_*.deb";
    let dir = installed(program, |dir| {
        let unpacked = run(Command::new("sh").args(["-c", unpack]).arg(dir).args([package, program]));
        unpacked.map_err(|error| format!("Debian's package {package} contains it: {error}"))
    })?;
    Ok(dir.join("usr/bin").join(program))
}

/// Installs Debian packages if possible; else says which are missing.
fn debian(packages: &[&str], missing: &str) -> Result<(), String> {
    let names = packages.join(" ");
    if !fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Err(format!("{missing}; run as root: apt-get install {names}"));
    }
    let install = format!(
        "install() {{ apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 {names}; }}
         install || {{ apt-get update -qq -o Acquire::http::Timeout=10; install; }}"
    );
    let installed = run(Command::new("sh").args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive"));
    installed.map_err(|error| format!("{missing}; apt-get install {names}: {error}"))
}

/// Failed installations, with the reason: they are not tried again. Parallel tests want the same folders.
static FAILED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The folder of that name, created by `install` if it is missing.
fn installed(name: &str, install: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let dir = target().join("clients").join(name);
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = failed.get(name) {
        return Err(why.clone());
    }
    if !dir.exists() {
        let _pause = watch::pause();
        // Under another name until complete: another process may be installing it too, or be killed.
        let draft = target().join("clients").join(format!("draft-{}-{name}", std::process::id()));
        fs::create_dir_all(&draft).map_err(|error| error.to_string())?;
        let made = install(&draft);
        if made.is_err() || fs::rename(&draft, &dir).is_err() {
            let _ = fs::remove_dir_all(&draft);
        }
        if let Err(why) = &made {
            failed.insert(name.into(), why.clone());
        }
        made?;
    }
    Ok(dir)
}

/// Runs a command. Returns its output if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let log = std::env::temp_dir().join(format!("redis-lock-install-{}-{thread}.log", std::process::id()));
    let file = fs::File::create(&log).map_err(|error| error.to_string())?;
    let also = file.try_clone().map_err(|error| error.to_string())?;
    let spawned = command.stdin(Stdio::null()).stdout(file).stderr(also).spawn();
    let mut child = spawned.map_err(|error| format!("{name} cannot be run: {error}"))?;
    let status = end_within(&mut child, PATIENCE);
    let said = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{name}: {status}: {}", said.trim())),
        None => Err(format!("{name} had not finished after {PATIENCE:?}: {}", said.trim())),
    }
}
