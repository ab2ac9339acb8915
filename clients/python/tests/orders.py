"""What the drivers for threads and asyncio share: their state, and the orders that are the same in both."""

import gc
import importlib
import json
import os
import threading
import time
import traceback

import serverlock

_writing = threading.Lock()


class Work(Exception):
    """The error raised by a body."""


def say(**line):
    with _writing:
        print(json.dumps(line), flush=True)


def answer(order, ok):
    say(n=order["n"], ok=ok or {})


class Cancelled(Exception):
    """The order cancelled its own attempt."""


def answer_error(order, error):
    if isinstance(error, serverlock.LockError):
        kind, text = error.code, str(error)
    elif isinstance(error, Work):
        kind, text = "work", str(error)
    elif isinstance(error, NotImplementedError):
        kind, text = "cannot", str(error)
    elif isinstance(error, Cancelled) or type(error).__name__ == "CancelledError":
        kind, text = "cancelled", ""
    else:
        kind, text = "unknown", "".join(traceback.format_exception(error))
    say(n=order["n"], error={"kind": kind, "text": text})


class Reporter(serverlock.Hooks):
    """Reports each hook to the suite."""

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
    """A client of redis or valkey, or their asyncio counterparts."""
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
        made["hooks"] = Reporter(order["manager"])
    return made


def _duration(value):
    return value / 1000 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _key(key):
    return bytes.fromhex(key["hex"]) if isinstance(key, dict) else key


def lost(held, order, name):
    say(event="lost", **name, text=str(held.lost))
    time.sleep(order.get("lost_takes_ms", 0) / 1000)


def lock_of(locks, order, name):
    """The lock object that an order describes. In its `lost` event, `name` is the hold or scope."""
    options = {
        field: order[field]
        for field in ("session", "owner", "details", "replicas", "fsync", "reentrant")
        if field in order
    }
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


def once_of(locks, order, name):
    """What an order asks to run once per period."""
    options = {field: order[field] for field in ("owner", "rerun") if field in order}
    for field in ("lease", "max_hold"):
        if f"{field}_ms" in order:
            options[field] = _duration(order[f"{field}_ms"])
    options["on_lost"] = lambda held: lost(held, order, name)
    return locks.once(_key(order["key"]), _duration(order["period_ms"]), **options)


def value_of(order):
    """What `compute` returns."""
    value = order.get("value", "")
    if value is None:
        return None
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


def flight_of(order, name):
    """The key, the lease and the options of a single flight."""
    options = {field: order[field] for field in ("owner",) if field in order}
    for field in ("wait", "max_hold"):
        if f"{field}_ms" in order:
            options[field] = _duration(order[f"{field}_ms"])
    options["on_lost"] = lambda held: lost(held, order, name)
    return (_key(order["key"]), _duration(order["lease_ms"])), options


def answer_of(value, computed):
    try:
        return {"value": value.decode(), "computed": bool(computed)}
    except UnicodeDecodeError:
        return {"value": {"hex": value.hex()}, "computed": bool(computed)}


def outcome_of(held):
    """The outcome of a block."""
    return {"outcome": "elsewhere" if held is None else "recovered" if held.recovered else "ran"}


def shown(held):
    before = held.predecessor
    return {
        "token": held.token,
        "predecessor": before and {"overdue_ms": before.overdue * 1000, "token": before.token, "owner": before.owner},
    }


def left_in_managers():
    """What managers still keep for callers."""
    counts = {"calls": 0, "connections": 0, "waiting": 0, "scopes": 0, "owed": 0, "flights": 0}
    gc.collect()  # an exception and the frame that handled it may refer to each other
    for manager in managers.values():
        engine = manager._current
        if engine is not None:
            counts["calls"] += engine.wire.in_use
            counts["connections"] += engine.resources.connections.in_use
            counts["waiting"] += len(engine.resources.subscription._by_id)
            counts["scopes"] += len(engine.scopes)
            counts["flights"] += len(engine.flights)
            counts["owed"] += engine.resources.debts.count
    return counts


def beside(names):
    """The number of threads or tasks besides the usual ones: the callers, and one of each of a manager's workers."""
    usual = {f"serverlock {worker}" for worker in ("timer", "renewal", "debts", "subscription", "reading")}
    return len(names) - len(usual & set(names))


def tally_of(tallies):
    """The outcomes of a storm's attempts."""
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


# What orders refer to by name.
clients, managers, holds, objects, bodies, workers, leaders, servers = {}, {}, {}, {}, {}, {}, {}, {}
_creating = threading.Lock()


def lock_for(order, **name):
    if "object" in order:
        return objects[order["object"]]
    return lock_of(managers[order["manager"]], order, name)


def held_for(order):
    return holds[order["hold"]] if "hold" in order else bodies[order["scope"]].held


def open_manager(order, library, kind, memory):
    """kind: the class of managers. memory: that of servers in memory."""
    at = order["at"]
    if at["kind"] == "memory":
        with _creating:
            server = servers[at["name"]] = servers.get(at["name"]) or memory()
        managers[order["manager"]] = server.locks(**manager_options(order))
        return
    client = clients[order["manager"]] = client_of(library, order["at"], order)
    managers[order["manager"]] = kind(client, **manager_options(order))


def keep(order, held):
    """The answer to an order that acquires."""
    if "hold" in order:
        holds[order["hold"]] = held
    return shown(held)


def lease_of(order):
    return order["lease_ms"] / 1000 if "lease_ms" in order else None


def start_leader(order):
    name = order["leader"]
    leaders[name] = (
        managers[order["manager"]]
        .leader(
            order["key"],
            lease_of(order),
            on_elected=lambda token: say(event="elected", leader=name, token=token),
            on_lost=lambda token: say(event="deposed", leader=name, token=token),
            **{field: order[field] for field in ("owner",) if field in order},
        )
        .start()
    )


def observer_of(order):
    return managers[order["manager"]].leader(order["key"], lease_of(order))


def observed(order, leader):
    say(event="leader", observer=order["observer"], token=leader.token, owner=leader.owner)


def fork(body, leave, own):
    """The child checks the hold, leaves its scope and takes its own lock. Returns its pid and a pipe from it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = {}
        try:
            try:
                body.held.check()
                seen["check"] = "held"
            except serverlock.LockLost:
                seen["check"] = "lost"
            leave()
            seen["own"] = own()
        except BaseException:
            seen["error"] = traceback.format_exc()
        os.write(writing, json.dumps(seen).encode())
        os._exit(0)
    os.close(writing)
    return child, reading


def what_child_saw(child, reading):
    with os.fdopen(reading, "rb") as pipe:
        seen = json.loads(pipe.read())
    os.waitpid(child, 0)
    return seen


def do_object(order, _):
    objects[order["object"]] = lock_of(managers[order["manager"]], order, {"object": order["object"]})


def do_check(order, _):
    held = held_for(order)
    held.check()
    return {"left_ms": held.left() * 1000}


def do_left(order, _):
    return {"left_ms": held_for(order).left() * 1000}


def do_drop(order, _):
    del holds[order["hold"]]
    gc.collect()


def do_leave(order, _):
    bodies[order["scope"]].add("leave")


def do_fail(order, _):
    bodies[order["scope"]].add("fail")


def raw_in_memory(order):
    """The reply of a server in memory; None if the manager has a client."""
    if order["manager"] in clients:
        return None
    name, key = order["args"]
    if name != "LOCK.INFO":
        raise NotImplementedError(name)
    return {"reply": plain(managers[order["manager"]]._client._commands.info(key.encode()))}


def do_expire(order, _):
    servers[order["name"]].expire(order["key"])


def do_lose(order, _):
    servers[order["name"]].lose(held_for(order))


def do_refuse(order, _):
    servers[order["name"]].refuse(order["key"])


def do_allow(order, _):
    servers[order["name"]].allow(order["key"])


def do_resign(order, _):
    leaders[order["leader"]].resign()


def act_for(order, driver):
    """The function for an order: the driver's own, or else the one here."""
    name = f"do_{order['do']}"
    act = driver.get(name) or globals().get(name)
    if act is None:
        raise NotImplementedError(order["do"])
    return act
