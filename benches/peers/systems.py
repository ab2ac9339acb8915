"""The servers of the comparison, one node each or three: on free ports, ended by process id. Their data is in memory,
except that those named Durable wait for the disk before they reply."""

import concurrent.futures
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


def _resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


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

    def resident(self):
        """Bytes of memory, or None where garbage decides them."""

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
    options = ()

    def __init__(self, *more):
        super().__init__(*self.options, *more, module=self.is_with_module)
        self.conn = self.connect()

    def version(self):
        return "Redis " + re.search(r"redis_version:(\S+)", self.conn.call("INFO", "server"))[1]

    def cpu_us(self):
        return _cpu_ticks(self.process.pid, children=False) / TICKS * 1e6

    def resident(self):
        return _resident(self.process.pid)

    def commands(self):
        return sum(int(calls) for calls in re.findall(r"calls=(\d+)", self.conn.call("INFO", "commandstats")))


class RedisWithModule(Redis):
    settings = "the module's defaults; no AOF, no RDB, no replica"
    is_with_module = True


class CrowdedRedisWithModule(RedisWithModule):
    """For a connection of each waiter."""

    settings = "maxclients and lock.max-waiters 12000; no AOF, no RDB, no replica"
    options = ("--maxclients", 12_000, "--lock.max-waiters", 12_000)


class DurableRedis(Redis):
    settings = "appendonly yes, appendfsync always"
    options = ("--appendonly", "yes", "--appendfsync", "always")


class DurableRedisWithModule(DurableRedis):
    is_with_module = True


class Etcd(Process):
    settings = "one node, data in memory, --unsafe-no-fsync"
    sync = ("--unsafe-no-fsync",)

    def __init__(self, name="0", members=None):
        """members: the port for other nodes of each of them, by its name."""
        self.name, self.members = name, members or {name: free_port()}
        super().__init__()

    def command(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.members[self.name]))
        return [
            str(PEERS / "etcd"),
            "--name",
            self.name,
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
            ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self.members.items()),
        ]

    def resident(self):
        return _resident(self.process.pid)

    def version(self):
        said = subprocess.run([str(PEERS / "etcd"), "--version"], capture_output=True, text=True, check=True).stdout
        return "etcd " + re.search(r"etcd Version: (\S+)", said)[1]


class DurableEtcd(Etcd):
    settings, is_durable, sync = "one node, the defaults", True, ()


class ZooKeeper(Process):
    settings = "one node, data in memory, forceSync=no, Java's defaults"

    def __init__(self, name="0", members=None):
        """members: the two ports for other nodes of each of them, by its number."""
        self.name, self.members = name, members or {}
        super().__init__()

    def prepare(self):
        members = "".join(f"server.{name}=127.0.0.1:{a}:{b}\n" for name, (a, b) in self.members.items())
        (self.folder / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n"
            f"initLimit=10\nsyncLimit=5\n{members}"
        )
        (self.folder / "data").mkdir()
        (self.folder / "data/myid").write_text(self.name)

    def command(self):
        return [
            JAVA,
            f"-Dzookeeper.forceSync={'yes' if self.is_durable else 'no'}",
            "-cp",
            JARS,
            # One node if the file names no others.
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
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

    def __init__(self, port=None, members=()):
        """members: the ports of all of them."""
        self.own, self.members = port, members
        super().__init__()

    def prepare(self):
        self.port = self.own or self.port
        members = "".join(f"<member>127.0.0.1:{port}</member>" for port in self.members)
        (self.folder / "hazelcast.xml").write_text(
            '<hazelcast xmlns="http://www.hazelcast.com/schema/config"><properties>'
            '<property name="hazelcast.phone.home.enabled">false</property>'
            '<property name="hazelcast.logging.type">none</property></properties><network>'
            f'<port auto-increment="false">{self.port}</port><interfaces enabled="true">'
            '<interface>127.0.0.1</interface></interfaces><join><auto-detection enabled="false"/>'
            f'<multicast enabled="false"/><tcp-ip enabled="{str(bool(members)).lower()}">{members}</tcp-ip>'
            "</join></network></hazelcast>"
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


class Group:
    """Three nodes, of which a client gets all ports. A subclass says how they start."""

    node = None
    SIZE = 3

    def __init__(self):
        self.nodes = self.start()

    def together(self, *arguments):
        """Starts a node with each of these arguments. None of them answers before it has met the others."""
        with concurrent.futures.ThreadPoolExecutor(self.SIZE) as pool:
            return list(pool.map(lambda own: self.node(*own), arguments))

    @property
    def port(self):
        return ",".join(str(node.port) for node in self.nodes)

    def version(self):
        return self.nodes[0].version()

    def cpu_us(self):
        return sum(node.cpu_us() for node in self.nodes)

    def commands(self):
        """Those of the first node: the master."""
        return self.nodes[0].commands()

    def end(self):
        for node in self.nodes:
            node.end()


class ReplicatedRedis(Group):
    """A master and two replicas."""

    settings = "two replicas, no AOF, no RDB"
    node, options = Redis, ()

    def start(self):
        master = self.node(*self.options)
        copies = [self.node(*self.options, "--replicaof", "127.0.0.1", master.port) for _ in range(1, self.SIZE)]
        until(
            "the replicas follow", lambda: master.conn.call("INFO", "replication").count("state=online") == len(copies)
        )
        return [master, *copies]


class ReplicatedRedisWithModule(ReplicatedRedis):
    settings = "the module's defaults; two replicas, no AOF, no RDB"
    node = RedisWithModule


class RedisWithGrace(ReplicatedRedisWithModule):
    """With all conditions of the grace. The leases are 30 s."""

    settings = (
        "two replicas, no AOF, no RDB; lock.failover-grace-ms 40000, min-replicas-to-write 2, min-replicas-max-lag 2, "
        "repl-ping-replica-period 1"
    )
    options = (
        *("--lock.failover-grace-ms", 40_000, "--min-replicas-to-write", 2, "--min-replicas-max-lag", 2),
        *("--repl-ping-replica-period", 1),
    )

    def start(self):
        nodes = super().start()
        field = "lock_grace_left_ms:0\r\n"
        until("the grace has ended", lambda: field in nodes[0].conn.call("INFO", "lock"))
        return nodes


class DurableReplicatedRedisWithModule(ReplicatedRedis):
    settings = "two replicas; on each node appendonly yes, appendfsync always"
    node = DurableRedisWithModule


class EtcdCluster(Group):
    settings, node = "three nodes, data in memory, --unsafe-no-fsync", Etcd

    def start(self):
        members = {str(number): free_port() for number in range(self.SIZE)}
        return self.together(*((name, members) for name in members))


class DurableEtcdCluster(EtcdCluster):
    settings, node = "three nodes, the defaults", DurableEtcd


class ZooKeeperEnsemble(Group):
    settings, node = "three nodes, data in memory, forceSync=no, Java's defaults", ZooKeeper

    def start(self):
        members = {str(number): (free_port(), free_port()) for number in range(1, self.SIZE + 1)}
        return self.together(*((name, members) for name in members))


class DurableZooKeeperEnsemble(ZooKeeperEnsemble):
    settings, node = "three nodes, the defaults", DurableZooKeeper


class HazelcastCluster(Group):
    settings, node = "three members, one backup of each partition (the default), Java's defaults", Hazelcast

    def start(self):
        ports = [free_port() for _ in range(self.SIZE)]
        return self.together(*((port, ports) for port in ports))


class InOneProcess:
    """Not a server: the limit has none."""

    settings, port = "threads of one process", 0

    def version(self):
        return (
            "Java " + subprocess.run([JAVA, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        )

    def cpu_us(self):
        return 0

    def resident(self):
        return None

    def commands(self):
        return None

    def end(self):
        pass


def _jar(name):
    found = (re.fullmatch(rf"{name}-([\d.]+)\.jar", path.name) for path in (PEERS / "jars").iterdir())
    return next(match[1] for match in found if match)
