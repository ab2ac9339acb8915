"""Distributed locks for Redis and Valkey servers with the redis-lock module.

    locks = Locks(redis.Redis())
    with locks.lock("report", lease=30, wait=60) as held:
        held.token    # the fencing token: pass it to the storage with each write
        held.check()  # before each step that must not be done without the lock

`serverlock.aio` has the same API for asyncio.
"""

from .core.campaign import Leadership
from .core.hold import Predecessor
from .core.once import Outcome
from .core.options import LockOptions
from .errors import (
    LockBadArgument,
    LockDeadlock,
    LockDenied,
    LockError,
    LockLost,
    LockMisuse,
    LockNoServer,
    LockRefused,
    LockTimeout,
    LockUnavailable,
)
from .hooks import Hooks
from .threads.held import Held
from .threads.leader import Leader
from .threads.locks import Lock, Locks
from .threads.once import HeldOnce, Once

__version__ = "1.0.0"

__all__ = [
    "Held",
    "HeldOnce",
    "Hooks",
    "Leader",
    "Leadership",
    "Lock",
    "LockBadArgument",
    "LockDeadlock",
    "LockDenied",
    "LockError",
    "LockLost",
    "LockMisuse",
    "LockNoServer",
    "LockOptions",
    "LockRefused",
    "LockTimeout",
    "LockUnavailable",
    "Locks",
    "Once",
    "Outcome",
    "Predecessor",
]
