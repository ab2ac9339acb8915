"""Measures what docs/CAPACITY.md computes with: the server's CPU and memory for each lock, alone and in a cluster.

    make bench-capacity                                     # everything, and fills the tables: about ten minutes
    python3 benches/capacity/run.py --masters 1 --masters 3 --rounds 1 --smoke

| operation | what is one |
|---|---|
| pair | ACQUIRE and RELEASE of a free lock |
| extend | EXTEND |
| blocked | a hand-off to a client that waits blocked: RELEASE, and ACQUIRE with WAIT |
| notify | a hand-off with NOTIFY: RELEASE, the message, the claim, and the next ACQUIRE that waits |
| snotify | the same with SNOTIFY |
| again | a waiting attempt with NOTIFY is sent again, as packages do every 5 s |
| idle | a second in which nobody asks for anything |

One node of the cluster gets all of the load, so that the others do not compete with it for the processor; they only
gossip, and pass messages on. `node_us` is the CPU time that the loaded node spends on one operation, `other_us` that of
another node, gossip included, and `messages` how many messages it sends over the cluster bus for one. With one master
the server is not a cluster. Each connection has one command in flight.

The memory is the growth of `used_memory` and of the resident memory for each held lock, for each client that waits
blocked, and for each attempt with NOTIFY.
"""

import argparse
import contextlib
import itertools
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "clients/suite"), str(Path(__file__).resolve().parents[1])]

import raw
from resp import Connection
from servers import Cluster, Server, until

HEADER = ("masters", "operation", "measure", "round", "value")
CONNECTIONS = 32
LEASE = ("PX", 600_000)
WAIT = ("WAIT", 600_000)


class Nodes:
    """A server, or a cluster of several masters, whose first node gets the load."""

    def __init__(self, masters):
        self.masters, self.nodes = masters, []
        if masters == 1:
            self._start()
        else:
            Cluster(self._start, masters)
        self.first = self.nodes[0]
        self._tags = self._own_tags()

    def _start(self, *options, **more):
        self.nodes.append(Server(*options, **more))
        return self.nodes[-1]

    def _own_tags(self):
        """Hash tags of slots that the first node has."""
        with contextlib.closing(Connection(self.first.port)) as conn:
            if self.masters == 1:
                return range(CONNECTIONS)
            first, last = next(s[:2] for s in conn.call("CLUSTER", "SLOTS") if s[2][1] == self.first.port)
            owned = (n for n in itertools.count() if first <= conn.call("CLUSTER", "KEYSLOT", n) <= last)
            return list(itertools.islice(owned, CONNECTIONS))

    def keys(self, part):
        return [f"{{{tag}}}:{part}" for tag in self._tags]

    def cpu_us(self):
        """The CPU time of each node, for all of its threads. The scheduler shows it first, in nanoseconds."""
        return [
            sum(int(path.read_text("ascii").split()[0]) for path in threads.glob("*/schedstat")) / 1000
            for threads in (Path(f"/proc/{node.process.pid}/task") for node in self.nodes)
        ]

    def messages(self):
        """That the first node has sent over the cluster bus for subscribers."""
        if self.masters == 1:
            return 0
        with contextlib.closing(Connection(self.first.port)) as conn:
            info = dict(line.split(":", 1) for line in conn.call("CLUSTER", "INFO").splitlines() if ":" in line)
        return sum(int(info.get(f"cluster_stats_messages_{kind}_sent", 0)) for kind in ("publish", "publishshard"))

    def end(self):
        for node in self.nodes:
            node.end()


class Clients:
    """Connections to the loaded node, each with a lock of its own.

    A part is a subclass; `turn` is one operation of each.

    Nothing is released in the end: each time has other keys.
    """

    times = itertools.count()

    def __init__(self, nodes):
        self.nodes, self.keys = nodes, nodes.keys(f"{type(self).__name__.lower()}:{next(self.times)}")
        self.opened = []
        self.conns = self.connect()
        self.tokens = [0] * CONNECTIONS
        self.prepare()

    def connect(self):
        conns = [Connection(self.nodes.first.port) for _ in range(CONNECTIONS)]
        self.opened += conns
        return conns

    def prepare(self):
        """What happens once."""

    def send(self, conns, *words):
        """One command over each connection: its key, token and channel take the places of KEY, TOKEN and CHANNEL."""
        for conn, key, token in zip(conns, self.keys, self.tokens, strict=True):
            own = {"KEY": key, "TOKEN": token, "CHANNEL": f"{key}:channel"}
            conn.send(*(own.get(word, word) for word in words))

    def ask(self, conns, *words):
        self.send(conns, *words)
        return [conn.read() for conn in conns]

    def acquire(self, conns, *words):
        self.tokens = self.ask(conns, "LOCK.ACQUIRE", "KEY", *LEASE, *words)
        assert all(isinstance(token, int) for token in self.tokens), self.tokens

    def release(self, conns):
        replies = self.ask(conns, "LOCK.RELEASE", "KEY", "TOKEN")
        assert replies == [1] * CONNECTIONS, replies

    def end(self):
        for conn in self.opened:
            conn.close()


class Pair(Clients):
    def turn(self):
        self.acquire(self.conns)
        self.release(self.conns)


class Extend(Clients):
    def prepare(self):
        self.acquire(self.conns)

    def turn(self):
        replies = self.ask(self.conns, "LOCK.EXTEND", "KEY", "TOKEN", *LEASE)
        assert all(replies), replies


class Blocked(Clients):
    """The two sides of each lock take turns."""

    def prepare(self):
        self.holders, self.waiters = self.conns, self.connect()
        self.acquire(self.holders)
        self.wait()

    def wait(self):
        self.send(self.waiters, "LOCK.ACQUIRE", "KEY", *LEASE, *WAIT)

    def turn(self):
        self.release(self.holders)
        self.tokens = [conn.read() for conn in self.waiters]
        self.holders, self.waiters = self.waiters, self.holders
        self.wait()


class Notify(Clients):
    """As above. The attempts of one side share an ID; those of the other side have another one."""

    notify, subscribe = "NOTIFY", "SUBSCRIBE"

    def prepare(self):
        self.side, self.subscriptions = 0, self.connect()
        self.ask(self.subscriptions, self.subscribe, "CHANNEL")
        self.acquire(self.conns)
        self.wait()

    def attempt(self):
        words = ("KEY", *LEASE, *WAIT, "ID", 1 + self.side, self.notify, "CHANNEL")
        return self.ask(self.conns, "LOCK.ACQUIRE", *words)

    def wait(self):
        replies = self.attempt()
        assert replies == ["WAITING"] * CONNECTIONS, replies

    def turn(self):
        self.release(self.conns)
        for conn in self.subscriptions:
            message = conn.read()
            assert "granted" in message[2], message
        self.tokens = self.attempt()
        assert all(isinstance(token, int) for token in self.tokens), self.tokens
        self.side = 1 - self.side
        self.wait()


class SNotify(Notify):
    notify, subscribe = "SNOTIFY", "SSUBSCRIBE"


class Again(Notify):
    def turn(self):
        self.wait()


PARTS = (Pair, Extend, Blocked, Notify, SNotify, Again)


def measure(nodes, part, seconds):
    clients = part(nodes)
    try:
        for _ in range(5):
            clients.turn()
        before, messages, count = nodes.cpu_us(), nodes.messages(), 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            clients.turn()
            count += CONNECTIONS
        return spent(nodes, before, messages, count, seconds)
    finally:
        clients.end()


def idle(nodes, seconds):
    before, messages = nodes.cpu_us(), nodes.messages()
    time.sleep(seconds)
    return spent(nodes, before, messages, count=seconds, seconds=seconds)


def spent(nodes, before, messages, count, seconds):
    first, *others = [(now - then) / count for now, then in zip(nodes.cpu_us(), before, strict=True)]
    found = {"node_us": first, "messages": (nodes.messages() - messages) / count, "per_second": count / seconds}
    if others:
        found["other_us"] = sum(others) / len(others)
    return found


def memory(rows, round_):
    """Each kind has a server of its own."""
    held_locks(rows, round_, 100_000)
    blocked_clients(rows, round_, 1_000)
    attempts(rows, round_, 100_000)


@contextlib.contextmanager
def growth(rows, round_, operation, count):
    """Adds how much a new server grows for each of the `count` things that the body makes over a connection."""
    server = Server()
    try:
        with contextlib.closing(Connection(server.port)) as conn:
            # The module's first use of each kind, and of the buffers.
            conn.call("LOCK.ACQUIRE", "first", *LEASE)
            before = sizes(server, conn)
            yield server, conn
            after = sizes(server, conn)
        for measure, size in after.items():
            rows.append((1, operation, measure, round_, f"{(size - before[measure]) / count:.6g}"))
    finally:
        server.end()


def sizes(server, conn):
    used = dict(line.split(":", 1) for line in conn.call("INFO", "memory").splitlines() if ":" in line)
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text("ascii").split()[1])
    return {"used": int(used["used_memory"]), "resident": pages * os.sysconf("SC_PAGE_SIZE")}


def in_batches(conn, count, command):
    """Sends count commands, 500 at a time, and yields their replies."""
    for first in range(0, count, 500):
        numbers = range(first, min(count, first + 500))
        for number in numbers:
            conn.send(*command(number))
        for _ in numbers:
            yield conn.read()


def held_locks(rows, round_, count):
    with growth(rows, round_, "held", count) as (_, conn):
        for token in in_batches(conn, count, lambda number: ("LOCK.ACQUIRE", f"order:{number:08}", *LEASE)):
            assert isinstance(token, int), token


def attempts(rows, round_, count):
    """Ten for each lock."""
    with growth(rows, round_, "notified", count) as (server, conn), contextlib.closing(Connection(server.port)) as other:
        other.call("SUBSCRIBE", "channel")
        for number in range(count // 10):
            conn.call("LOCK.ACQUIRE", f"order:{number:08}", *LEASE)
        words = lambda number: (
            *("LOCK.ACQUIRE", f"order:{number // 10:08}", *LEASE, *WAIT),
            *("ID", number + 1, "NOTIFY", "channel"),
        )
        for reply in in_batches(conn, count, words):
            assert reply == "WAITING", reply


def blocked_clients(rows, round_, count):
    """All for one lock."""
    conns = []
    try:
        with growth(rows, round_, "blocked", count) as (server, conn):
            conns += [Connection(server.port) for _ in range(count)]
            for each in conns:
                each.send("LOCK.ACQUIRE", "first", *LEASE, *WAIT)
            waiters = lambda: conn.map("LOCK.INFO", "first")["waiters"]
            until("all wait", lambda: waiters() == count)
    finally:
        for each in conns:
            each.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masters", action="append", type=int, help="1, 3, 6 and 12 by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per operation and round")
    parser.add_argument("--smoke", action="store_true", help="keep nothing")
    settings = parser.parse_args()
    server = Server()
    with contextlib.closing(Connection(server.port)) as conn:
        found = raw.facts(settings, conn, seconds=settings.seconds)
    server.end()
    rows, sizes_of = [], settings.masters or [1, 3, 6, 12]
    groups = []
    try:
        groups += [Nodes(masters) for masters in sizes_of]
        for round_ in range(1, settings.rounds + 1):
            # The other groups gossip meanwhile, and share the processor's fast and slow minutes.
            for part in PARTS:
                for nodes in groups[:: 1 if round_ % 2 else -1]:
                    note(rows, nodes, part.__name__.lower(), round_, measure(nodes, part, settings.seconds))
            for nodes in groups:
                note(rows, nodes, "idle", round_, idle(nodes, settings.seconds))
            memory(rows, round_)
    finally:
        for nodes in groups:
            nodes.end()
        if not settings.smoke and rows:
            raw.keep(f"capacity-{found['server']}", HEADER, rows, found)


def note(rows, nodes, operation, round_, found):
    print(f"{nodes.masters:3} {operation:8}", *(f"{name} {value:.2f}" for name, value in found.items()), flush=True)
    rows += [(nodes.masters, operation, name, round_, f"{value:.6g}") for name, value in found.items()]


if __name__ == "__main__":
    main()
