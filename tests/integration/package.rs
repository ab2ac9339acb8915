//! Installations and packages work: `make install`, `make package`, the life cycle of the Debian package, and the files
//! for containers.
//!
//! Everything happens in temporary folders; this machine's own servers are not touched.

mod containers;
mod debian;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::{module, temp_dir, write_program, Reply, Server};

const MODULE: &str = "usr/lib/redis/modules/libredis_lock.so";
const CONF: &str = "etc/redis/redis.conf";
/// Like Debian's: a configuration that is not world-readable.
const CONF_TEXT: &str = "# A server.\nport 6379\nmaxmemory 1gb\n";

/// A folder that acts as the root of a system, with a server's configuration; removed when dropped.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        let root = Root(temp_dir());
        fs::create_dir_all(root.path("etc/redis")).unwrap();
        fs::write(root.path(CONF), CONF_TEXT).unwrap();
        fs::set_permissions(root.path(CONF), fs::Permissions::from_mode(0o640)).unwrap();
        root
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside)
    }

    fn conf(&self) -> String {
        fs::read_to_string(self.path(CONF)).unwrap()
    }

    fn backup(&self) -> PathBuf {
        self.path(&format!("{CONF}.before-redis-lock"))
    }

    /// `make TARGET` into this root, with the module under test.
    fn make(&self, target: &str) -> Output {
        self.make_with(target, &[])
    }

    fn make_with(&self, target: &str, settings: &[&str]) -> Output {
        run(command("make")
            .args(["--silent", "--no-print-directory", target])
            .args(settings)
            .arg(format!("DESTDIR={}", self.0.display()))
            .env("MODULE", module()))
    }

    /// `redis-lock-module` from the source tree, on this root's configurations.
    fn line(&self, args: &[&str]) -> Output {
        run(command("packaging/redis-lock-module").arg(args[0]).arg("--root").arg(&self.0).args(&args[1..]))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command in the project's root folder, without the variables set by the tests' own make.
///
/// As a safeguard it has a DESTDIR: a test that does not set one must not install into this machine.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PREFIX", "MODULEDIR", "CONF"] {
        command.env_remove(name);
    }
    command.env("DESTDIR", std::env::temp_dir().join("redis-lock-stray")).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The command's output; panics if it failed.
fn said(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// The command's error; panics if it succeeded.
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn load_lines(conf: &str) -> Vec<&str> {
    conf.lines().filter(|line| line.starts_with("loadmodule ")).collect()
}

/// A server loads this file, and a lock can be taken.
fn loads(file: &Path) -> Server {
    let server = Server::with().without_module().args(&["--loadmodule", file.to_str().unwrap()]).start();
    assert!(server.conn().int(&["LOCK.ACQUIRE", "k", "EX", "60"]) > 0);
    server
}

#[test]
fn uninstall_restores_the_configuration_byte_for_byte() {
    let root = Root::new();
    said(&root.make("install"));
    assert_eq!(fs::read(root.path(MODULE)).unwrap(), fs::read(module()).unwrap());
    let installed = root.conf();
    assert!(installed.starts_with(CONF_TEXT), "{installed}");
    assert_eq!(load_lines(&installed), ["loadmodule /usr/lib/redis/modules/libredis_lock.so"]);
    assert_eq!(fs::read_to_string(root.backup()).unwrap(), CONF_TEXT);
    assert_eq!(fs::metadata(root.path(CONF)).unwrap().mode() & 0o7777, 0o640);

    said(&root.make("install"));
    assert_eq!(root.conf(), installed, "the second installation changes nothing");

    said(&root.make("uninstall"));
    assert_eq!(root.conf(), CONF_TEXT);
    let left: Vec<_> = fs::read_dir(root.path("etc/redis")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["redis.conf"]);
    assert!(!root.path("usr/lib/redis").exists(), "the folders that the installation made are gone too");
    said(&root.make("uninstall"));
}

#[test]
fn install_goes_where_moduledir_and_conf_say() {
    let root = Root::new();
    fs::create_dir_all(root.path("srv")).unwrap();
    fs::write(root.path("srv/one.conf"), "port 7001").unwrap();
    let make = |target| root.make_with(target, &["MODULEDIR=/opt/modules", "CONF=/srv/one.conf"]);
    said(&make("install"));
    assert!(root.path("opt/modules/libredis_lock.so").is_file());
    assert_eq!(root.conf(), CONF_TEXT, "not named, not touched");
    let conf = fs::read_to_string(root.path("srv/one.conf")).unwrap();
    // The last line had no newline: the new line must not be joined to it.
    assert!(conf.starts_with("port 7001\n"), "{conf}");
    assert_eq!(load_lines(&conf), ["loadmodule /opt/modules/libredis_lock.so"]);
    said(&make("uninstall"));
    assert_eq!(fs::read_to_string(root.path("srv/one.conf")).unwrap(), "port 7001\n");
    assert!(!root.path("opt/modules").exists());
}

/// Debian's units let servers run code from there, and from neither /usr/local nor /opt.
#[test]
fn documented_paths_work_with_debians_unit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("redis.conf"), root.join("README.md"), root.join("SECURITY.md")];
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    let mut found = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for path in text.split([' ', '\n', '`', '"', '\'']).filter(|word| word.ends_with("libredis_lock.so")) {
            if path.starts_with('/') && !path.starts_with("/path/to/") {
                assert_eq!(path, format!("/{MODULE}"), "{}", file.display());
                found += 1;
            }
        }
    }
    assert!(found > 3, "{found}");
}

#[test]
fn make_passes_its_port_to_the_cluster() {
    // Nothing is built: the command is refused before a server starts.
    let make = |args: &[&str], port: Option<&str>| {
        let mut make = command("make");
        make.args(["--silent", "--no-print-directory", "--old-file=build", "cluster"]).args(args);
        make.env_remove("PORT").env_remove("CLUSTER_PORT").env("LOCK_MODULE", "/dev/null");
        refused(&run(make.envs(port.map(|port| ("PORT", port)))))
    };
    assert!(make(&["PORT=80"], None).contains("between 1024 and 55530, not 80"));
    assert!(make(&[], Some("81")).contains("between 1024 and 55530, not 81"));
    assert!(make(&["PORT=x y"], None).contains("a number, not 'x y'"));
    assert!(make(&["CLUSTER_PORT=82"], None).contains("between 1024 and 55530, not 82"));
}

#[test]
fn a_missing_rustup_skips_arm64_in_one_line() {
    let dir = temp_dir();
    for tool in ["dirname", "sh"] {
        let found = run(command("sh").args(["-c", "command -v \"$0\"", tool]));
        symlink(said(&found).trim(), dir.join(tool)).unwrap();
    }
    // A compiler that supports only this machine.
    write_program(&dir.join("rustc"), "#!/bin/sh\necho /nowhere\n");
    let check = |kind: &str| {
        write_program(&dir.join("uname"), &format!("#!/bin/sh\necho {kind}\n"));
        run(command("/bin/sh").args(["scripts/arm64.sh", "check"]).env("PATH", &dir).env("CARGO_HOME", "/nowhere"))
    };
    let output = check("x86_64");
    let text = refused(&output);
    assert!(text.starts_with("arm64: skipped, ARM64 is not compiled: it needs rustup"), "{text}");
    assert_eq!((text.lines().count(), output.status.code()), (1, Some(3)), "{text}");
    assert_eq!(said(&check("aarch64")), "", "on ARM64 all other checks test it anyway");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn missing_arm64_is_skipped_at_home_and_fails_in_ci() {
    let dir = temp_dir();
    for tool in ["make", "dirname", "sh", "nproc", "expr"] {
        let found = run(command("sh").args(["-c", "command -v \"$0\"", tool]));
        symlink(said(&found).trim(), dir.join(tool)).unwrap();
    }
    write_program(&dir.join("rustc"), "#!/bin/sh\necho /nowhere\n");
    let make = |ci: Option<&str>| {
        let mut make = command(dir.join("make"));
        make.args(["--silent", "--no-print-directory", "--old-file=install-deps", "test-arm64"]);
        make.env_remove("CI").envs(ci.map(|ci| ("CI", ci)));
        run(make.env("PATH", &dir).env("HOME", "/nowhere").env("CARGO_HOME", "/nowhere"))
    };
    let why = "arm64: skipped, ARM64 is not tested: it needs rustup";
    assert!(said(&make(None)).starts_with(why));
    assert!(refused(&make(Some("true"))).starts_with(why));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn without_root_one_line_says_so() {
    let root = Root::new();
    let bin = temp_dir();
    // A user other than the one that runs the tests; if this were ignored, everything would still go into this folder.
    write_program(&bin.join("id"), "#!/bin/sh\necho 1000\n");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = run(command("scripts/install.sh")
        .arg("install")
        .env("PATH", path)
        .env("DESTDIR", "")
        .env("MODULE", module())
        .env("MODULEDIR", root.path("modules"))
        .env("CONF", root.path(CONF)));
    let text = refused(&output);
    assert!(text.starts_with("install: not root: ") && text.lines().count() == 1, "{text}");
    assert!(!root.path("modules").exists());
    assert_eq!(root.conf(), CONF_TEXT);
    fs::remove_dir_all(bin).unwrap();
}

#[test]
fn a_server_survives_a_replaced_module_file() {
    let root = Root::new();
    said(&root.make("install"));
    let server = loads(&root.path(MODULE));
    let inode = fs::metadata(root.path(MODULE)).unwrap().ino();
    said(&root.make("install"));
    assert_ne!(fs::metadata(root.path(MODULE)).unwrap().ino(), inode, "it is a new file, not the old one overwritten");
    let mut conn = server.conn();
    assert!(conn.int(&["LOCK.ACQUIRE", "other", "EX", "60"]) > 0);
    said(&root.make("uninstall"));
    assert!(conn.int(&["LOCK.ACQUIRE", "another", "EX", "60"]) > 0);
}

#[test]
fn a_server_that_rewrote_its_configuration_starts_again() {
    let dir = temp_dir();
    let conf = dir.join("redis.conf");
    fs::write(&conf, "maxclients 100\n").unwrap();
    let module = module().to_str().unwrap();
    let line = |action| run(command("packaging/redis-lock-module").args([action, "--module", module]).arg(&conf));
    let start = || Server::with().without_module().config(&conf).dir(&dir).connected();
    let margin = ["CONFIG", "GET", "lock.margin-ms"];

    said(&line("enable"));
    let (server, mut conn) = start();
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    // Redis 6 has no module settings in CONFIG.
    let settings = conn.execute(&margin) != Reply::List(vec![]);
    if settings {
        conn.ok(&["CONFIG", "SET", "lock.margin-ms", "250"]);
    }
    conn.ok(&["CONFIG", "REWRITE"]);
    drop(server);
    said(&line("enable"));
    let text = fs::read_to_string(&conf).unwrap();
    assert_eq!(load_lines(&text).len(), 1, "{text}");
    start().1.int(&["LOCK.ACQUIRE", "k2", "EX", "60"]);

    // A server does not start with settings for a module that is not loaded.
    said(&line("disable"));
    assert!(matches!(start().1.execute(&["LOCK.ACQUIRE", "k", "EX", "60"]), Reply::Error(_)));

    said(&line("enable"));
    let (_server, mut conn) = start();
    if settings {
        assert_eq!(conn.execute(&margin).field("lock.margin-ms").text(), "250");
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_module_that_is_loaded_already_is_not_loaded_twice() {
    let root = Root::new();
    said(&root.make("install"));
    let here = "loadmodule \"/usr/lib/redis/modules/libredis_lock.so\" margin-ms 5\n";
    fs::create_dir_all(root.path("etc/redis/more")).unwrap();
    fs::write(root.path("etc/redis/more/lock.conf"), here).unwrap();
    let including = format!("{CONF_TEXT}include /etc/redis/more/*.conf\n");
    for conf in [format!("{CONF_TEXT}  LoadModule{}", &here[10..]), including.clone()] {
        fs::write(root.path(CONF), &conf).unwrap();
        assert!(said(&root.line(&["enable"])).contains("loads it already"));
        assert_eq!(root.conf(), conf);
        said(&root.line(&["status"]));
    }
    // The tool must not guess which file has the line, but must warn that the server would not start.
    assert!(refused(&root.line(&["disable"])).contains("includes a file that loads it"));
    assert_eq!(root.conf(), including);

    let elsewhere = format!("{CONF_TEXT}loadmodule /opt/libredis_lock.so\n");
    fs::write(root.path(CONF), &elsewhere).unwrap();
    assert!(refused(&root.line(&["enable"])).contains("/opt/libredis_lock.so"));
    assert_eq!(root.conf(), elsewhere);
}

#[test]
fn a_linked_or_broken_configuration_is_left_alone() {
    let root = Root::new();
    assert!(refused(&root.line(&["enable"])).contains("is not there"), "the module is not there");
    assert_eq!(root.conf(), CONF_TEXT);

    said(&root.make("install"));
    said(&root.line(&["disable"]));
    let precious = root.path("precious");
    fs::write(&precious, "not a configuration\n").unwrap();
    // The owner of the configuration's folder can put links into it; root must not write through them.
    symlink(&precious, root.backup()).unwrap();
    said(&root.line(&["enable"]));
    fs::remove_file(root.path(CONF)).unwrap();
    symlink(&precious, root.path(CONF)).unwrap();
    assert!(refused(&root.line(&["enable"])).contains("is a link"));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "not a configuration\n");
}

#[test]
fn a_missing_cargo_is_named_with_its_version() {
    let dir = temp_dir();
    for tool in ["make", "cc", "sed", "dirname", "id"] {
        let found = run(command("sh").args(["-c", "command -v \"$0\"", tool]));
        symlink(said(&found).trim(), dir.join(tool)).unwrap();
    }
    symlink("/bin/true", dir.join("server")).unwrap();
    let output = run(command("/bin/sh")
        .arg("scripts/install-deps.sh")
        .env("PATH", &dir)
        .env("REDIS_SERVER", dir.join("server")));
    let text = refused(&output);
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    assert!(text.contains(&format!("install Rust {rust} or later")), "{text}");
    fs::remove_dir_all(&dir).unwrap();
}
