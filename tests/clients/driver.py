"""Plays what tests/integration/languages asks for, with the lock of examples/python.

A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs.
"""

import json
import os
import queue
import sys
import threading
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../examples/python"))

import redis
from redis_lock import Lock, LockLost, LockRefused, LockReply, LockUnsupported

KINDS = [(LockRefused, "refused"), (LockLost, "lost"), (LockUnsupported, "unsupported"), (LockReply, "reply"),
         (redis.RedisError, "connection"), (KeyError, "work")]
commands, waiting, locks = queue.Queue(), {}, {}


def say(**line):
    print(json.dumps(line), flush=True)


def say_error(error):
    kind = next((kind for known, kind in KINDS if isinstance(error, known)), "unknown")
    say(event="error", kind=kind, name=type(error).__name__, text=str(error))


def read():
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "cancel":
            waiting["lock"].cancel()
        else:
            commands.put(command)
    os._exit(0)


def lock_of(client, command):
    return Lock(client, command["key"], command["lease_ms"] / 1000, wait=command["wait_ms"] / 1000,
                timeout=command["timeout_ms"] / 1000, owner=command["owner"], session=command["session"],
                fallback=command["fallback"], prefix=command["prefix"],
                on_lost=lambda lost: commands.put({"do": "stop"}))


def hold(client, command):
    lock = locks.get(str(command)) or lock_of(client, command)
    locks[str(command)] = waiting["lock"] = lock  # asked for the same again, it uses the same again
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with lock:
            say(event="held", token=lock.token, warned=" ".join(str(warning.message) for warning in warned))
            order = commands.get()["do"]
            if order == "stop":
                say(event="stopped", left_ms=lock.left() * 1000)
                lock.check()
            if order == "fail":
                raise KeyError("the work failed")
    say(event="left")


clients = {}
threading.Thread(target=read, daemon=True).start()
while True:
    command = commands.get()
    where = command["port"], command["protocol"]
    client = clients.setdefault(where, redis.Redis(port=where[0], protocol=where[1], socket_timeout=5))
    try:
        if command["do"] == "hold":
            hold(client, command)
        else:
            say(event="pong", reply=client.echo("hello").decode())
    except Exception as error:
        say_error(error)
