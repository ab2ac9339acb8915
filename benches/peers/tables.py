"""Fills the tables of docs/COMPARED.md from the newest raw runs of the comparison, each the median of its rounds.

In README.md, whose other tables are filled by `cargo bench`, the comment before a table says `peers` instead of `table`.

    python3 benches/peers/tables.py

A part comes from the newest run that contains it. A contender that this run lacks has no row.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import raw
from contenders import CONTENDERS, PARTS
from raw import ROOT, markdown, number

PAGES = (ROOT / "docs/COMPARED.md", ROOT / "README.md")
# The other contenders are compared with it.
OURS = CONTENDERS[0].title


def newest(part):
    return next((run for run in raw.runs("peers", KEY) if any(key[0] == part for key in run.values)), None)


KEY = ("part", "clients", "contender", "measure")


def rows_of(part, clients, measure):
    """The run, and the contenders that it measured."""
    run = newest(part)
    has = lambda each: run and (part, str(clients), each.title, measure) in run.values
    return run, [each for each in CONTENDERS if has(each)]


def shared(part, clients, ours=OURS):
    """A lock or semaphore that all clients want. ours: whose hand-offs are divided by those of each, if any."""
    run, contenders = rows_of(part, clients, "per_second")
    rows = []
    for each in contenders:

        def value(measure, title=each.title):
            return run.median(part, clients, title, measure)

        first = value("per_second", ours)
        rows.append(
            [
                each.title,
                each.served,
                number(value("per_second")),
                *([f"{first / value('per_second'):.3g}" if first and value("per_second") else ""] if ours else []),
                f"{value('most'):.0f} / {value('least'):.0f}",
                number(value("p50_ms"), 1),
                number(value("p99_ms"), 1),
                number(value("p999_ms"), 1),
                number(value("server_us"), 1) if value("server_us") else "",
                number(value("commands"), 1),
            ]
        )
    header = [
        "lock",
        "served",
        "hand-offs/s",
        *(["LOCK.* over Jedis to it"] if ours else []),
        "most / least served",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "server CPU, µs each",
        "commands each",
    ]
    return markdown(header, rows, 2)


def readers():
    run, contenders = rows_of("readers", 204, "per_second")
    rows = []
    for each in contenders:

        def value(measure, title=each.title):
            return run.median("readers", 204, title, measure)

        rows.append(
            [
                each.title,
                number(value("per_second")),
                number(value("writes_per_second")),
                *(number(value(measure), 1) for measure in ("p50_ms", "p99_ms", "write_p50_ms", "write_p99_ms")),
                f"{value('most'):.0f} / {value('least'):.0f}",
                number(value("server_us"), 1) if value("server_us") else "",
                number(value("commands"), 1),
            ]
        )
    header = [
        "lock",
        "reads/s",
        "writes/s",
        "reader's p50, ms",
        "p99, ms",
        "writer's p50, ms",
        "p99, ms",
        "reader most / least served",
        "server CPU, µs each",
        "commands each",
    ]
    return markdown(header, rows)


def crowd():
    """Also those that did not finish."""
    run = newest("crowd")
    rows = []
    for each in CONTENDERS:

        def value(measure, title=each.title):
            return run.median("crowd", 10_000, title, measure)

        def rounds(measure, title=each.title):
            return len(run.values.get(("crowd", "10000", title, measure), []))

        if not run or not rounds("per_second") + rounds("failed"):
            continue
        if not rounds("per_second"):
            rows.append([each.title, each.served, "did not finish", *[""] * 7])
            continue
        rate = number(value("per_second"))
        if rounds("failed"):
            rate += f" (finished {rounds('per_second')} of {rounds('per_second') + rounds('failed')})"
        rows.append(
            [
                each.title,
                each.served,
                rate,
                f"{value('most'):.0f} / {value('least'):.0f}",
                number(value("p50_ms")),
                number(value("p99_ms")),
                number(value("server_us"), 1),
                number(value("commands"), 1),
                number(value("bytes")),
                number(value("errors")),
            ]
        )
    header = [
        "lock",
        "served",
        "hand-offs/s",
        "most / least served",
        "p50, ms",
        "p99, ms",
        "server CPU, µs each",
        "commands each",
        "server memory, bytes a client",
        "gave up",
    ]
    return markdown(header, rows, 2)


def main_rows():
    """For the README."""
    run, contenders = rows_of("hot", 64, "per_second")
    chosen = (OURS, "Redisson FairLock", "etcd concurrency.Mutex", "PostgreSQL advisory lock")
    rows = [
        [
            each.title,
            number(run.median("hot", 64, each.title, "per_second")),
            number(run.median("hot", 64, each.title, "p99_ms"), 1),
            number(run.median("hot", 64, each.title, "server_us"), 1),
        ]
        for each in contenders
        if each.title in chosen
    ]
    return markdown(["64 clients, one lock", "hand-offs/s", "p99 of the wait, ms", "server CPU, µs each"], rows)


def free():
    run, contenders = rows_of("free", 1, "per_second")
    rows = []
    for each in contenders:

        def value(clients, measure, title=each.title, scale=1.0):
            found = run.median("free", clients, title, measure)
            return None if found is None else found * scale

        times = [number(value(1, measure, scale=1000)) for measure in ("p50_ms", "p99_ms", "p999_ms")]
        more = [
            number(value(clients, measure), digits)
            for clients in (8, 64)
            for measure, digits in (("per_second", 0), ("p50_ms", 2), ("p99_ms", 2), ("p999_ms", 2))
        ]
        rows.append(
            [
                each.title,
                number(value(1, "per_second")),
                *times,
                number(value(1, "server_us"), 1),
                *more,
                number(value(64, "server_us"), 1),
            ]
        )
    header = [
        "lock",
        "1 client: pairs/s",
        "p50, µs",
        "p99, µs",
        "p99.9, µs",
        "server CPU, µs each",
        "8 clients: pairs/s",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "64 clients: pairs/s",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "server CPU, µs each",
    ]
    return markdown(header, rows)


def killed():
    run, contenders = rows_of("killed", 1, "seconds")
    rows = [
        [
            each.title,
            number(run.median("killed", 1, each.title, "seconds"), 2),
            number(max(run.values["killed", "1", each.title, "seconds"]), 2),
        ]
        for each in contenders
    ]
    return markdown(["lock", "next holder after, s", "longest, s"], rows)


def restarted():
    run, contenders = rows_of("restarted", 1, "seconds")
    rows = [
        [
            each.title,
            *(number(run.median("restarted", 1, each.title, measure), 2) for measure in ("seconds", "server_seconds")),
        ]
        for each in contenders
    ]
    return markdown(["lock", "without a grant, s", "of that, server start, s"], rows)


def lost():
    """Sums, because a single lost update counts."""
    run, contenders = rows_of("lost", 1, "accepted")
    fenced = newest("fenced")
    rows = []
    for each in contenders:

        def total(found, part, measure, title=each.title):
            values = found.values.get((part, "1", title, measure)) if found else None
            return "" if values is None else f"{sum(values):.0f}"

        measured = [total(run, "lost", measure) for measure in ("accepted", "outdated", "lost")]
        guarded = [total(fenced, "fenced", measure) for measure in ("accepted", "outdated", "lost", "refused")]
        rows.append([each.title, *measured, *guarded])
    header = ["lock", "writes", "outdated", "lost", "with tokens: writes", "outdated", "lost", "refused"]
    return markdown(header, rows)


def systems():
    rows = {}
    for run in reversed(list(raw.runs("peers", KEY))):
        for name, fact in run.facts.items():
            if name.startswith("system of "):
                rows[name.removeprefix("system of ")] = fact.split("; ", 2)
    return markdown(
        ["lock", "library", "server", "settings"],
        [[each.title, *rows[each.title]] for each in CONTENDERS if each.title in rows],
        4,
    )


def runs():
    used = {part: newest(part) for part in PARTS}
    rows = [
        [
            part,
            run.link(PAGES[0].parent),
            run.facts["module"],
            run.facts["load before"],
            run.facts["command"],
        ]
        for part, run in used.items()
        if run
    ]
    return markdown(["part", "run", "module", "load before", "command"], rows, 5)


TABLES = {
    "hot 64": lambda: shared("hot", 64),
    "hot 16": lambda: shared("hot", 16),
    "slots": lambda: shared("slots", 64),
    "durable 64": lambda: shared("durable", 64, f"{OURS}, on disk"),
    "durable 1": lambda: shared("durable", 1, f"{OURS}, on disk"),
    "replicated 64": lambda: shared("replicated", 64, None),
    "replicated 1": lambda: shared("replicated", 1, None),
    "readers": readers,
    "crowd": crowd,
    "main": main_rows,
    "free": free,
    "killed": killed,
    "restarted": restarted,
    "lost": lost,
    "systems": systems,
    "runs": runs,
}


def main():
    for page, word in zip(PAGES, ("table", "peers"), strict=True):
        raw.fill(page, TABLES, word)


if __name__ == "__main__":
    main()
