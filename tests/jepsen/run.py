#!/usr/bin/env python3
"""Jepsen's lock workloads on the module, Redisson and etcd: scripts/jepsen.sh, which builds what this needs.

    run.py                                       all systems and nemeses, and a table
    run.py --systems etcd --nemeses kill cut     some of them
    run.py --save                                also keeps the results, and writes the table into docs/TESTING.md
    run.py --save --more                         the same, and the table is the sum of these and the earlier results

Each run has one system and one nemesis; all workloads run in it at the same time, on locks of their own. Its servers
and clients have network namespaces of their own, so runs do not disturb each other and need no free ports. Exits
non-zero if a judge accepts a broken lock, or if redis-lock with the grace has two holders although no client was paused
and no clock was moved.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import groups
import judge
import nemesis
import store

RESULTS = groups.ROOT / "tests/jepsen/results"
PAGE = groups.ROOT / "docs/TESTING.md"
SYSTEMS = {
    "redis-lock-grace": "LOCK.*, with the grace",
    "redis-lock": "LOCK.*, without",
    "redisson": "Redisson",
    "etcd": "etcd",
}
CLIENTS = 3
# What the grace covers, if its conditions are met.
COVERED = ("none", "kill", "stop", "cut")
JARS = ("jedis", "redisson", "jetcd-core")


class Client:
    """A client process: its history goes to a file, and its errors to a log."""

    def __init__(self, words, folder, number):
        self.folder, self.number = folder, number
        with open(folder / f"client-{number}.log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.lines, self.is_ready = [], threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line == b"ready\n":
                self.is_ready.set()
            else:
                self.lines.append(line)
        self.is_ready.set()

    def wait_until_ready(self):
        assert self.is_ready.wait(120) and self.process.poll() is None, self.said()

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def said(self):
        return (self.folder / f"client-{self.number}.log").read_text("utf-8", "replace")[-3000:]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)


def run_one(system, name, seed, seconds, folder):
    """One run, in a network namespace of its own. Writes the history and the faults into the folder."""
    network = groups.Network()
    shelf = store.Store()
    group, clients, faults = None, [], []
    try:
        group = groups.start(system, network, clocks=name in ("clock", "all"))
        version = group.version()
        # Each in a namespace of its own, so that a cut can separate them.
        places = [network.add() for _ in range(CLIENTS)]
        java = ["java", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
        for number, place in enumerate(places):
            words = [
                *network.inside(place),
                *java,
                "-cp",
                f"{groups.JEPSEN}/classes:{groups.JEPSEN}/jars/*",
                "Client",
                *map(str, (system, number, seed, seconds, groups.LEASE_MS)),
                f"{network.gateway(place)}:{shelf.port}",
                ",".join(group.servers()),
            ]
            clients.append(Client(words, folder, number))
        for client in clients:
            client.wait_until_ready()
        began = time.monotonic()

        def note(what, detail):
            faults.append({"time": round(time.monotonic() * 1e6), "fault": what, "detail": detail})

        for client in clients:
            client.go()
        nemesis.Nemesis(name, seed, group, network, clients, places, note).run(began + seconds)
        for client in clients:
            try:
                client.process.wait(20)
            except subprocess.TimeoutExpired:
                client.end()
        (folder / "store.json").write_text(json.dumps(shelf.content()))
    finally:
        for client in clients:
            client.end()
        with open(folder / "events.jsonl", "wb") as out:
            # Every line is whole, unless its client was killed.
            out.writelines(line for client in clients for line in client.lines if line.endswith(b"}\n"))
        if group is not None:
            for node in group.nodes:
                shutil.copy(node.folder / "log", folder / f"{node.folder.name}.log")
            group.end()
        network.end()
    (folder / "run.json").write_text(json.dumps({"version": version, "faults": faults}))


def in_namespace(arguments):
    """The words that run this program in namespaces of its own: when it ends, so does everything that it has started.
    Without root it is root of a user namespace."""
    enter = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        enter += ["--user", "--map-root-user"]
    return [*enter, sys.executable, __file__, *map(str, arguments)]


def carry_out(system, name, seed, seconds, out):
    """Runs and judges; returns the run's results."""
    folder = out / f"{system}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = in_namespace(["--one", system, name, seed, seconds, folder])
    with open(folder / "runner.log", "wb") as log:
        done = subprocess.run(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{system}, {name}: {(folder / 'runner.log').read_text('utf-8', 'replace')[-3000:]}")
    facts = json.loads((folder / "run.json").read_text())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    content = json.loads((folder / "store.json").read_text())
    rows = judge.judge(events, content, folder, f"{system}-{name}", seed, groups.JEPSEN / "porcupine")
    faults = sum(fault["fault"] != "repaired" for fault in facts["faults"])
    return {"system": system, "nemesis": name, "version": facts["version"], "faults": faults, "workloads": rows}


def self_test(out):
    """The judges reject a lock that everybody gets: in every workload."""
    rows = {row["workload"]: row for row in carry_out("broken", "none", 1, 3, out)["workloads"]}
    accepted = [
        name for name in ("mutex", "fenced-mutex", "semaphore") if rows[name]["rejected"] < rows[name]["histories"]
    ]
    accepted += [name for name in ("set", "fenced-set") if not rows[name]["lost"]]
    if accepted:
        sys.exit(f"jepsen: FAILED: a lock that everybody gets is accepted in: {', '.join(accepted)}")
    print("jepsen: a lock that everybody gets is rejected in every workload", file=sys.stderr)


def table(runs):
    """The runs as a table in Markdown. Those of the same system and nemesis are added up."""
    sums = {}
    for run in runs:
        rows = sums.setdefault((run["system"], run["nemesis"]), {})
        for row in run["workloads"]:
            numbers = {name: value for name, value in row.items() if name != "workload"}
            rows.setdefault(row["workload"], collections.Counter()).update(numbers)
    head = (
        "system",
        "nemesis",
        "operations",
        "grants",
        "two holders: `mutex`",
        "`fenced-mutex`",
        "too many: `semaphore`",
        "old tokens",
        "histories without an order",
        "set: lost of written",
        "set with token: lost of written",
    )
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for system, name in sorted(sums, key=lambda it: (list(SYSTEMS).index(it[0]), nemesis.NEMESES.index(it[1]))):
        rows = sums[system, name]

        def sum_of(field, rows=rows):
            return f"{sum(row[field] for row in rows.values()):,}"

        def cell(workload, field, rows=rows):
            return str(rows[workload][field]) if workload in rows else "-"

        def lost(workload, rows=rows):
            return f"{rows[workload]['lost']} of {rows[workload]['written']}"

        cells = (
            SYSTEMS[system],
            f"`{name}`",
            sum_of("operations"),
            sum_of("grants"),
            cell("mutex", "too_many"),
            cell("fenced-mutex", "too_many"),
            cell("semaphore", "too_many"),
            cell("fenced-mutex", "stale_tokens"),
            f"{sum_of('rejected')} of {sum_of('histories')}",
            lost("set"),
            lost("fenced-set"),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def save(results, is_more):
    RESULTS.mkdir(exist_ok=True)
    for old in RESULTS.glob("*.json"):
        if not is_more:
            old.unlink()
    path = RESULTS / f"{results['date']}.json"
    path.write_text(as_text(results))
    fill_page()
    print(f"jepsen: kept in {path.relative_to(groups.ROOT)}", file=sys.stderr)


def as_text(results):
    """JSON with one workload a line."""
    head = {name: value for name, value in results.items() if name != "runs"}
    runs = ",\n".join(
        "  {\n"
        + "".join(f'    "{name}": {json.dumps(value)},\n' for name, value in run.items() if name != "workloads")
        + '    "workloads": [\n'
        + ",\n".join(f"      {json.dumps(row)}" for row in run["workloads"])
        + "\n    ]\n  }"
        for run in results["runs"]
    )
    return json.dumps(head, indent=2)[:-2] + f',\n"runs": [\n{runs}\n]\n}}\n'


def fill_page():
    """Writes the sum of all kept results into the page."""
    kept = [run for file in sorted(RESULTS.glob("*.json")) for run in json.loads(file.read_text())["runs"]]
    before, begin, rest = PAGE.read_text().partition("<!-- jepsen -->\n")
    _, end, after = rest.partition("<!-- end of jepsen -->")
    assert end, f"{PAGE} has no place for the table"
    PAGE.write_text(f"{before}{begin}\n{table(kept)}\n\n{end}{after}")


def command(given, seed):
    """What repeats these runs."""
    chosen = [("--systems", given.systems, list(SYSTEMS)), ("--nemeses", given.nemeses, list(nemesis.NEMESES))]
    options = " ".join(" ".join((name, *values)) for name, values, every in chosen if values != every)
    return f"make jepsen SECONDS={given.seconds:.0f} SEED={seed}" + (f" ARGS='{options}'" if options else "")


def versions():
    jars = [path.name for path in (groups.JEPSEN / "jars").iterdir()]
    found = {
        name: re.fullmatch(rf"{name}-(\d[\w.]*)\.jar", jar) for name in JARS for jar in jars if jar.startswith(name)
    }
    return {name: match[1] for name, match in found.items() if match}


def findings(results):
    """Where redis-lock with the grace has more holders than permits, although its conditions were met."""
    for run in results["runs"]:
        if run["system"] == "redis-lock-grace" and run["nemesis"] in COVERED:
            for row in run["workloads"]:
                if row.get("too_many") or row.get("rejected") or row.get("lost"):
                    yield f"{run['nemesis']}, {row['workload']}: {row}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--nemeses", nargs="+", choices=nemesis.NEMESES, default=list(nemesis.NEMESES))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at the same time")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--one", nargs=5, metavar=("SYSTEM", "NEMESIS", "SEED", "SECONDS", "FOLDER"))
    given = parser.parse_args()
    if given.one:
        system, name, seed, seconds, folder = given.one
        return run_one(system, name, int(seed), float(seconds), Path(folder))
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"jepsen: seed {seed}, {given.seconds:.0f} s for each run", file=sys.stderr)
    out = groups.JEPSEN / "runs"
    self_test(out)
    wanted = [(s, n) for s in given.systems for n in given.nemeses if not (s == "etcd" and n == "clock")]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        runs = []
        waiting = [pool.submit(carry_out, system, name, seed, given.seconds, out) for system, name in wanted]
        for run in (future.result() for future in waiting):
            runs.append(run)
            print(f"jepsen: {run['system']}, {run['nemesis']}: {run['faults']} faults", file=sys.stderr)
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=groups.ROOT)
    results = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ"),
        "commit": commit.stdout.strip(),
        "command": command(given, seed),
        "seed": seed,
        "seconds": given.seconds,
        "lease_ms": groups.LEASE_MS,
        "margin_ms": groups.MARGIN_MS,
        "grace_ms": groups.GRACE_MS,
        "versions": {**versions(), **{SYSTEMS[run["system"]]: run["version"] for run in runs}},
        "runs": runs,
    }
    (groups.JEPSEN / "results.json").write_text(json.dumps(results, indent=1))
    print(table(runs))
    if given.save:
        save(results, given.more)
    if found := list(findings(results)):
        sys.exit("jepsen: FAILED: with the grace:\n" + "\n".join(found))
    return None


if __name__ == "__main__":
    main()
