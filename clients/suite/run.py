"""Runs every scenario in one language, with each of its client libraries, against real servers.

    python3 clients/suite/run.py python
    python3 clients/suite/run.py python --only fork --client redis-py
    python3 clients/suite/run.py python --in-turn    each scenario with one of the client libraries: half the time
    python3 clients/suite/run.py python --share 3    a third of the scenarios, a different one in each language

The exit status is not zero if a scenario failed. All failures are printed again at the end, with the drivers' and
servers' logs.
The last line is `N passed, N failed, N skipped`.
"""

import argparse
import concurrent.futures
import importlib
import inspect
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from driver import Cannot
from drivers import LANGUAGES
from stage import SCENARIOS, Skip, Stage

import scenarios

# Files with scenarios that take ten seconds or more. They spend nearly all of that time waiting, so many run at once.
LONG = ("once", "groups", "faults", "portable", "testing", "waiting")
AT_ONCE = 6 * (os.cpu_count() or 1)
# Up to these times, in seconds, a machine does not need longer leases: how late a thread wakes, and how long an order
# takes. One of sixty may be slower, because a single hiccup means nothing. A factor above MOST would cost more than it
# saves.
LATE, SLOW, MOST = 0.01, 0.02, 4.0
# A scenario that hangs fails after this time, in seconds, and does not hold up the others.
LIMIT = 1_200


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=LANGUAGES)
    parser.add_argument("--client", action="append", help="run only this client library")
    parser.add_argument("--all", action="store_true", help="also run the client libraries that only run at night")
    parser.add_argument("--in-turn", action="store_true", help="run each scenario with one client library, in turn")
    parser.add_argument("--share", type=int, default=1, metavar="N",
                        help="run one of N parts of the scenarios; N languages that follow one another run all of them")
    parser.add_argument("--only", default="", help="run only scenarios with this in their name or file")
    parser.add_argument("--at-once", type=int, help=f"scenarios to run at once: {AT_ONCE}, fewer on a slow machine")
    parser.add_argument("--bounds", action="store_true", help="run only scenarios whose leases must be renewed in time")
    parser.add_argument("--times", type=int, default=1, help="run each scenario this many times")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    args = parser.parse_args()

    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"scenarios.{module.name}")
    chosen = [play for play in SCENARIOS if args.only in f"{play.__module__.split('.')[-1]}::{play.__name__}"]
    if args.bounds:
        chosen = [play for play in chosen if _has_bound(play)]
    chosen = _share(chosen, list(LANGUAGES).index(args.language), args.share)
    if args.list:
        for play in chosen:
            print(_name(play), " ".join(play.rules))
        return 0
    language = LANGUAGES[args.language]
    if not os.path.exists(language["built"]):
        print(f"{language['built']} is missing: scripts/test-clients.sh {args.language} prepares it, and runs all scenarios")
        return 2
    clients = args.client or language["clients"] + (language.get("more", []) if args.all else [])
    # On SIGTERM the servers must end with the runner.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The longest start first, because otherwise they would run alone at the end.
    chosen.sort(key=lambda play: play.__module__.split(".")[-1] not in LONG)
    jobs = [job for _ in range(args.times) for job in _jobs(chosen, clients, args.in_turn)]
    slowness = _slowness(language, clients[0])
    # Fewer run at once on a slow machine, because each driver takes a share of it.
    at_once = args.at_once or max(2, round(AT_ONCE / slowness))
    print(f"leases are {slowness:.1f} times as long as on an idle machine; {at_once} scenarios at once", flush=True)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        played = {pool.submit(_play_with_one, play, some, language, slowness): play for play, some in jobs}
        for done in concurrent.futures.as_completed(played):
            play = played[done]
            client, verdict, seconds, why = done.result()
            counts[verdict] += 1
            line = f"{verdict:7} {client:18} {_name(play):60} {seconds:5.1f} s"
            print(line if verdict == "passed" else f"{line}  {why.rpartition(chr(10))[2]}", flush=True)
            if verdict == "failed":
                failures.append(f"{line}\n{why}")
    for failure in failures:
        print(f"\n{failure}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0


def _slowness(language, client):
    """How slow this machine is now, at least 1. Measures how late threads wake and how long a trivial order takes."""
    stage = Stage([*language["command"], client], language["environment"])
    try:
        driver = stage.opened(stage.server())
        late, took = [], []
        for turn in range(60):
            began = time.monotonic()
            time.sleep(0.005)
            slept = time.monotonic()
            driver.do("raw", manager="m", args=["PING"])
            late.append(slept - began - 0.005)
            if turn >= 10:  # warmed up
                took.append(time.monotonic() - slept)
        return min(MOST, max(1.0, sorted(late)[-2] / LATE, sorted(took)[-2] / SLOW))
    finally:
        stage.end()


def _share(chosen, language, parts):
    """The part of the scenarios that falls to a language by its number."""
    # Other bits of the number than those that choose the library, so that each library gets half of each part.
    return [play for play in chosen if ((_number(play) >> 8) + language) % parts == 0]


def _jobs(chosen, clients, in_turn):
    """Scenarios, each with the client libraries of which one has to play it."""
    if not in_turn:
        return [(play, [client]) for play in chosen for client in clients]
    turns = [_number(play) % len(clients) for play in chosen]
    return [(play, clients[turn:] + clients[:turn]) for play, turn in zip(chosen, turns)]


def _play_with_one(play, clients, language, slowness):
    """With the first library that can play it."""
    for client in clients:
        verdict, seconds, why = _play(play, client, language, slowness)
        if verdict != "skipped":
            break
    return client, verdict, seconds, why


def _play(play, client, language, slowness):
    began = time.monotonic()
    stage = Stage([*language["command"], client], language["environment"], slowness)
    limit = threading.Timer(LIMIT, stage.kill)
    limit.daemon = True
    limit.start()
    try:
        if play.needs:
            stage.need(stage.driver(), *play.needs)
        play(stage)
        verdict, why = "passed", ""
    except (Skip, Cannot) as reason:
        verdict, why = "skipped", str(reason)
    except BaseException as error:
        verdict = "failed"
        why = "".join(f"--- driver\n{driver.tail()}\n" for driver in stage.drivers)
        why += "".join(f"--- server {server.port}\n{server.log()}\n" for server in stage.servers)
        why += "".join(traceback.format_exception(error)).rstrip()
        if time.monotonic() - began > LIMIT:
            why += f"\nit hung for {LIMIT} s"
    finally:
        limit.cancel()
        stage.end()
    return verdict, time.monotonic() - began, why


def _has_bound(play):
    """Whether the scenario, or a function that it calls, asks for a lease that is longer on a slow machine."""
    called = [play, *(play.__globals__.get(name) for name in play.__code__.co_names)]
    sources = [inspect.getsource(it) for it in called if inspect.isfunction(it)]
    return any("stage.lease(" in source or "world.ms(" in source for source in sources)


def _number(play):
    """From its name, so that a scenario stays with its languages and libraries whatever is chosen."""
    return zlib.crc32(_name(play).encode())


def _name(play):
    return f"{play.__module__.split('.')[-1]}::{play.__name__}"


if __name__ == "__main__":
    sys.exit(main())
