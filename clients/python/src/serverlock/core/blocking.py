"""The one connection on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message.

It is for processes that do one thing at a time. From the second attempt that waits at the same time on, all attempts
wait by NOTIFY. While the connection is open, calls keep to one connection of the pool, so that there are never more than
three in all; congestion on that one connection ends it too.
"""

import threading
from typing import TYPE_CHECKING

from .clock import now
from .semaphore import Permits
from .wire import Connection

if TYPE_CHECKING:
    from .engine import Engine


class Blocking:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._permit = Permits(1)
        self._is_used = False  # calls are narrowed for it
        self.is_over = False  # a second attempt has waited

    @property
    def is_ready(self) -> bool:
        """Whether an attempt may begin on it: the connection is open, and nobody waits."""
        return self._connection is not None and self._connection.is_open and not self._permit.in_use

    def enter(self, waiter: object) -> bool:
        """Whether this attempt waits alone. If so, the connection is its own until `leave`."""
        with self._mutex:
            if self.is_over or not self._permit.acquire(waiter):
                return False
            if not self._is_used and not self._engine.wire.narrow(self._congested):
                self._permit.release(waiter)
                return False
            self._is_used = True
            return True

    async def get(self, key: bytes) -> Connection:
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = self._connection = await self._engine.wire.connect(key, self._engine.timeout)
        return connection

    async def leave(self, waiter: object) -> None:
        self._permit.release(waiter)
        if self.is_over:
            await self.end()

    def _congested(self) -> None:
        self._engine.timer.owe(now(), self.end)

    async def close(self) -> None:
        """The manager is closed: ends the wait as well."""
        self.is_over = True
        connection = self._connection
        if connection is not None:
            await connection.close()
        await self.end()

    async def end(self) -> None:
        """Others wait or call. An attempt that blocks on the connection does so to the end of its piece."""
        with self._mutex:
            self.is_over = True
            if self._permit.in_use:
                return
            (connection, self._connection), was_used, self._is_used = (self._connection, None), self._is_used, False
        if connection is not None:
            await connection.close()
        if was_used:
            self._engine.wire.widen()
