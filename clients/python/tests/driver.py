"""Carries out the orders of clients/suite with this package: `driver.py redis-py`, or another of NAMES."""

import importlib
import logging
import os
import sys

from orders import say

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
    "queue",
    "few_threads",
    "half_open",
    "once",
    "reentrant",
    "default_owner",
    "recover_free",
    "deadlock",
    "memory",
    "single_flight",
]

if __name__ == "__main__":
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
    importlib.import_module("driver_asyncio" if is_async else "driver_threads").play(library)
    sys.stdout.flush()
    os._exit(0)
