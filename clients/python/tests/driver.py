"""Plays the orders of clients/suite with this package: `driver.py redis-py`, or another of NAMES."""

import importlib
import json
import logging
import os
import sys
import threading
import time
import traceback

import serverlock

NAMES = ("redis-py", "valkey-py", "redis-py-asyncio", "valkey-py-asyncio")
CAN = [
    "sentinel",
    "cluster",
    "tls",
    "unix",
    "fork",
    "drop",
    "background",
    "session",
    "leader",
    "pooled",
    "storm",
    "census",
    "clock",
    "refusals",
    "scopes",
    "moves",
    "few_threads",
    "half_open",
]

_writing = threading.Lock()


class Work(Exception):
    """The error of a body."""


def say(**line):
    with _writing:
        print(json.dumps(line), flush=True)


def answer(order, ok):
    say(n=order["n"], ok=ok or {})


def answer_error(order, error):
    if isinstance(error, serverlock.LockError):
        kind, text = error.code, str(error)
    elif isinstance(error, Work):
        kind, text = "work", str(error)
    elif isinstance(error, NotImplementedError):
        kind, text = "cannot", str(error)
    elif type(error).__name__ == "CancelledError":
        kind, text = "cancelled", ""
    else:
        kind, text = "unknown", "".join(traceback.format_exception(error))
    say(n=order["n"], error={"kind": kind, "text": text})


class Told(serverlock.Hooks):
    """Tells the suite of each hook."""

    def __init__(self, manager):
        self._manager = manager

    def granted(self, key, waited):
        say(event="hook", manager=self._manager, name="granted", key=key, waited_ms=waited * 1000)

    def refused(self, key, waited, error):
        say(event="hook", manager=self._manager, name="refused", key=key, waited_ms=waited * 1000)

    def lost(self, key, held, error):
        say(event="hook", manager=self._manager, name="lost", key=key, held_ms=held * 1000)

    def released(self, key, held, in_time):
        say(event="hook", manager=self._manager, name="released", key=key, held_ms=held * 1000)


def client_of(library, at, options):
    """A client of redis or valkey, or of their asyncio twins."""
    root = library.split("-")[0]
    is_async = library.endswith("asyncio")
    name = {"redis": "Redis", "valkey": "Valkey"}[root]
    module = importlib.import_module(f"{root}.asyncio" if is_async else root)
    auth = {field: at[name] for field, name in (("username", "user"), ("password", "password")) if name in at}
    more = {**auth, "protocol": options.get("protocol", 2)}
    if "tls" in at:
        more |= {"ssl": True, "ssl_ca_certs": at["tls"]["ca"], "ssl_check_hostname": False}
    if at["kind"] == "single":
        return getattr(module, name)(host=at["host"], port=at["port"], **more)
    if at["kind"] == "unix":
        return getattr(module, name)(unix_socket_path=at["path"], **more)
    if at["kind"] == "sentinel":
        sentinel = importlib.import_module(f"{root}.asyncio.sentinel" if is_async else f"{root}.sentinel").Sentinel
        return sentinel([tuple(it) for it in at["sentinels"]], socket_timeout=1).master_for(at["master"], **more)
    host, port = at["nodes"][0]
    return getattr(module, f"{name}Cluster")(host=host, port=port, **more)


def manager_options(order):
    made = {}
    if "timeout_ms" in order:
        made["timeout"] = order["timeout_ms"] / 1000
    if "portable" in order:
        made["portable"] = order["portable"]
    if order.get("hooks"):
        made["hooks"] = Told(order["manager"])
    return made


def _duration(value):
    return value / 1000 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _key(key):
    return bytes.fromhex(key["hex"]) if isinstance(key, dict) else key


def lost(held, order, name):
    say(event="lost", **name, text=str(held.lost))
    time.sleep(order.get("lost_takes_ms", 0) / 1000)


def lock_of(locks, order, name):
    """The lock object that an order describes. `name`: what is said when it is lost."""
    options = {field: order[field] for field in ("session", "owner", "details", "replicas", "fsync") if field in order}
    for field in ("wait", "at_least", "max_hold", "replicas_within"):
        if f"{field}_ms" in order:
            options[field] = _duration(order[f"{field}_ms"])
    options["on_lost"] = lambda held: lost(held, order, name)
    lease = _duration(order["lease_ms"])
    if "keys" in order:
        return locks.all_of([_key(key) for key in order["keys"]], lease, **options)
    key = _key(order["key"])
    if order.get("shared"):
        return locks.shared(key, lease, **options)
    if "limit" in order:
        return locks.limit(key, order["limit"], lease, **options)
    if order.get("recover"):
        return locks.recover(key, lease, **options)
    return locks.lock(key, lease, **options)


def shown(held):
    before = held.predecessor
    return {
        "token": held.token,
        "predecessor": before and {"overdue_ms": before.overdue * 1000, "token": before.token, "owner": before.owner},
    }


def left_in(managers):
    """What managers keep for callers."""
    counts = {"calls": 0, "connections": 0, "waiting": 0, "scopes": 0, "owed": 0}
    for manager in managers.values():
        engine = manager._current
        if engine is not None:
            counts["calls"] += engine.wire.in_use
            counts["connections"] += engine.resources.connections.in_use
            counts["waiting"] += len(engine.resources.subscription._by_id)
            counts["scopes"] += len(engine.scopes)
            counts["owed"] += engine.resources.debts.count
    return counts


def beside(names):
    """How many run beside the callers: of each worker of a manager one is usual, once something needed it."""
    usual = {f"serverlock {worker}" for worker in ("timer", "renewal", "debts", "subscription")}
    return len(names) - len(usual & set(names))


def tally_of(tallies):
    """What became of the attempts of a storm."""
    made = {"granted": 0, "cancelled": 0, "refused": 0, "failed": []}
    for what in tallies:
        if what in made:
            made[what] += 1
        else:
            made["failed"].append(what)
    return made | {"failed": made["failed"][:10]}


def plain(reply):
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return reply


if __name__ == "__main__":
    # Drivers import this file by its name, and have to see the same one.
    sys.modules["driver"] = sys.modules["__main__"]
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    library = sys.argv[1]
    if library not in NAMES:
        sys.exit(f"the client is one of {', '.join(NAMES)}")
    version = importlib.import_module(library.split("-")[0]).__version__
    is_async = library.endswith("asyncio")
    say(
        event="ready",
        language="python",
        client=library,
        version=version,
        can=CAN + (["cancel", "stop"] if is_async else []),
        storms=["cancel", "timeout"] if is_async else ["signal"],
    )
    importlib.import_module("driver_asyncio" if library.endswith("asyncio") else "driver_threads").play(library)
    sys.stdout.flush()
    os._exit(0)
