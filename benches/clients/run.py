"""Compares the packages in clients/ with raw commands through the same library, and with common lock libraries.

    make bench-clients                                     # all parts and languages: about forty minutes
    python3 benches/clients/run.py pair hot --language python --rounds 5

| part | measures |
|---|---|
| pair | acquire and release of a free lock, one process: elapsed and CPU microseconds |
| hot | 16 processes on one lock: hand-offs per second, CPU of each, most to least served, 99th percentile of the wait |
| waits | 1,000 waits in one process: connections, memory |
| start | time to start a program that imports the package, compared with one that imports only the library |
| trips | round trips of acquire and release, behind a relay that adds 1 ms each way |
| script | as `hot`, without the module (where the packages wait in the script's queue), and with it; also the server's CPU |

A worker is one process of one contender. It prints `ready`, then answers each line of its input with a line of JSON:
`pair COUNT` with seconds; `hot KEY SECONDS` with the waits of its grants, in microseconds; `crowd KEY SECONDS CLIENTS`
with such a list for each client; `waits COUNT` at once; `rss` with its resident memory in KB. The replies to the first
three also contain CPU seconds. On a busy machine, CPU time is
more reliable than elapsed time. Contenders take turns in each round. Every round is kept as CSV in benches/runs, unless
--smoke is given.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "clients/suite"), str(ROOT / "benches")]

import raw  # noqa: E402
from relay import Relay  # noqa: E402
from resp import Connection  # noqa: E402
from servers import Server, until  # noqa: E402

HERE = Path(__file__).resolve().parent
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "clients"
PYTHON = str(BUILT / "serverlock-python/bin/python")
NODE = shutil.which("node") or "node"
JAVA = [shutil.which("java") or "java", "-cp",
        ":".join(str(BUILT / "serverlock-java" / part) for part in ("bench", "classes", "dependency/*"))]
RUST = str(BUILT / "serverlock-rust/release/worker")
PHP = shutil.which("php") or "php"
RUBY = shutil.which("ruby") or "ruby"
PARTS = ("pair", "hot", "waits", "start", "trips", "script")
# This many rounds of pairs run before the first measured one, because a virtual machine compiles code that runs often.
WARM = 5

LANGUAGES = {
    "python": {
        "needs": [PYTHON],
        "worker": [PYTHON, str(HERE / "worker.py")],
        "environment": {"PYTHONPATH": str(ROOT / "clients/python/src"), "PYTHONDONTWRITEBYTECODE": ""},
        # The package, then the contenders that it is compared with, raw commands first.
        "groups": [
            ["redis-py package", "redis-py raw", "redis-py raw with ID", "redis-py Lock"],
            ["redis.asyncio package", "redis.asyncio raw", "redis.asyncio Lock"],
        ],
        "has_crowds": True,
        "scripts": ["redis.asyncio Lock"],
        "start": {"redis-py raw": [PYTHON, "-c", "import redis"],
                  "redis-py package": [PYTHON, "-c", "import redis, serverlock"]},
    },
    "node": {
        "needs": [BUILT / "serverlock-node/dist/index.js", BUILT / "serverlock-node/node_modules/redlock"],
        "worker": [NODE, str(HERE / "worker.mjs")],
        "environment": {"SERVERLOCK": str(BUILT / "serverlock-node")},
        "groups": [
            ["node-redis package", "node-redis raw"],
            ["ioredis package", "ioredis raw", "ioredis redlock"],
        ],
        "has_crowds": True,
        "scripts": ["ioredis redlock"],
        "start": {"node-redis raw": [NODE, "-e", f"require('{BUILT}/serverlock-node/node_modules/redis')"],
                  "node-redis package": [NODE, "-e", f"require('{BUILT}/serverlock-node/node_modules/redis'); "
                                                     f"import('{BUILT}/serverlock-node/dist/index.js')"]},
    },
    "php": {
        "needs": [PHP],
        "worker": [PHP, str(HERE / "worker.php")],
        "environment": {},
        "groups": [
            ["phpredis package", "phpredis raw", "phpredis symfony"],
            ["predis package", "predis raw", "predis symfony"],
        ],
        # The minimum that a request loads: the classes of one lock.
        "start": {"phpredis raw": [PHP, "-r", "new Redis();"],
                  "phpredis package": [PHP, "-r", f"require '{ROOT}/clients/php/tests/autoload.php'; "
                                                  "(new Serverlock\\Locks(new Redis()))->lock('a', 30.0);"]},
        "is_single": True,  # a process has one wait at a time
    },
    "ruby": {
        "needs": [RUBY],
        "worker": [RUBY, str(HERE / "worker.rb")],
        "environment": {},
        "groups": [["redis-rb package", "redis-rb raw", "redis-rb redlock"]],
        "start": {"redis-rb raw": [RUBY, "-e", "require 'redis'"],
                  "redis-rb package": [RUBY, "-e", f"require '{ROOT}/clients/ruby/lib/serverlock'"]},
    },
    "go": {
        "needs": [BUILT / "serverlock-go/bench"],
        "worker": [str(BUILT / "serverlock-go/bench")],
        "environment": {},
        "groups": [["go-redis package", "go-redis raw", "go-redis redsync", "go-redis redislock"]],
        "start": {},  # nothing is loaded: the package is compiled into the program
    },
    "java": {
        "needs": [BUILT / "serverlock-java/bench/Worker.class"],
        "worker": [*JAVA, "Worker"],
        "environment": {},
        "groups": [
            ["jedis package", "jedis raw", "redisson RLock"],
            ["lettuce package", "lettuce raw"],
        ],
        "has_crowds": True,
        # Other locks, which work without the module.
        "scripts": ["redisson FairLock", "redisson RLock"],
        "start": {"jedis raw": [*JAVA, "Start", "jedis"], "jedis package": [*JAVA, "Start", "package"]},
    },
    "rust": {
        "build": ["cargo", "build", "--quiet", "--release", "--manifest-path", str(HERE / "rust/Cargo.toml"),
                  "--target-dir", str(BUILT / "serverlock-rust")],
        "needs": [RUST],
        "worker": [RUST],
        "environment": {},
        "groups": [
            ["redis package", "redis raw"],
            ["redis-tokio package", "redis-tokio raw", "redis-tokio rslock"],
        ],
        # A program in Rust has nothing to import.
        "start": {},
    },
}


class Worker:
    def __init__(self, language, contender, port):
        environment = {**os.environ, **language["environment"]}
        self._process = subprocess.Popen([*language["worker"], contender, str(port)], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self._process.pid

    def ready(self):
        line = self._process.stdout.readline().strip()
        assert line == "ready", f"the worker said {line!r}"
        return self

    def say(self, *words):
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()

    def hear(self):
        return json.loads(self._process.stdout.readline())

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def end(self):
        self._process.kill()
        self._process.wait()


class Rows:
    """The measurements to keep."""

    HEADER = ("part", "contender", "round", "place", "measure", "value")

    def __init__(self):
        self.rows = []

    def add(self, part, contender, round_, place, **measures):
        for measure, value in measures.items():
            self.rows.append((part, contender, round_, place, measure, f"{value:.6g}"))

    def median(self, part, contender, measure):
        values = [float(row[5]) for row in self.rows if (row[0], row[1], row[4]) == (part, contender, measure)]
        return statistics.median(values) if values else None


def turns(contenders, round_):
    """In a different order each round, so that no contender always comes first."""
    shift = round_ % len(contenders)
    return enumerate(contenders[shift:] + contenders[:shift], 1)


def pair(rows, language, server, settings):
    for group in language["groups"]:
        workers = {name: Worker(language, name, server.port).ready() for name in group}
        try:
            for worker in workers.values():
                worker.ask("pair", settings.pairs * WARM)
            for round_ in range(1, settings.rounds + 1):
                for place, name in turns(group, round_):
                    seconds, cpu = workers[name].ask("pair", settings.pairs)
                    rows.add("pair", name, round_, place, us=seconds / settings.pairs * 1e6,
                             cpu_us=cpu / settings.pairs * 1e6)
        finally:
            for worker in workers.values():
                worker.end()


def hot(rows, language, server, settings):
    """The processes are kept from round to round. 16 processes share one lock, so each gets few grants in a round, but
    a service's processes live long and are compiled. So before the first round, each first gets many grants, alone."""
    for group in language["groups"]:
        crowds = {name: [Worker(language, name, server.port) for _ in range(settings.processes)] for name in group}
        try:
            for name, workers in crowds.items():
                for worker in workers:
                    worker.ready()
                _at_once(workers, "hot", _hot_key(name), min(1, settings.seconds))  # opens the connections for waits
                for worker in workers:
                    worker.say("hot", f"{_hot_key(name)}:{worker.pid}", settings.warm)
                for worker in workers:
                    worker.hear()
            for round_ in range(1, settings.rounds + 1):
                for place, name in turns(group, round_):
                    answers = _at_once(crowds[name], "hot", _hot_key(name), settings.seconds)
                    waits = [each for each, _ in answers]
                    counts, every = [len(each) for each in waits], sorted(wait for each in waits for wait in each)
                    rows.add("hot", name, round_, place, per_second=sum(counts) / settings.seconds,
                             most_to_least=max(counts) / max(1, min(counts)),
                             cpu_us=sum(cpu for _, cpu in answers) / len(every) * 1e6,
                             p50_ms=every[len(every) // 2] / 1000, p99_ms=every[len(every) * 99 // 100] / 1000)
        finally:
            for worker in itertools.chain(*crowds.values()):
                worker.end()


def script(rows, language, server, settings):
    """A contender's processes end with its turn; otherwise they would renew and acquire during the others' turns."""
    plain = Server(module=False)
    packages = [group[0] for group in language["groups"]]
    contenders = [(name, name, plain) for name in packages + language.get("scripts", [])]
    contenders += [(f"{name}, module", name, server) for name in packages]
    try:
        for round_ in range(1, settings.rounds + 1):
            for place, (title, name, used_server) in turns(contenders, round_):
                workers = [Worker(language, name, used_server.port) for _ in range(settings.processes)]
                try:
                    for worker in workers:
                        worker.ready()
                    _waits_of_clients(workers, name, settings.warm / 10, settings.clients)
                    before = _cpu_us(used_server)
                    waits = _waits_of_clients(workers, name, settings.seconds, settings.clients)
                    used = _cpu_us(used_server) - before
                finally:
                    for worker in workers:
                        worker.end()
                counts, every = [len(each) for each in waits], sorted(itertools.chain(*waits))
                rows.add("script", title, round_, place, per_second=sum(counts) / settings.seconds,
                         server_us=used / len(every), most_to_least=max(counts) / max(1, min(counts)),
                         p50_ms=every[len(every) // 2] / 1000, p99_ms=every[len(every) * 99 // 100] / 1000)
    finally:
        plain.end()


def _waits_of_clients(workers, name, seconds, clients):
    if clients == 1:
        return [waits for waits, _ in _at_once(workers, "hot", _hot_key(name), seconds)]
    return list(itertools.chain(*(waits for waits, _ in _at_once(workers, "crowd", _hot_key(name), seconds, clients))))


def _cpu_us(server):
    """The CPU time of the server's main thread."""
    pid = server.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1000


def _at_once(workers, *words):
    for worker in workers:
        worker.say(*words)
    return [worker.hear() for worker in workers]


def _hot_key(name):
    """Different kinds of locks do not share a key."""
    return "hot:" + "".join(letter for letter in name if letter.isalnum())


def waits(rows, language, server, settings):
    if language.get("is_single"):
        return
    count = settings.waits
    conn = Connection(server.port)
    for number in range(count):
        conn.call("LOCK.ACQUIRE", f"waits:{number}", "PX", 600000)
    for group in language["groups"]:
        name = group[0]
        before = _connections(conn)
        worker = Worker(language, name, server.port).ready()
        try:
            first = worker.ask("rss")
            worker.ask("waits", count)
            until("all wait", lambda: conn.call("LOCK.INFO", f"waits:{count - 1}") and _waiting(conn) >= count, 60)
            most = max(_connections(conn) for _ in range(20) if time.sleep(0.2) is None) - before
            rows.add("waits", name, 1, 1, connections=most, kb_each=(worker.ask("rss") - first) / count)
        finally:
            worker.end()
        until("nobody waits", lambda: _give_up(conn, count), 60)
    conn.close()


def _waiting(conn):
    fields = dict(line.split(":", 1) for line in conn.call("INFO", "lock").splitlines() if ":" in line)
    return int(fields["lock_waiters"])


def _give_up(conn, count):
    """The worker is dead; its attempts end when their turn comes."""
    for number in range(count):
        for entry in conn.map("LOCK.INFO", f"waits:{number}", "FULL").get("queue") or []:
            conn.call("LOCK.CANCEL", f"waits:{number}", dict(zip(entry[::2], entry[1::2], strict=True))["id"])
    return _waiting(conn) == 0


def _connections(conn):
    return len(conn.call("CLIENT", "LIST").splitlines())


def start(rows, language, server, settings):
    names = list(language["start"])
    for round_ in range(1, 4 * settings.rounds + 1 if names else 0):
        for place, name in turns(names, round_):
            began = time.perf_counter()
            subprocess.run(language["start"][name], env={**os.environ, **language["environment"]}, check=True)
            rows.add("start", name, round_, place, ms=(time.perf_counter() - began) * 1000)


def trips(rows, language, server, settings):
    """Only one request is in flight at a time, so each is a round trip."""
    relay = Relay(server.port, delay=0.001)
    for group in language["groups"]:
        for name in group:
            worker = Worker(language, name, relay.port).ready()
            try:
                before = relay.asked
                seconds, _ = worker.ask("pair", 100)
                rows.add("trips", name, 1, 1, trips=(relay.asked - before) / 100, ms=seconds * 10)
            finally:
                worker.end()
    relay.end()


def show(rows):
    """Medians, and the ratio to raw commands where there is one."""
    for part, measure in (("pair", "us"), ("pair", "cpu_us"), ("hot", "per_second"), ("hot", "cpu_us"),
                          ("hot", "most_to_least"), ("hot", "p50_ms"),
                          ("hot", "p99_ms"), ("waits", "connections"), ("waits", "kb_each"), ("start", "ms"),
                          ("trips", "trips"), ("trips", "ms"), ("script", "per_second"), ("script", "server_us"),
                          ("script", "most_to_least"), ("script", "p50_ms"), ("script", "p99_ms")):
        names = dict.fromkeys(row[1] for row in rows.rows if row[0] == part)
        for name in names:
            value, raw = rows.median(part, name, measure), rows.median(part, f"{name.split(' ')[0]} raw", measure)
            ratio = f"{value / raw:6.2f} of raw" if raw else ""
            print(f"{part:6} {measure:14} {name:24} {value:10.2f} {ratio}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"one or more of {', '.join(PARTS)}; all by default")
    parser.add_argument("--language", action="append", choices=LANGUAGES)
    parser.add_argument("--library", default="", help="only contenders with this in their name")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=4000, help="per round")
    parser.add_argument("--seconds", type=float, default=3.0, help="per round of the hot lock")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds for which each process first works alone")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--clients", type=int, default=1, help="of each process, in the part script")
    parser.add_argument("--waits", type=int, default=1000)
    parser.add_argument("--smoke", action="store_true", help="keep nothing")
    settings = parser.parse_args()
    for part in settings.part:
        if part not in PARTS:
            parser.error(f"no part {part}: {', '.join(PARTS)}")
    for language in LANGUAGES.values():
        chosen = [[name for name in group if settings.library in name] for group in language["groups"]]
        language["groups"] = [group for group in chosen if group]
    for name in settings.language or LANGUAGES:
        if settings.clients > 1 and "has_crowds" not in LANGUAGES[name]:
            parser.error(f"a process in {name} is one client")
        if "build" in LANGUAGES[name]:
            subprocess.run(LANGUAGES[name]["build"], check=True)
        for file in LANGUAGES[name]["needs"]:
            if not Path(file).exists():
                parser.error(f"no {file}: `make test-clients` builds it")
    rows, server = Rows(), Server()
    try:
        with contextlib.closing(Connection(server.port)) as conn:
            found = raw.facts(settings, conn)
        for part in settings.part or PARTS:
            for name in settings.language or LANGUAGES:
                print(f"{part} {name}", file=sys.stderr, flush=True)
                globals()[part](rows, LANGUAGES[name], server, settings)
    finally:  # even partial results, if it is interrupted
        server.end()
        show(rows)
        if not settings.smoke and rows.rows:
            raw.keep(f"clients-{found['server']}", Rows.HEADER, rows.rows, found)


if __name__ == "__main__":
    main()
