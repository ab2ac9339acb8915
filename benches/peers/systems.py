"""The servers of the comparison, one node each: on free ports, ended by process id. Their data is in memory, except that
those named Durable wait for the disk before they reply."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/suite"))

import servers as suite
from servers import free_port, until

PEERS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "peers"
JARS = str(PEERS / "jars/*")
JAVA = shutil.which("java") or "java"
TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid, children):
    """User and system time of a process and its ended threads, and, if asked for, of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13])


class Process:
    """One server process."""

    is_durable = False

    def __init__(self):
        memory = None if self.is_durable or not os.access("/dev/shm", os.W_OK) else "/dev/shm"
        self.folder = Path(tempfile.mkdtemp(prefix="peer-", dir=memory))
        self.port, self.process, self.user = free_port(), None, None
        self.prepare()
        self.start()

    def prepare(self):
        """What happens only once."""

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self.user,
                cwd=self.folder,
            )
        until(f"{type(self).__name__} answers", self._is_ready)

    def _is_ready(self):
        assert self.process.poll() is None, f"{type(self).__name__} ended:\n{self.log()}"
        return self.answers()

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=2):
            return True

    def log(self):
        return (self.folder / "log").read_text("utf-8", "replace")[-3000:]

    def cpu_us(self):
        return _cpu_ticks(self.process.pid, children=False) / TICKS * 1e6

    def commands(self):
        """How many commands the server has run, or None if it does not count them."""

    def signal(self, number):
        """To all of its processes: they are a group."""
        os.killpg(self.process.pid, number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(suite.Server):
    """Without AOF, RDB or replica."""

    settings = "no AOF, no RDB, no replica"
    is_with_module = False
    durable = ()

    def __init__(self):
        super().__init__(*self.durable, module=self.is_with_module)
        self.conn = self.connect()

    def version(self):
        return "Redis " + re.search(r"redis_version:(\S+)", self.conn.call("INFO", "server"))[1]

    def cpu_us(self):
        return _cpu_ticks(self.process.pid, children=False) / TICKS * 1e6

    def commands(self):
        return sum(int(calls) for calls in re.findall(r"calls=(\d+)", self.conn.call("INFO", "commandstats")))


class RedisWithModule(Redis):
    settings = "the module's defaults; no AOF, no RDB, no replica"
    is_with_module = True


class DurableRedis(Redis):
    settings = "appendonly yes, appendfsync always"
    durable = ("--appendonly", "yes", "--appendfsync", "always")


class DurableRedisWithModule(DurableRedis):
    is_with_module = True


class Etcd(Process):
    settings = "one node, data in memory, --unsafe-no-fsync"
    sync = ("--unsafe-no-fsync",)

    def prepare(self):
        self.peer_port = free_port()

    def command(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        return [
            str(PEERS / "etcd"),
            "--name",
            "one",
            "--data-dir",
            str(self.folder / "data"),
            *self.sync,
            "--log-level",
            "error",
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"one={peer}",
        ]

    def version(self):
        said = subprocess.run([str(PEERS / "etcd"), "--version"], capture_output=True, text=True, check=True).stdout
        return "etcd " + re.search(r"etcd Version: (\S+)", said)[1]


class DurableEtcd(Etcd):
    settings, is_durable, sync = "one node, the defaults", True, ()


class ZooKeeper(Process):
    settings = "one node, data in memory, forceSync=no, Java's defaults"

    def prepare(self):
        (self.folder / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n"
        )

    def command(self):
        return [
            JAVA,
            f"-Dzookeeper.forceSync={'yes' if self.is_durable else 'no'}",
            "-cp",
            JARS,
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self.folder / "zoo.cfg"),
        ]

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as conn:
            conn.sendall(b"srvr")
            return conn.recv(100).startswith(b"Zookeeper version")

    def version(self):
        return "ZooKeeper " + _jar("zookeeper")


class DurableZooKeeper(ZooKeeper):
    settings, is_durable = "one node, the defaults", True


class Hazelcast(Process):
    settings = "one member, Java's defaults"

    def prepare(self):
        (self.folder / "hazelcast.xml").write_text(
            '<hazelcast xmlns="http://www.hazelcast.com/schema/config"><properties>'
            '<property name="hazelcast.phone.home.enabled">false</property>'
            '<property name="hazelcast.logging.type">none</property></properties><network>'
            f'<port auto-increment="false">{self.port}</port><interfaces enabled="true">'
            '<interface>127.0.0.1</interface></interfaces><join><auto-detection enabled="false"/>'
            '<multicast enabled="false"/></join></network></hazelcast>'
        )

    def command(self):
        return [
            JAVA,
            f"-Dhazelcast.config={self.folder}/hazelcast.xml",
            "-cp",
            JARS,
            "com.hazelcast.core.server.HazelcastMemberStarter",
        ]

    def version(self):
        return "Hazelcast " + _jar("hazelcast")


class Postgres(Process):
    settings = "data in memory, fsync, full_page_writes and synchronous_commit off"

    def prepare(self):
        self.binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
        if os.getuid() == 0:  # it does not run as root
            self.user = "postgres"
            shutil.chown(self.folder, self.user)
        (self.folder / "log").touch()
        subprocess.run(
            [
                self.binaries / "initdb",
                "--pgdata",
                self.folder / "data",
                "--username",
                "postgres",
                "--auth",
                "trust",
                "--no-sync",
            ],
            stdout=subprocess.DEVNULL,
            check=True,
            user=self.user,
            cwd=self.folder,
        )

    def command(self):
        settings = {} if self.is_durable else dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), "off")
        settings |= {
            "max_connections": "300",
            "unix_socket_directories": "",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
        }
        return [
            str(self.binaries / "postgres"),
            "-D",
            str(self.folder / "data"),
            *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
        ]

    def answers(self):
        check = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(check, check=False).returncode == 0

    def cpu_us(self):
        """Each connection has a process of its own."""
        ticks = _cpu_ticks(self.process.pid, children=True)
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text("ascii").split():
            ticks += _cpu_ticks(pid, children=False)
        return ticks / TICKS * 1e6

    def version(self):
        said = subprocess.run([self.binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
        return "PostgreSQL " + said.stdout.split()[2]


class DurablePostgres(Postgres):
    settings, is_durable = "the defaults", True


class InOneProcess:
    """Not a server: the limit has none."""

    settings, port = "threads of one process", 0

    def version(self):
        return (
            "Java " + subprocess.run([JAVA, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        )

    def cpu_us(self):
        return 0

    def commands(self):
        return None

    def end(self):
        pass


def _jar(name):
    found = (re.fullmatch(rf"{name}-([\d.]+)\.jar", path.name) for path in (PEERS / "jars").iterdir())
    return next(match[1] for match in found if match)
