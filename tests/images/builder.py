"""The stage `build` of the Dockerfile, carried out in a Debian tree with little more than gcc.

Rust is this machine's: its folders are mounted where the image of Rust has them. So are the settings of its network.
"""

import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "images"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NETWORK = re.compile(r"(?i).*_proxy|pip_.*|ssl_cert_.*|cargo_(http|registr).*|rustup_(dist|update).*")
# An image of Debian lacks these; that of Rust has more.
COMPILER = "gcc,libc6-dev,ca-certificates"


def stages():
    """The instructions of each stage, as pairs. The last stage has no name."""
    text = (ROOT / "packaging/container/Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            instructions = found[rest.partition(" AS ")[2]] = []
        elif found:
            instructions.append((word, rest.strip()))
    return found


def debian(name, packages):
    """A Debian tree with these packages. It stays for later runs."""
    tree = FOLDER / name
    stamp = tree / "complete"
    if not stamp.exists() or stamp.read_text() != packages:
        shutil.rmtree(tree, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(tree), MIRROR]
        subprocess.run(command, check=True, stdout=sys.stderr)
        stamp.write_text(packages)
    return tree


def run(tree, folder, step):
    """Carries out the step of a RUN in the tree."""
    home = pathlib.Path.home()
    mounts = {
        "/usr/local/rustup": os.environ.get("RUSTUP_HOME", home / ".rustup"),
        "/usr/local/cargo": os.environ.get("CARGO_HOME", home / ".cargo"),
        **{path: path for path in ("/dev", "/proc", "/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs")},
    }
    words = ["set -e"]
    for target, source in mounts.items():
        if not (source := pathlib.Path(source)).exists():
            continue
        place = tree / target.lstrip("/")
        if source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        words.append(shlex.join(["mount", "--rbind", str(source.resolve()), str(place)]))
    words.append(shlex.join(["exec", "chroot", str(tree), "sh", "-c", f"cd {folder} && {step}"]))
    environment = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    environment |= {"RUSTUP_HOME": "/usr/local/rustup", "CARGO_HOME": "/usr/local/cargo", "HOME": "/root"}
    environment["PATH"] = f"/usr/local/cargo/bin:{PATH}"
    command = ["unshare", "--mount", "sh", "-c", "\n".join(words)]
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)


def copy_sources(target):
    """`COPY . .`: the sources without what Dockerfile.dockerignore names. The target folder of an earlier build stays."""
    target.mkdir(exist_ok=True)
    for path in target.iterdir():
        if path.name != "target":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    ignored = (ROOT / "packaging/container/Dockerfile.dockerignore").read_text().split()
    options = ["--anchored", *(f"--exclude=./{name}" for name in ignored)]
    copy = f"tar {shlex.join(options)} -c . | tar -x -C {shlex.quote(str(target))}"
    subprocess.run(["sh", "-c", copy], cwd=ROOT, check=True)


@functools.cache
def build(libc):
    """The module that the stage makes for a server with this C library."""
    if built := os.environ.get(f"{libc.upper()}_MODULE"):
        return pathlib.Path(built)
    if not shutil.which("rustup"):
        raise unittest.SkipTest("rustup is missing")
    tree = debian("build", COMPILER)
    folder = "/"
    for word, rest in stages()["build"]:
        if word == "WORKDIR":
            folder = rest
        elif word == "RUN":
            run(tree, folder, rest)
        elif rest == ". .":
            copy_sources(tree / folder.lstrip("/"))
        elif rest == "--from=server /tmp/libc libc":
            (tree / folder.lstrip("/") / "libc").write_text(f"{libc}\n")
        else:
            raise AssertionError(f"this test does not know {word} {rest}")
    module = FOLDER / f"{libc}.so"
    shutil.copyfile(tree / folder.lstrip("/") / "libredis_lock.so", module)
    return module
