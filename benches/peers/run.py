"""Compares the lock with those that people would choose instead: Redisson, etcd, ZooKeeper, Hazelcast, PostgreSQL and
the usual Redis locks: one node each, in memory; then on disk, and three nodes each.

    make bench-peers                                       # installs everything, measures all parts, fills the tables
    make bench-peers ARGS='--only hot --peers etcd --peers Jedis --seconds 2'

| part | measures |
|---|---|
| free | 1, 8 and 64 clients, each with a lock of its own: acquire and release |
| pair | as free, with 1 client: the packages, and SET NX PX and DEL over the same libraries |
| hot | 16 and 64 clients on one lock: hand-offs, fairness, the wait for a grant |
| slots | 64 clients on a semaphore of 10 |
| durable | as hot, with 1 and 64 clients, on servers that wait for the disk |
| replicated | as hot, with 1 and 64 clients, on groups of three servers |
| readers | 200 readers and 4 writers on one lock |
| crowd | 10,000 clients on 1,000 locks, ten on each; 10 s in each round |
| killed | the time until the next client has the lock after its holder's process was killed |
| restarted | the longest time without a grant after the server was killed and started again |
| lost, fenced | lost updates of a counter that the lock guards, while clients and the server are paused or killed |

The contenders take turns: each round measures all of them, in a different order, on servers and processes that stay.
In `crowd`, each has a new server and a new process in each round. In `fenced` the counter refuses a fencing token below
the largest that it has seen.

A worker is one process of one contender: WORKER CONTENDER PORTS, with commas between the ports. It prints `{}` when it
is connected, then answers each line of its input with one line of JSON: `free KEY CLIENTS SECONDS`, `hot KEY CLIENTS
SECONDS`, `slots KEY CLIENTS SECONDS PERMITS`, `readers KEY CLIENTS SECONDS WRITERS`, `outage KEY CLIENTS SECONDS`,
`count KEY CLIENTS SECONDS PORT fenced|unfenced` with the grants of each client (`counts`), a histogram of the times
(`waits`: how many took about 1.02^n nanoseconds), `errors`, and the longest time without a grant (`gap_ms`); for
readers, also with those of the `writers`; `hold KEY` once it has the lock. After `crowd KEY CLIENTS SECONDS LOCKS WARM`
it prints `{}` when the measured time begins, WARM seconds after all clients have asked, and again when it ends; then the
answer. The environment's LEASE_MS is the lease, or the session's time-out.

Every round is kept as CSV in benches/runs, unless --smoke is given; tables.py fills docs/COMPARED.md from there.
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import faults
import raw
from contenders import CONTENDERS, LANGUAGES, PARTS
from systems import PEERS

CLIENTS = {
    "free": (1, 8, 64),
    "pair": (1,),
    "hot": (16, 64),
    "slots": (64,),
    "durable": (1, 64),
    "replicated": (1, 64),
    "readers": (204,),
    "crowd": (10_000,),
}
# The order that a part gives to the workers, where the names differ.
ORDERS = {"pair": "free", "durable": "hot", "replicated": "hot"}
PERMITS, WRITERS = 10, 4
# How long each contender is measured in each round.
SECONDS, CROWD_SECONDS = 2.0, 10.0
LEASE_MS = 30_000
# In `crowd`: the clients of each lock, and how long a contender may take to finish.
CLIENTS_OF_A_LOCK = 10
PATIENCE = 240.0
# How many contenders run at the same time: in `killed` all of them only wait.
AT_ONCE = {"killed": 8, "restarted": 2, "lost": 4, "fenced": 4}


class WorkerEnded(Exception):
    """A worker's process ended in the middle of its work."""


class Worker:
    def __init__(self, contender, port, lease_ms=LEASE_MS):
        language = LANGUAGES[contender.language]
        environment = {**os.environ, **language.environment, "LEASE_MS": str(lease_ms)}
        # Libraries warn when their server is away.
        with open(PEERS / "workers.log", "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*language.command, contender.worker, str(port)],
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.pid = self._process.pid

    def say(self, *words):
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()

    def hear(self):
        line = self._process.stdout.readline()
        if not line:
            raise WorkerEnded(f"exit code {self._process.wait()}; {PEERS}/workers.log says why")
        return json.loads(line)

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def kill(self):
        self._process.kill()

    def end(self):
        self.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class Crowd:
    """All processes of one contender, which share its clients."""

    def __init__(self, contender, server):
        self.contender, self.server = contender, server
        self.workers = [Worker(contender, server.port) for _ in range(LANGUAGES[contender.language].processes)]

    def ready(self):
        for worker in self.workers:
            worker.hear()

    def ask(self, part, key, clients, seconds, *rest):
        """The clients' counts, the merged histogram, errors, and what the server spent."""
        busy = self.workers[:clients]
        commands, cpu = self.server.commands(), self.server.cpu_us()
        for number, worker in enumerate(busy):
            own = clients // len(busy) + (number < clients % len(busy))
            worker.say(ORDERS.get(part, part), key, own, seconds, *rest)
        answers = [worker.hear() for worker in busy]
        cpu = self.server.cpu_us() - cpu
        waits = collections.Counter()
        for answer in answers:
            waits.update(histogram(answer))
        return {
            "counts": [count for answer in answers for count in answer["counts"]],
            "waits": waits,
            "writers": next((answer["writers"] for answer in answers if answer.get("writers")), None),
            "cpu_us": cpu,
            # The question itself is a command.
            "commands": None if commands is None else self.server.commands() - commands - 1,
        }

    def end(self):
        for worker in self.workers:
            worker.end()


def histogram(answer):
    return collections.Counter({int(bucket): count for bucket, count in answer["waits"].items()})


def quantile(waits, share):
    """In milliseconds."""
    left = math.ceil(share * sum(waits.values()))
    for bucket in sorted(waits):
        left -= waits[bucket]
        if left <= 0:
            return 1.02**bucket / 1e6
    return 0.0


class Rows:
    """The measurements to keep."""

    HEADER = ("part", "contender", "clients", "round", "place", "measure", "value")

    def __init__(self):
        self.rows = []

    def add(self, part, contender, clients, round_, place, **measures):
        for measure, value in measures.items():
            if value is not None:
                self.rows.append((part, contender.title, clients, round_, place, measure, f"{value:.6g}"))


def turns(contenders, round_):
    """In a different order each round, so that no contender always comes first."""
    shift = (round_ - 1) * 7 % len(contenders)
    return enumerate(contenders[shift:] + contenders[:shift], 1)


def side_by_side(rows, contenders, parts, settings):
    """The parts in which servers and processes stay."""
    servers, crowds, found = {}, {}, {}
    try:
        for contender in contenders:
            if contender.server not in servers:
                servers[contender.server] = contender.server()
            found[contender.title] = servers[contender.server]
            crowds[contender.title] = Crowd(contender, servers[contender.server])
        for contender in contenders:
            note(f"warming {contender.title}")
            attempt(crowds, contender, lambda crowd: warm(crowd, parts, settings.warm))
        for round_ in range(1, settings.rounds + 1):
            for part in parts:
                chosen = [each for each in contenders if part in each.parts.split()]
                for clients in settings.clients or CLIENTS[part]:
                    note(f"round {round_}: {part}, {clients} clients")
                    for place, contender in turns(chosen, round_):
                        where = part, clients, round_, place
                        attempt(
                            crowds,
                            contender,
                            lambda crowd, where=where: measure(rows, crowd, *where, settings.seconds or SECONDS),
                        )
        return {title: faults.described(server) for title, server in found.items()}
    finally:
        for crowd in crowds.values():
            crowd.end()
        for server in servers.values():
            server.end()


def attempt(crowds, contender, body):
    """A contender that fails takes no part from then on, and the others go on."""
    crowd = crowds.get(contender.title)
    if crowd is None:
        return
    try:
        body(crowd)
    except WorkerEnded as error:
        note(f"FAILED: {contender.title}: {error}")
        crowd.end()
        del crowds[contender.title]


def rest(part):
    return {"slots": (PERMITS,), "readers": (WRITERS,)}.get(part, ())


def key_of(part, contender, round_):
    """A new one in each round. Different kinds of locks do not share a key."""
    return f"{part}-{round_}-" + "".join(letter for letter in contender.worker if letter.isalnum())


def warm(crowd, parts, seconds):
    """A virtual machine compiles code that runs often. Afterwards all connections are open, too."""
    crowd.ready()
    own = seconds * LANGUAGES[crowd.contender.language].warms
    for part in parts:
        if part in crowd.contender.parts.split():
            crowd.ask(part, key_of(part, crowd.contender, 0), max(CLIENTS[part]), own, *rest(part))


def measure(rows, crowd, part, clients, round_, place, seconds):
    said = crowd.ask(part, key_of(part, crowd.contender, round_), clients, seconds, *rest(part))
    counts, every = said["counts"], sum(said["waits"].values())
    writes = {}
    if said["writers"]:
        waits = histogram(said["writers"])
        every += sum(waits.values())
        writes = {
            "writes_per_second": sum(said["writers"]["counts"]) / seconds,
            "write_p50_ms": quantile(waits, 0.5),
            "write_p99_ms": quantile(waits, 0.99),
        }
    rows.add(
        part,
        crowd.contender,
        clients,
        round_,
        place,
        per_second=sum(counts) / seconds,
        most=max(counts),
        least=min(counts),
        server_us=said["cpu_us"] / max(1, every),
        commands=None if said["commands"] is None else said["commands"] / max(1, every),
        p50_ms=quantile(said["waits"], 0.5),
        p99_ms=quantile(said["waits"], 0.99),
        p999_ms=quantile(said["waits"], 0.999),
        **writes,
    )


def one_by_one(rows, contenders, settings, found):
    """Each contender alone, on a new server. One that fails gets a row that says so. found: gets the servers."""
    clients = settings.clients[0] if settings.clients else CLIENTS["crowd"][0]
    for round_ in range(1, settings.rounds + 1):
        for place, contender in turns(contenders, round_):
            note(f"round {round_}: crowd, {contender.title}")
            try:
                found[contender.title], measures = crowd(contender, clients, settings)
            except WorkerEnded as error:
                note(f"FAILED: {contender.title}: {error}")
                measures = {"failed": 1}
            rows.add("crowd", contender, clients, round_, place, **measures)


def crowd(contender, clients, settings):
    seconds = settings.seconds or CROWD_SECONDS
    with faults.started(contender, Worker, 1, LEASE_MS) as (server, (worker,)):
        version, at_first = faults.described(server), server.resident()
        patience = threading.Timer(PATIENCE, worker.kill)
        patience.start()
        try:
            worker.ask("crowd", "crowd", clients, seconds, clients // CLIENTS_OF_A_LOCK, settings.warm)
            commands, cpu = server.commands(), server.cpu_us()
            worker.hear()
            # The question itself is a command.
            commands = None if commands is None else server.commands() - commands - 1
            cpu = server.cpu_us() - cpu
            resident = server.resident()
            said = worker.hear()
        finally:
            patience.cancel()
    counts, waits = said["counts"], histogram(said)
    return version, {
        "per_second": sum(counts) / seconds,
        "most": max(counts),
        "least": min(counts),
        "server_us": cpu / max(1, sum(counts)),
        "commands": None if commands is None else commands / max(1, sum(counts)),
        "p50_ms": quantile(waits, 0.5),
        "p99_ms": quantile(waits, 0.99),
        "errors": said["errors"],
        "bytes": None if resident is None else (resident - at_first) / clients,
    }


def with_faults(rows, contenders, parts, settings):
    """Each contender has a server of its own, and mostly waits, so several run at the same time."""
    found = {}
    for part in parts:
        body = getattr(faults, part)
        for round_ in range(1, settings.fault_rounds + 1):
            chosen = [each for each in contenders if part in each.parts.split()]
            note(f"round {round_}: {part}")
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE[part]) as pool:
                running = {}
                for place, contender in turns(chosen, round_) if chosen else ():
                    running[pool.submit(body, contender, Worker)] = (contender, place)
                for future in concurrent.futures.as_completed(running):
                    contender, place = running[future]
                    try:
                        found[contender.title], measures = future.result()
                        rows.add(part, contender, 1, round_, place, **measures)
                    except (AssertionError, OSError, WorkerEnded, queue.Empty) as error:
                        note(f"FAILED: {part}: {contender.title}: {error}")
    return found


def note(text):
    print(text, file=sys.stderr, flush=True)


def show(rows):
    """Medians, for the terminal."""
    values = collections.defaultdict(list)
    for part, title, clients, _, _, name, value in rows.rows:
        values[part, clients, name, title].append(float(value))
    for (part, clients, name, title), every in values.items():
        median = sorted(every)[len(every) // 2]
        print(f"{part:9} {clients:3} {name:14} {title:42} {median:12.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; all by default")
    parser.add_argument("--peers", action="append", help="only contenders with this in their title")
    parser.add_argument("--clients", action="append", type=int, help="instead of each part's own numbers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="per contender and round, instead of 2, or 10 in crowd")
    parser.add_argument(
        "--warm", type=float, default=6.0, help="seconds of each part before the first round, in Java; in crowd for all"
    )
    parser.add_argument("--fault-rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="keep nothing")
    settings = parser.parse_args()
    parts = [part for part in PARTS if part in (settings.only or PARTS)]
    contenders = [
        each
        for each in CONTENDERS
        if set(parts) & set(each.parts.split()) and any(name in each.title for name in settings.peers or [""])
    ]
    for contender in [each for each in contenders if each.missing()]:
        note(f"skipped {contender.title}: no {Path(contender.missing()).name}")
        contenders.remove(contender)
    rows, found = Rows(), raw.facts(settings, seconds=settings.seconds or f"{SECONDS:g}, in crowd {CROWD_SECONDS:g}")
    steady = [part for part in parts if part in CLIENTS and part != "crowd"]
    faulty = [part for part in parts if part not in CLIENTS]
    systems = {}
    try:
        if steady:
            able = [each for each in contenders if set(steady) & set(each.parts.split())]
            systems.update(side_by_side(rows, able, steady, settings))
        if "crowd" in parts:
            one_by_one(rows, [each for each in contenders if "crowd" in each.parts.split()], settings, systems)
        if faulty:
            systems.update(with_faults(rows, contenders, faulty, settings))
    finally:  # even partial results, if it is interrupted
        show(rows)
        for each in contenders:
            if each.title in systems:
                found[f"system of {each.title}"] = f"{each.library()}; {systems[each.title]}"
        if not settings.smoke and rows.rows:
            raw.keep("peers", Rows.HEADER, rows.rows, found)


if __name__ == "__main__":
    main()
