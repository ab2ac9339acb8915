//! The archive and the Debian package: their contents load, and dpkg can install, upgrade, remove and purge.
//!
//! dpkg works on an empty root with its own database, and runs the package's scripts with `DPKG_ROOT`.

use super::{
    command, load_lines, loads, module, refused, run, said, temp_dir, write_program, Root, CONF, CONF_TEXT, MODULE,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Any program on this machine: it stands in for lock-top, which is not built for these tests.
const LOCK_TOP: &str = "/bin/true";

/// Runs `make package` on the module under test, into a new folder.
fn package() -> PathBuf {
    let dir = temp_dir();
    said(&run(command("scripts/package.sh")
        .env("MODULE", module())
        .env("LOCK_TOP", LOCK_TOP)
        .env("PACKAGE_DIR", &dir)
        .env("SOURCE_DATE_EPOCH", "1700000000")));
    dir
}

fn find(dir: &Path, suffix: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.to_str().unwrap().ends_with(suffix) && !path.to_str().unwrap().contains("-debug"))
}

#[test]
fn the_archive_loads_and_is_the_same_each_time() {
    let (dir, again) = (package(), package());
    let sums = fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
    assert_eq!(sums, fs::read_to_string(again.join("SHA256SUMS")).unwrap());
    said(&run(command("sh").args(["-c", "cd \"$0\" && sha256sum --check --strict SHA256SUMS"]).arg(&dir)));
    let version = env!("CARGO_PKG_VERSION");
    assert!(sums.contains(&format!("redis-lock-{version}-")), "{sums}");

    if let Some(sbom) = find(&dir, ".cdx.json") {
        let left = ["sbom.json", "core/sbom.json", "tools/lock-top/sbom.json"]
            .into_iter()
            .find(|file| Path::new(file).exists());
        assert_eq!(left, None, "nothing is left in the sources");
        let sbom = fs::read_to_string(sbom).unwrap();
        assert!(sbom.contains("pkg:cargo/redis-module@") && !sbom.contains(env!("CARGO_MANIFEST_DIR")), "{sbom}");
    } else {
        eprintln!("skipped: the SBOM, because cargo-cyclonedx is not installed");
    }

    // The archive: install.sh finds the module beside itself.
    let archive = find(&dir, ".tar.gz").expect("an archive");
    said(&run(command("tar").arg("-xzf").arg(&archive).arg("-C").arg(&dir)));
    let inside = dir.join(archive.file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.gz"));
    for file in ["README.md", "SECURITY.md", "LICENSE", "THIRD-PARTY-LICENSES.txt", "redis.conf", "docs/DESIGN.md"] {
        assert!(fs::metadata(inside.join(file)).unwrap().len() > 1000, "{file}");
    }
    let library = fs::read("portable/lock.lua").unwrap();
    assert_eq!(fs::read(inside.join("portable/lock.lua")).unwrap(), library);
    let has_lock_top = |file: PathBuf| {
        assert_eq!(fs::read(&file).unwrap(), fs::read(LOCK_TOP).unwrap());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o755);
    };
    has_lock_top(inside.join("lock-top"));
    assert!(inside.join("packaging/lock-top.1").exists());
    let licences = fs::read_to_string(inside.join("THIRD-PARTY-LICENSES.txt")).unwrap();
    assert!(licences.contains("\nredis-module-") && licences.contains("BSD 3-Clause License"), "{licences}");
    assert!(licences.contains("\nratatui-") && !licences.contains(env!("CARGO_MANIFEST_DIR")), "{licences}");
    let root = Root::new();
    said(&run(command(inside.join("scripts/install.sh")).arg("install").env("DESTDIR", &root.0)));
    assert_eq!(fs::read(root.path(MODULE)).unwrap(), fs::read(inside.join("libredis_lock.so")).unwrap());
    assert_eq!(load_lines(&root.conf()).len(), 1);
    drop(loads(&root.path(MODULE)));

    if let Some(deb) = find(&dir, ".deb") {
        said(&run(command("dpkg-deb").arg("-x").arg(&deb).arg(dir.join("deb"))));
        drop(loads(&dir.join("deb").join(MODULE)));
        assert!(dir.join("deb/usr/share/doc/redis-lock/SECURITY.md").exists());
        has_lock_top(dir.join("deb/usr/bin/lock-top"));
        assert!(dir.join("deb/usr/share/man/man1/lock-top.1.gz").exists());
        assert_eq!(fs::read(dir.join("deb/usr/share/redis-lock/lock.lua")).unwrap(), library);
        assert!(dir.join("deb/usr/share/doc/redis-lock/examples/grafana/alerts.yml").exists());
        let field = |name| said(&run(command("dpkg-deb").arg("-f").arg(&deb).arg(name))).trim().to_string();
        assert_eq!(field("Version"), format!("{version}-1"));
        assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
        assert!(field("Depends").contains("redis-server (>= 5:6.2) | valkey-server"), "{}", field("Depends"));
    } else {
        eprintln!("skipped: the Debian package, because dpkg-deb is not installed");
    }
    for dir in [dir, again] {
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn complete_fails_if_anything_is_left_out() {
    let dir = temp_dir();
    // A cargo without cargo-cyclonedx.
    let text = format!("#!/bin/sh\n[ \"$1\" != cyclonedx ] || exit 101\nexec {} \"$@\"\n", env!("CARGO"));
    write_program(&dir.join("cargo"), &text);
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let pack = |complete: &str| {
        let mut pack = command("scripts/package.sh");
        pack.env("MODULE", module()).env("LOCK_TOP", LOCK_TOP).env("PACKAGE_DIR", dir.join("packed"));
        run(pack.env("PATH", &path).env("COMPLETE", complete))
    };
    assert!(said(&pack("")).contains("package: no SBOM: "));
    assert!(refused(&pack("1")).contains("package: no SBOM: "));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_lock_top_manual_names_existing_options_and_keys() {
    let manual = fs::read_to_string("packaging/lock-top.1").unwrap();
    let help = fs::read_to_string("tools/lock-top/src/options.rs").unwrap();
    let manual = manual.replace("\\-", "-");
    let words = manual.split(|letter: char| !(letter.is_ascii_lowercase() || letter == '-'));
    let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    assert!(options.len() > 7, "{options:?}");
    for option in options {
        assert!(help.contains(option), "{option}");
    }
}

/// A module with a local path would have different bytes when it is built in another folder.
#[test]
fn a_module_with_a_local_path_is_not_packed() {
    let dir = temp_dir();
    let (bin, target, out) = (dir.join("bin"), dir.join("target"), dir.join("out"));
    fs::create_dir(&bin).unwrap();
    // A cargo whose module contains the path of its target folder, as if no path had been replaced.
    let built = target.join("package-build/release/libredis_lock.so");
    let cargo = format!(
        "#!/bin/sh\nmkdir -p \"$(dirname {0})\"\nprintf 'x\\0{1}/generated.rs\\0' >{0}\n\
         printf '%s\\n%s\\n' \"$CARGO_ENCODED_RUSTFLAGS\" \"$CFLAGS\" >{2}/flags\n",
        built.display(),
        target.display(),
        dir.display()
    );
    write_program(&bin.join("cargo"), &cargo);
    // So the test works on machines where cargo-zigbuild is installed, too.
    write_program(&bin.join("cargo-zigbuild"), "#!/bin/sh\n");
    let output = run(command("scripts/package.sh")
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("CARGO_TARGET_DIR", &target)
        .env("PACKAGE_DIR", &out)
        .env("NATIVE_ONLY", "1")
        .env("ZIG", "0")
        .env_remove("MODULE"));
    let text = refused(&output);
    assert!(text.contains(&format!("names a path of this machine, {}", target.display())), "{text}");
    let flags = fs::read_to_string(dir.join("flags")).unwrap();
    for flag in ["--remap-path-prefix", "-ffile-prefix-map"] {
        assert!(flags.contains(&format!("{flag}={}=/redis-lock/target", target.display())), "{flags}");
    }
    assert!(!out.exists(), "nothing is packed");
    fs::remove_dir_all(dir).unwrap();
}

impl Root {
    fn dpkg(&self, args: &[&str]) -> String {
        let admin = self.path("var/lib/dpkg");
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(admin.join(folder)).unwrap();
        }
        if !admin.join("status").exists() {
            fs::write(admin.join("status"), "").unwrap();
        }
        // The servers are not in this root, and dpkg does not have to run as root there.
        let force = "--force-script-chrootless,not-root,depends,bad-path";
        let output = run(command("dpkg")
            .arg(format!("--root={}", self.0.display()))
            .arg(format!("--log={}", self.path("dpkg.log").display()))
            .arg(force)
            .args(args));
        said(&output)
    }

    fn is_known_to_dpkg(&self) -> bool {
        fs::read_to_string(self.path("var/lib/dpkg/status")).unwrap().contains("Package: redis-lock")
    }
}

/// The same package, with a later version.
fn later(deb: &Path, dir: &Path) -> PathBuf {
    let tree = dir.join("later");
    let to = dir.join("later.deb");
    let script = "dpkg-deb -R \"$0\" \"$1\" && sed -i 's/^Version: .*/Version: 99.0.0-1/' \"$1/DEBIAN/control\" \
                  && dpkg-deb --root-owner-group -b \"$1\" \"$2\"";
    said(&run(command("sh").args(["-c", script]).args([deb, &tree, &to])));
    to
}

#[test]
fn the_debian_package_can_be_installed_upgraded_removed_and_purged() {
    let dir = package();
    let Some(deb) = find(&dir, ".deb") else {
        eprintln!("skipped: the Debian package, because dpkg-deb is not installed");
        return;
    };
    let later = later(&deb, &dir);
    let (deb, later) = (deb.to_str().unwrap(), later.to_str().unwrap());
    let root = Root::new();

    // The configuration belongs to another package, so it is untouched until the administrator says otherwise.
    let text = root.dpkg(&["-i", deb]);
    assert!(text.contains("redis-lock-module enable"), "{text}");
    assert_eq!(root.conf(), CONF_TEXT);
    let enable = || {
        let tool = root.path("usr/sbin/redis-lock-module");
        said(&run(command(tool).arg("enable").arg("--root").arg(&root.0)))
    };
    enable();
    let enabled = root.conf();
    assert_eq!(load_lines(&enabled), [format!("loadmodule /{MODULE}")]);

    let text = root.dpkg(&["-i", later]);
    assert!(text.contains("until you restart it"), "{text}");
    root.dpkg(&["-i", later]);
    assert_eq!(root.conf(), enabled);
    assert!(root.path(MODULE).is_file());

    // No server may be left with a line, or with settings, that keep it from starting.
    fs::write(root.path(CONF), format!("{enabled}lock.margin-ms 250\n")).unwrap();
    root.dpkg(&["-r", "redis-lock"]);
    assert!(load_lines(&root.conf()).is_empty(), "{}", root.conf());
    assert!(!root.conf().lines().any(|line| line.starts_with("lock.")), "{}", root.conf());
    assert!(!root.path(MODULE).exists());

    root.dpkg(&["-i", deb]);
    enable();
    assert!(root.conf().contains("\nlock.margin-ms 250\n"), "{}", root.conf());
    fs::write(root.path(CONF), &enabled).unwrap();
    assert!(root.backup().exists());
    root.dpkg(&["-P", "redis-lock"]);
    assert_eq!(root.conf(), CONF_TEXT);
    assert!(!root.backup().exists());
    assert!(!root.is_known_to_dpkg());
    for gone in ["usr/lib/redis", "usr/share/doc/redis-lock", "usr/share/redis-lock", "usr/sbin/redis-lock-module"] {
        assert!(!root.path(gone).exists(), "{gone}");
    }
    assert!(root.path(CONF).is_file());
    fs::remove_dir_all(&dir).unwrap();
}
