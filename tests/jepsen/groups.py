"""Groups of three nodes, each in a network namespace of its own: Redis with Sentinel, and etcd.

The runner has a namespace too, and routes between the nodes and the clients. A cut is a rule that drops packets there,
so that a connection that is cut off is silent, as in a network.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
JEPSEN = TARGET / "jepsen"
MODULE = TARGET / "release/libredis_lock.so"
REDIS = os.environ.get("REDIS_SERVER", "redis-server")

LEASE_MS, MARGIN_MS, MAX_LAG_S = 3_000, 1_000, 2
# The shortest that allows this lease: docs/FAILURE.md, The grace.
GRACE_MS = LEASE_MS + MARGIN_MS + MAX_LAG_S * 1_000 + 2_000


def until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Network:
    """Namespaces that this process, in a namespace of its own, routes between."""

    def __init__(self):
        self.holders = []
        self._ip("link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    @staticmethod
    def _ip(*words, check=True):
        return subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL).returncode == 0

    def add(self):
        """A new namespace; returns its number."""
        number = len(self.holders) + 1
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.holders.append(holder)
        own = os.readlink("/proc/self/ns/net")
        until("a namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
        self._ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        self._ip("address", "add", f"10.77.{number}.1/24", "dev", f"v{number}")
        self._ip("link", "set", f"v{number}", "up")
        enter = self.inside(number)
        for words in (
            "link set lo up",
            f"address add {self.address(number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via 10.77.{number}.1",
        ):
            subprocess.run([*enter, "ip", *words.split()], check=True)
        return number

    @staticmethod
    def address(number):
        return f"10.77.{number}.2"

    @staticmethod
    def gateway(number):
        """The runner, as the namespace sees it."""
        return f"10.77.{number}.1"

    def inside(self, number):
        """What a command begins with to run there; the process keeps its ID."""
        return ["nsenter", f"--net=/proc/{self.holders[number - 1].pid}/ns/net"]

    def cut(self, one, other):
        for a, b in ((one, other), (other, one)):
            self._ip("rule", "add", "priority", "10", "from", self.address(a), "to", self.address(b), "blackhole")

    def heal(self):
        while self._ip("rule", "delete", "priority", "10", check=False):
            pass

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


class Node:
    """One server process of a group, which can be started again with its data."""

    def __init__(self, network, number, words, environment=None):
        self.network, self.number = network, number
        self.words, self.environment = words, environment
        self.process = None
        self.folder = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.network.inside(self.number), *map(str, self.words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(self.environment or {})},
            )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Nothing happens if it has been killed."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def log(self):
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]


class Group:
    """Three nodes."""

    has_clocks = False

    def __init__(self, network):
        # In memory if there is room, since a kill -9 loses nothing that was written, on whichever disk.
        room = shutil.disk_usage("/dev/shm").free if os.access("/dev/shm", os.W_OK) else 0
        memory = "/dev/shm" if room > 2**30 else None
        self.folder = Path(tempfile.mkdtemp(prefix="jepsen-", dir=memory))
        self.network = network
        self.numbers = [network.add() for _ in range(3)]
        self.nodes = []

    def node(self, name, number, words, environment=None):
        node = Node(self.network, number, words, environment)
        node.folder = self.folder / name
        node.folder.mkdir()
        return node

    def end(self):
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Group):
    """A master, two replicas, and on each of their nodes a Sentinel. The data is in an AOF, written every second."""

    has_clocks = True

    def __init__(self, network, module, grace, clocks):
        super().__init__(network)
        self.module, self.grace = module, grace
        for number in self.numbers:
            node = self.node(f"redis-{number}", number, [])
            address = network.address(number)
            lines = [
                f"bind {address} 127.0.0.1",
                "port 6379",
                "protected-mode no",
                'save ""',
                "appendonly yes",
                f"dir {node.folder}",
                "repl-diskless-sync-delay 0",
            ]
            if module:
                lines += [f"loadmodule {MODULE}", f"lock.margin-ms {MARGIN_MS}"]
            if grace:
                lines += [
                    f"lock.failover-grace-ms {GRACE_MS}",
                    "min-replicas-to-write 2",
                    f"min-replicas-max-lag {MAX_LAG_S}",
                    "repl-ping-replica-period 1",
                ]
            if number != self.numbers[0]:
                lines.append(f"replicaof {network.address(self.numbers[0])} 6379")
            config = node.folder / "server.conf"
            config.write_text("\n".join(lines) + "\n")
            node.words = [REDIS, config]
            if clocks:
                node.environment = {
                    "LD_PRELOAD": str(JEPSEN / "clock_shim.so"),
                    "CLOCK_SHIM_FILE": str(node.folder / "clocks"),
                }
                (node.folder / "clocks").write_bytes(bytes(32))
            node.start()
            self.nodes.append(node)
        until("the replicas are in step", self._is_in_step)
        if clocks:
            self._check_clock(self.nodes[-1])
        self.sentinels = []
        for number in self.numbers:
            node = self.node(f"sentinel-{number}", number, [])
            config = node.folder / "sentinel.conf"
            config.write_text(
                f"bind {network.address(number)}\nport 26379\nprotected-mode no\ndir {node.folder}\n"
                f"sentinel monitor locks {network.address(self.numbers[0])} 6379 2\n"
                "sentinel down-after-milliseconds locks 1500\nsentinel failover-timeout locks 6000\n"
                "sentinel parallel-syncs locks 2\n"
            )
            node.words = [REDIS, config, "--sentinel"]
            node.start()
            self.sentinels.append(node)
        self.nodes_of_data, self.nodes = self.nodes, self.nodes + self.sentinels
        for number in self.numbers:
            until("a Sentinel answers", lambda number=number: "PONG" in self.ask(number, 26379, "PING"))
            # They find each other, and a new replica, sooner than in production.
            hurry = "publish-period 200 info-period 300 ask-period 300 ping-period 200 min-link-reconnect-period 300"
            self.ask(number, 26379, "SENTINEL", "DEBUG", *hurry.split())
        until("the Sentinels know each other", lambda: all(map(self._knows_all, self.numbers)))

    def ask(self, number, port, *words):
        command = ["timeout", "2", "redis-cli", "-h", self.network.address(number), "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout

    def _is_in_step(self):
        for node in self.nodes:
            assert node.process.poll() is None, node.log()
        return self.ask(self.numbers[0], 6379, "INFO", "replication").count("state=online") == 2

    def _knows_all(self, number):
        facts = " ".join(self.ask(number, 26379, "SENTINEL", "MASTER", "locks").split())
        return "num-slaves 2 num-other-sentinels 2 " in facts + " "

    def servers(self):
        return [f"{self.network.address(number)}:26379" for number in self.numbers]

    def data(self):
        return self.nodes_of_data

    def leader(self):
        masters = [node for node in self.data() if self.ask(node.number, 6379, "ROLE").startswith("master")]
        return masters[0] if len(masters) == 1 else None

    def move_clock(self, node, seconds):
        """The wall clock. Redis maps the file, so it is written in place."""
        with open(node.folder / "clocks", "r+b") as file:
            file.write(int(seconds * 1e6).to_bytes(8, "little", signed=True))

    def _check_clock(self, node):
        """A library that cannot be preloaded is only a warning."""
        self.move_clock(node, 100)
        ahead = int(self.ask(node.number, 6379, "TIME").split()[0]) - time.time()
        self.move_clock(node, 0)
        assert 90 < ahead < 110, f"the clock did not move: {ahead}\n{node.log()}"

    def version(self):
        facts = self.ask(self.numbers[0], 6379, "INFO", "server")
        return "Redis " + next(line.split(":")[1] for line in facts.split() if line.startswith("redis_version:"))


class Etcd(Group):
    """Three members."""

    def __init__(self, network):
        super().__init__(network)
        peers = ",".join(f"n{number}=http://{network.address(number)}:2380" for number in self.numbers)
        for number in self.numbers:
            node = self.node(f"etcd-{number}", number, [])
            client, peer = (f"http://{network.address(number)}:{port}" for port in (2379, 2380))
            options = {
                "name": f"n{number}",
                "data-dir": node.folder / "data",
                "log-level": "error",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": peers,
            }
            node.words = [JEPSEN / "etcd", *(word for name, value in options.items() for word in (f"--{name}", value))]
            node.start()
            self.nodes.append(node)
        until("etcd has a leader", lambda: self.leader() is not None)

    def _status(self, number):
        request = urllib.request.Request(
            f"http://{self.network.address(number)}:2379/v3/maintenance/status", data=b"{}", method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=2) as reply:
                return json.load(reply)
        except OSError:
            return {}

    def servers(self):
        return [f"{self.network.address(number)}:2379" for number in self.numbers]

    def data(self):
        return self.nodes

    def leader(self):
        for node in self.nodes:
            status = self._status(node.number)
            if status.get("leader", "0") != "0" and status["leader"] == status["header"]["member_id"]:
                return node
        return None

    def version(self):
        return "etcd " + self._status(self.numbers[0]).get("version", "?")


class Nothing:
    """The broken lock has no servers."""

    def __init__(self):
        self.nodes = []

    def servers(self):
        return ["none"]

    def data(self):
        return []

    def leader(self):
        return None

    def version(self):
        return "no server"

    def end(self):
        pass


def start(system, network, clocks):
    if system == "broken":
        return Nothing()
    if system == "etcd":
        return Etcd(network)
    return Redis(network, system != "redisson", system == "redis-lock-grace", clocks)
