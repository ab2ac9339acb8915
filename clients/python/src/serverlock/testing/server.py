"""What the in-memory servers for threads and for asyncio share: managers, and what a test can do to locks."""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from ..core.engine import BoundHold
from ..core.request import Duration, Key, key_of, shown
from ..core.wire import ReplyError
from ..errors import LockBadArgument
from ..hooks import Hooks
from .clock import Clock
from .commands import Commands
from .wire import MemoryWire

# Codes that no package retries.
REFUSALS = {"unavailable": "CLOCK", "denied": "NOAUTH"}


L = TypeVar("L")


class MemoryServer(Generic[L]):
    """An in-memory server. Its managers, of type `L`, behave like several processes."""

    def __init__(self, clock: Clock, build: Callable[..., L]) -> None:
        self._clock = clock
        self._build = build
        self._commands = Commands(clock)
        self._table = self._commands.table

    def _has_settled(self) -> None:
        """Called after a change."""

    def locks(
        self,
        *,
        timeout: Duration = 5.0,
        portable: bool = True,
        warn_without_module: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
    ) -> L:
        """A manager, with the options of `Locks` except for `renewal`."""
        return self._build(
            self,
            timeout=timeout,
            portable=portable,
            warn_without_module=warn_without_module,
            hooks=hooks,
            logger=logger,
        )

    def expire(self, key: Key) -> None:
        """The lease of each holder of the key ends now, on the server, and the next waiter gets the lock.

        The old holder finds out as in production: on its next renewal, a third of the lease later at most, or from
        `verify`, `extend` or `release`.
        """
        with self._clock.mutex:
            self._table.expire(key_of(key))
        self._has_settled()

    def lose(self, hold: BoundHold) -> None:
        """The hold is lost: its holder is notified, and the next waiter gets the lock."""
        wire = hold._engine.wire
        if not isinstance(wire, MemoryWire) or wire.commands is not self._commands:
            raise LockBadArgument(hold.key, "hold belongs to another server")
        with self._clock.mutex:
            hold._lose("the test took it away", gone=True)
            self._table.take_away(hold._request.keys, hold.token)
        self._has_settled()

    def refuse(self, key: Key, error: str = "unavailable") -> None:
        """Attempts for the key fail, until `allow`. Holders keep it until their lease ends: no renewal succeeds.

        error: the code of the error that callers get: "unavailable" (LockUnavailable) or "denied" (LockDenied).
        """
        name = key_of(key)
        if error not in REFUSALS:
            raise LockBadArgument(shown([name]), f"error is {error!r}, not one of {', '.join(REFUSALS)}")
        code = REFUSALS[error]
        with self._clock.mutex:
            self._table.refuse(name, ReplyError(code, f"{code} the test refuses this key"))
        self._has_settled()

    def allow(self, key: Key) -> None:
        """Ends `refuse`."""
        with self._clock.mutex:
            self._table.refused.pop(key_of(key), None)

    def waiters(self, key: Key) -> int:
        """How many attempts are waiting in the key's queue. One for several keys waits in the queue of one of them."""
        with self._clock.mutex:
            return len(self._table.queue(key_of(key)))
