"""Fills the tables of docs/CAPACITY.md from the newest raw run of run.py: medians of its rounds, and what follows from
them for larger loads."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import raw
from raw import ROOT, markdown, number

PAGE = ROOT / "docs/CAPACITY.md"
MASTERS = (1, 3, 6, 12)
# A node is full when its main thread is busy for this share of the time: what is left absorbs peaks, forks and gossip.
BUSY = 0.5
GB = 1e9
# A package renews a lock when a third of its lease has passed (H3), and sends a waiting attempt again every 5 s (W6).
LEASE, RENEWALS, REPEATS = 30, 3, 5

OPERATIONS = {
    "pair": "acquire and release a free lock",
    "extend": "extend a lock",
    "blocked": "hand-off to a client that waits blocked",
    "notify": "hand-off with NOTIFY",
    "snotify": "hand-off with SNOTIFY",
    "again": "send a waiting attempt again",
}
SIZES = {
    "held": "a held lock",
    "notified": "an attempt that waits with NOTIFY",
    "blocked": "a client that waits blocked, with its connection",
}


class Measured:
    def __init__(self):
        self.run = next(raw.runs("capacity-*", ("masters", "operation", "measure")), None)

    def __bool__(self):
        return self.run is not None

    def cpu(self, operation, masters=1):
        """Microseconds of the loaded node for one operation."""
        return self.run.median(masters, operation, "node_us")

    def passed_on(self, operation, masters):
        """Microseconds of another node for one operation, without its gossip."""
        spent, rate = (self.run.median(masters, operation, measure) for measure in ("other_us", "per_second"))
        return max(0.0, spent - self.run.median(masters, "idle", "other_us") / rate)

    def size(self, operation, kind="used"):
        return self.run.median(1, operation, kind)


def cost(found):
    rows = []
    for operation, title in OPERATIONS.items():
        rows.append(
            [
                title,
                *(number(found.cpu(operation, masters), 1) for masters in MASTERS),
                number(found.passed_on(operation, MASTERS[-1]), 2),
                number(found.run.median(MASTERS[-1], operation, "messages"), 0),
            ]
        )
    header = [
        "one operation: server CPU, µs",
        "alone",
        *(f"{masters} masters" for masters in MASTERS[1:]),
        "each other node",
        "bus messages",
    ]
    return markdown(header, rows)


def idle(found):
    rows = [[f"{masters} masters", number(found.cpu("idle", masters) / 1e4, 2)] for masters in MASTERS[1:]]
    return markdown(["gossip in", "% of one core"], [["a single server", number(found.cpu("idle") / 1e4, 2)], *rows])


def memory(found):
    rows = [[title, *(number(found.size(kind, size)) for size in ("used", "resident"))] for kind, title in SIZES.items()]
    return markdown(["bytes for each", "used_memory", "resident"], rows)


def one_node(found):
    full = BUSY * 1e6
    rows = [[title, thousands(full / found.cpu(operation))] for operation, title in OPERATIONS.items()]
    rows += [[f"in 1 GB: {title}", thousands(GB / max(found.size(kind, size) for size in ("used", "resident")))]
             for kind, title in SIZES.items()]
    return markdown(["one node, half busy", "each second"], rows)


def thousands(value):
    """With two significant digits: more would be false precision."""
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"{round(value / 10**digits) * 10**digits:,}"


def line(found, operation):
    """What an operation costs in a cluster: alone, and for each other node."""
    points = [(masters - 1, found.cpu(operation, masters)) for masters in MASTERS[1:]]
    x, y = (sum(point[at] for point in points) / len(points) for at in (0, 1))
    slope = sum((px - x) * (py - y) for px, py in points) / sum((px - x) ** 2 for px, _ in points)
    return y - slope * x, max(0.0, slope)


def nodes_for(found, rate, operation):
    """How many masters carry this many operations in a second, or None if no number of them does."""
    alone, each = line(found, operation)
    other = found.passed_on(operation, MASTERS[-1])
    for nodes in range(1, 1001):
        if rate / nodes * (alone + (nodes - 1) * (each + other)) <= BUSY * 1e6:
            return nodes
    return None


def goals(found):
    def row(goal, cpu, bytes_each, count, limit):
        gigabytes = count * bytes_each / GB
        return [goal, "no number" if cpu is None else str(cpu), number(gigabytes, 1) if gigabytes else "", limit]

    renewals = 1e6 / LEASE * RENEWALS
    repeats = 1e7 / REPEATS
    rows = [
        row(
            "a million held locks, renewed every 10 s",
            nodes_for(found, renewals, "extend"),
            found.size("held", "resident"),
            1e6,
            "renewals",
        ),
        row("100,000 hand-offs/s, blocked", nodes_for(found, 1e5, "blocked"), 0, 0, "the hand-offs"),
        row("100,000 hand-offs/s, NOTIFY", nodes_for(found, 1e5, "notify"), 0, 0, "messages on the bus"),
        row("100,000 hand-offs/s, SNOTIFY", nodes_for(found, 1e5, "snotify"), 0, 0, "the hand-offs"),
        row(
            "ten million waiting attempts",
            nodes_for(found, repeats, "again"),
            found.size("notified", "resident"),
            1e7,
            "attempts that are sent again",
        ),
    ]
    return markdown(["goal", "masters", "memory, GB", "which limit comes first"], rows)


def of_run(found):
    run = found.run
    names = ("date", "server", "module", "cpu", "cores", "load before", "rounds", "command")
    return markdown(["the run", ""], [["file", run.link(PAGE.parent)], *([name, run.facts[name]] for name in names)], 2)


TABLES = {"cost": cost, "idle": idle, "memory": memory, "one node": one_node, "goals": goals, "run": of_run}


def main():
    found = Measured()
    raw.fill(PAGE, {name: lambda table=table: table(found) if found else markdown([], []) for name, table in TABLES.items()})


if __name__ == "__main__":
    main()
