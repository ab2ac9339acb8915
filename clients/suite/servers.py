"""A scenario's own servers: each on a free port, in its own folder, ended by process id."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from resp import Connection

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("REDIS_SERVER", "redis-server")
MODULE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/libredis_lock.so"
PATIENCE = 240.0


def until(what, condition, seconds=PATIENCE):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
            why = None
        except (OSError, ConnectionError) as error:
            found, why = None, error
        if found:
            return found
        if time.monotonic() >= end:
            raise AssertionError(f"not within {seconds} s: {what}" + (f" ({why})" if why else ""))
        time.sleep(0.01)


_given = set()


def free_port(also=0):
    """A free port; with `also`, the port at that offset is free too (a cluster's bus).

    It is below the system's ephemeral ports, because outgoing connections could take one of those before it is used.
    """
    while True:
        port = random.randrange(10_000, 32_000 - also)
        if not {port, port + also} & _given and _is_free(port) and _is_free(port + also):
            _given.update((port, port + also))
            return port


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server:
    """A server with the module, unless `module` is false."""

    def __init__(self, *options, module=True, port=None, sentinel=None, cluster=False):
        self.folder = Path(tempfile.mkdtemp(prefix="serverlock-"))
        self.port = port or free_port(10_000 if cluster else 0)
        self.options, self.module, self.sentinel = options, module, sentinel
        self.process = None
        for tries in range(1, 4):
            try:
                return self.start()
            except AssertionError:
                self.kill()
                if port or tries == 3 or "Address already in use" not in self.log():
                    raise
            # Another program took the port first.
            self.port = free_port(10_000 if cluster else 0)

    def start(self):
        words = [BINARY]
        if self.sentinel is not None:
            config = self.folder / "sentinel.conf"
            if not config.exists():
                config.write_text(self.sentinel)
            words += [str(config), "--sentinel"]
        words += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--daemonize", "no"]
        if self.sentinel is None:
            words += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
            if not _is_old():
                words += ["--enable-module-command", "yes", "--enable-debug-command", "yes",
                          "--enable-protected-configs", "yes"]
            if self.module:
                words += ["--loadmodule", str(MODULE)]
        words += [str(option) for option in self.options]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("the server answers", self._answers)

    def _answers(self):
        assert self.process.poll() is None, f"the server ended:\n{self.log()}"
        probe = socket.create_connection(("127.0.0.1", self.port), timeout=2)
        with probe:
            probe.sendall(b"PING\r\n")
            # A server that demands a password or TLS has answered too.
            return "--tls-port" in self.options or probe.recv(100).startswith((b"+PONG", b"-NOAUTH"))

    def connect(self, *auth):
        return Connection(self.port, *auth)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def restart(self):
        self.kill()
        self.start()

    def log(self):
        path = self.folder / "log"
        return path.read_text("utf-8", "replace")[-3000:] if path.exists() else ""

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def at(self):
        return {"kind": "single", "host": "127.0.0.1", "port": self.port}


def _is_old():
    global _old
    if _old is None:
        said = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout
        _old = "v=6." in said
    return _old


_old = None


class Sentinels:
    """A master, one replica and three Sentinels, which agree within about two seconds."""

    def __init__(self, start):
        self.master = start()
        self.replica = start("--replicaof", "127.0.0.1", self.master.port)
        config = (
            f"sentinel monitor lock 127.0.0.1 {self.master.port} 2\nsentinel down-after-milliseconds lock 600\n"
            "sentinel failover-timeout lock 4000\nsentinel parallel-syncs lock 1\n"
        )
        with contextlib.closing(self.replica.connect()) as conn:
            until("the replica is in step", lambda: "master_link_status:up" in conn.call("INFO", "replication"))
        self.sentinels = [start(sentinel=config, module=False) for _ in range(3)]
        until("the Sentinels have found each other", self._know)

    def _know(self):
        for sentinel in self.sentinels:
            with contextlib.closing(sentinel.connect()) as conn:
                state = conn.map("SENTINEL", "MASTER", "lock")
                if state["num-other-sentinels"] != "2" or state["num-slaves"] != "1":
                    return False
        return True

    def address(self):
        for sentinel in self.sentinels:
            with contextlib.closing(sentinel.connect()) as conn:
                return int(conn.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "lock")[1])

    @property
    def at(self):
        return {"kind": "sentinel", "sentinels": [["127.0.0.1", it.port] for it in self.sentinels], "master": "lock"}


class Cluster:
    """Masters without replicas."""

    def __init__(self, start, count=3):
        self.nodes = [
            start("--cluster-enabled", "yes", "--cluster-node-timeout", "3000", cluster=True) for _ in range(count)
        ]
        conns = [node.connect() for node in self.nodes]
        step = 16384 // count + 1
        for number, conn in enumerate(conns):
            conn.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first, last = number * step, min(16383, (number + 1) * step - 1)
            conn.call("CLUSTER", "ADDSLOTS", *range(first, last + 1))
        for node in self.nodes[1:]:
            conns[0].call("CLUSTER", "MEET", "127.0.0.1", node.port)
        for conn in conns:
            until("the cluster is up", lambda conn=conn: "cluster_state:ok" in conn.call("CLUSTER", "INFO")
                  and conn.call("CLUSTER", "NODES").count(" connected") == count)
            until("all slots are known", lambda conn=conn: sum(s[1] - s[0] + 1 for s in conn.call("CLUSTER", "SLOTS")) == 16384)
        for conn in conns:
            conn.close()

    def owner(self, key):
        """The node that has the key's slot, and the slot."""
        with contextlib.closing(self.nodes[0].connect()) as conn:
            slot = conn.call("CLUSTER", "KEYSLOT", key)
            port = next(s[2][1] for s in conn.call("CLUSTER", "SLOTS") if s[0] <= slot <= s[1])
            return next(node for node in self.nodes if node.port == port), slot

    def move(self, key):
        """Moves the key's slot, with its contents, to another node."""
        with self.moving(key) as target:
            return target

    @contextlib.contextmanager
    def moving(self, key):
        """Migrates the key's slot to another node; the keys in the slot follow at the end."""
        source, slot = self.owner(key)
        target = next(node for node in self.nodes if node is not source)
        with contextlib.closing(source.connect()) as a, contextlib.closing(target.connect()) as b:
            ids = {id(conn): conn.call("CLUSTER", "MYID") for conn in (a, b)}
            b.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[id(a)])
            a.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[id(b)])
            yield target
            while keys := a.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
                a.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            for conn in (b, a):
                conn.call("CLUSTER", "SETSLOT", slot, "NODE", ids[id(b)])
            for node in self.nodes:
                if node not in (source, target):
                    with contextlib.closing(node.connect()) as conn:
                        conn.call("CLUSTER", "SETSLOT", slot, "NODE", ids[id(b)])

    @property
    def at(self):
        return {"kind": "cluster", "nodes": [["127.0.0.1", node.port] for node in self.nodes]}
