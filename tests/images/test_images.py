"""packaging/container/Dockerfile: what it makes of Debian and musl bases starts without root, and its health check
fails whenever a lock could not be had.

The tests read the Dockerfile, and carry out its steps in copies of a Debian tree that debootstrap makes, with the
server of Debian or of .servers. They need root, for debootstrap, chroot and namespaces. GLIBC_MODULE and MUSL_MODULE
name modules that are built already; otherwise the stage that builds one is carried out as well (builder.py).
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from builder import PATH, ROOT, build, debian, stages

DEADLINE = 120  # more than ten times what a start takes
# A new network namespace has a loopback interface that is down: SIOCSIFFLAGS with IFF_UP.
INSIDE = """import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh22x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])"""
# What the images of Redis and Valkey have as their entry point, as far as the Dockerfile relies on it.
ENTRY_POINT = '#!/bin/sh\ncase $1 in -*) set -- SERVER "$@" ;; esac\nexec "$@"\n'


def eventually(what, condition):
    end = time.monotonic() + DEADLINE
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.1)
    return result


def base():
    """A Debian tree with a server, and Debian's musl for the other base."""
    tree = debian("base", "redis-server,musl")
    # The images of Redis and Valkey give their user this number.
    add = "getent passwd 999 || useradd -r -u 999 -U lock"
    subprocess.run(["chroot", tree, "sh", "-c", add], check=True, stdout=sys.stderr)
    return tree


class Image:
    """A base with the instructions of a stage carried out in it."""

    def __init__(self, case, tree, stage, module):
        self.tree = tree
        self.settings = {}
        for word, rest in stages()[stage]:
            if word == "COPY":
                *options, source, target = shlex.split(rest)
                case.assertIn("--from=build", options)
                case.assertEqual(source, "/redis-lock/libredis_lock.so")
                copy = tree / target.lstrip("/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(module, copy)
                copy.chmod(int(dict(option.split("=") for option in options)["--chmod"], 8))
            elif word == "RUN":
                subprocess.run(["chroot", tree, "sh", "-c", rest], check=True, env={"PATH": PATH})
            else:
                self.settings[word] = rest

    def inside(self, *command):
        return ["chroot", f"--userspec={self.settings['USER']}", str(self.tree), "env", "-i", f"PATH={PATH}", *command]

    @contextlib.contextmanager
    def run(self, *arguments):
        """A container with these arguments, or with those of CMD."""
        arguments = arguments or json.loads(self.settings["CMD"])
        command = self.inside("sh", "-c", 'cd /data && exec /entry-point "$@"', "sh", *arguments)
        namespaces = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen([*namespaces, sys.executable, "-c", INSIDE, *command], stdout=log, stderr=log)
            try:
                yield Container(self, process)
            except AssertionError:
                log.seek(0)
                print(log.read(), file=sys.stderr)
                raise
            finally:
                process.kill()
                process.wait()


class Container:
    def __init__(self, image, process):
        self.image = image
        self.process = process

    def server(self):
        """The server's process ID outside of the container."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return int(pathlib.Path(children).read_text().split()[0])

    def call(self, *words, timeout=None):
        command = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *self.image.inside(*words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def is_healthy(self):
        options, command = self.image.settings["HEALTHCHECK"].split(" CMD ")
        timeout = re.search(r"--timeout=(\d+)s", options)
        try:
            return self.call("sh", "-c", command.strip(), timeout=int(timeout[1])).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def replies(self, *words):
        return self.call("redis-cli", *words).stdout.strip()


class Images:
    """The tests of one base."""

    libc = "glibc"
    server = "redis-server"

    @classmethod
    def setUpClass(cls):
        cls.tree = pathlib.Path(tempfile.mkdtemp(prefix="redis-lock-image-"))
        cls.addClassCleanup(shutil.rmtree, cls.tree)
        subprocess.run(["cp", "-a", f"{base()}/.", cls.tree], check=True)
        (cls.tree / "data").mkdir()
        shutil.chown(cls.tree / "data", 999, 999)
        (cls.tree / "entry-point").write_text(ENTRY_POINT.replace("SERVER", cls.server))
        (cls.tree / "entry-point").chmod(0o755)
        cls.install()
        (step,) = [rest for word, rest in stages()["server"] if word == "RUN"]
        subprocess.run(["chroot", cls.tree, "sh", "-c", step], check=True, env={"PATH": PATH})
        found = (cls.tree / "tmp/libc").read_text().strip()
        if found != cls.libc:
            raise AssertionError(f"the Dockerfile takes the C library for {found}, not {cls.libc}")
        cls.module = build(found)

    @classmethod
    def install(cls):
        for loader in cls.tree.glob("lib/ld-musl-*"):
            loader.unlink()

    def setUp(self):
        for file in (self.tree / "data").iterdir():
            file.unlink()
        self.image = Image(self, self.tree, "", self.module)

    def test_the_server_runs_without_root_and_is_healthy(self):
        with self.image.run() as container:
            eventually("it is healthy", container.is_healthy)
            status = pathlib.Path(f"/proc/{container.server()}/status").read_text()
            self.assertIn("Uid:\t999\t999\t999\t999\n", status)
            self.assertNotIn("Gid:\t0", status)
            self.assertRegex(container.replies("LOCK.ACQUIRE", "k", "EX", "60"), r"^\d+$")
            os.kill(container.server(), signal.SIGSTOP)
            self.assertFalse(container.is_healthy(), "it does not reply")
            os.kill(container.server(), signal.SIGKILL)
            self.assertFalse(container.is_healthy(), "it has ended")

    def test_without_the_module_it_is_not_healthy(self):
        with self.image.run("--save", "") as container:
            eventually("it replies", lambda: container.replies("PING") == "PONG")
            self.assertFalse(container.is_healthy())

    def test_while_it_loads_it_is_not_healthy(self):
        command = json.loads(self.image.settings["CMD"])
        with self.image.run(*command, "--rdbcompression", "no") as container:
            eventually("it is healthy", container.is_healthy)
            fill = "for i = 1, 500 do redis.call('SET', i, string.rep('x', 2000)) end"
            container.replies("EVAL", fill, "0")
            self.assertEqual(container.replies("SAVE"), "OK")
        # Half a second for each key.
        slow = ["--key-load-delay", "500000", "--loading-process-events-interval-bytes", "1024"]
        with self.image.run(*command, *slow) as container:
            eventually("it is loading", lambda: container.replies("PING").startswith("LOADING"))
            self.assertFalse(container.is_healthy())

    def test_a_server_with_a_password_is_healthy_for_those_who_have_it(self):
        command = json.loads(self.image.settings["CMD"])
        with self.image.run(*command, "--requirepass", "secret") as container:
            eventually("it replies", lambda: container.replies("PING").startswith("NOAUTH"))
            self.assertFalse(container.is_healthy())
            inside = container.image.inside
            container.image.inside = lambda *words: inside("REDISCLI_AUTH=secret", *words)
            eventually("it is healthy", container.is_healthy)

    def test_an_init_container_copies_the_module(self):
        image = Image(self, self.tree, "module", self.module)
        (self.tree / "modules").mkdir(exist_ok=True)
        (self.tree / "modules").chmod(0o777)
        command = json.loads(image.settings["ENTRYPOINT"]) + json.loads(image.settings["CMD"])
        subprocess.run(image.inside(*command), check=True)
        copy = self.tree / "modules/libredis_lock.so"
        self.assertEqual(copy.read_bytes(), self.module.read_bytes())
        self.assertEqual(copy.stat().st_mode & 0o777, 0o755)
        copy.unlink()


class DebianTest(Images, unittest.TestCase):
    pass


class MuslTest(Images, unittest.TestCase):
    """A server that was built against musl; its client is Debian's."""

    libc = "musl"

    @classmethod
    def install(cls):
        found = subprocess.run(["scripts/musl.sh", "server"], cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 3:
            raise unittest.SkipTest(found.stderr.strip())
        shutil.copy(found.stdout.strip(), cls.tree / "usr/local/lib/redis-server")
        (loader,) = (cls.tree / "lib").glob("ld-musl-*")
        wrapper = cls.tree / "usr/local/bin/redis-server"
        wrapper.write_text(f'#!/bin/sh\nexec /lib/{loader.name} /usr/local/lib/redis-server "$@"\n')
        wrapper.chmod(0o755)


class FetchedImages(Images):
    """Servers that `make servers` has fetched; their client is Debian's."""

    name = None

    @classmethod
    def install(cls):
        folder = ROOT / ".servers" / cls.name
        if not folder.exists():
            raise unittest.SkipTest(f"make servers has not fetched {cls.name}")
        super().install()
        shutil.copytree(folder, cls.tree / "opt/server")
        binaries = cls.tree / "usr/local/bin"
        (binaries / cls.server).write_text('#!/bin/sh\nexec /opt/server/server "$@"\n')
        (binaries / cls.server).chmod(0o755)
        client = cls.server.replace("server", "cli")
        if client != "redis-cli":
            (binaries / client).symlink_to("/usr/bin/redis-cli")


class Redis72Test(FetchedImages, unittest.TestCase):
    name = "redis-7.2.4"


class Redis8Test(FetchedImages, unittest.TestCase):
    name = "redis-8.2.3"


class Valkey8Test(FetchedImages, unittest.TestCase):
    name = "valkey-8.1.8"
    server = "valkey-server"


class Valkey9Test(FetchedImages, unittest.TestCase):
    name = "valkey-9.1.2"
    server = "valkey-server"


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("test-images: skipped: it needs root and debootstrap", file=sys.stderr)
        sys.exit(3)
    unittest.main()
