"""What the drivers of examples/python have in common, with threads and with asyncio.

A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs.
"""

import asyncio
import contextlib
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../examples/python"))

import redis
from redis_lock import LockLost, LockRefused, LockReply, LockUnsupported

KINDS = [(LockRefused, "refused"), (LockLost, "lost"), (LockUnsupported, "unsupported"), (LockReply, "reply"),
         (redis.RedisError, "connection"), (KeyError, "work"), (asyncio.CancelledError, "refused")]
locks = {}


def say(**line):
    print(json.dumps(line), flush=True)


def say_error(error):
    kind = next((kind for known, kind in KINDS if isinstance(error, known)), "unknown")
    say(event="error", kind=kind, name=type(error).__name__, text=str(error) or "cancelled")


def lock_of(lock, client, command, **more):
    """Asked for the same again, it gives the same again."""
    if str(command) not in locks:
        locks[str(command)] = lock(
            client, command["key"], command["lease_ms"] / 1000, wait=command["wait_ms"] / 1000,
            timeout=command["timeout_ms"] / 1000, owner=command["owner"], session=command["session"],
            fallback=command["fallback"], prefix=command["prefix"], **more)
    return locks[str(command)]


@contextlib.contextmanager
def warned():
    """Gives what says which warnings there were."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: " ".join(str(warning.message) for warning in caught)
