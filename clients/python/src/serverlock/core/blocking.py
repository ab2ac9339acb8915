"""The connection on which a manager's only wait blocks. That takes one round trip; NOTIFY takes two and a message.

It serves processes that do one thing at a time. Once a second attempt is waiting too, all attempts wait with
NOTIFY. While this connection is open, commands use only one pool connection, so a manager has at most three. If
commands queue for the pool connection, this one is closed too.
"""

import threading
from collections.abc import Callable

from .clock import Clock
from .debts import Debt
from .semaphore import Permits
from .wire import Connection, Wire


class Blocking:
    def __init__(self, now: Clock, wire: Wire, timeout: float, owe: Callable[[float, Debt], None]) -> None:
        self._now, self._wire, self._timeout, self._owe = now, wire, timeout, owe
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._permit = Permits(1)
        self._is_used = False  # commands use only one pool connection because of this one
        self.is_over = False  # a second attempt has waited

    @property
    def is_ready(self) -> bool:
        """Whether an attempt may start here: the connection is open, and nobody is waiting on it."""
        return self._connection is not None and self._connection.is_open and not self._permit.in_use

    def enter(self, waiter: object) -> bool:
        """Whether this attempt waits alone. If so, it owns the connection until `leave`."""
        with self._mutex:
            if self.is_over or not self._permit.acquire(waiter):
                return False
            if not self._is_used and not self._wire.narrow(self._congested):
                self._permit.release(waiter)
                return False
            self._is_used = True
            return True

    async def get(self, key: bytes) -> Connection:
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = self._connection = await self._wire.connect(key, self._timeout)
        return connection

    async def leave(self, waiter: object) -> None:
        self._permit.release(waiter)
        if self.is_over:
            await self.end()

    def _congested(self) -> None:
        self._owe(self._now(), self.end)

    async def close(self) -> None:
        """Call this when the manager is closed. Ends the wait as well."""
        self.is_over = True
        connection = self._connection
        if connection is not None:
            await connection.close()
        await self.end()

    async def end(self) -> None:
        """Called when others are waiting or sending commands. An attempt that is blocking here finishes its piece."""
        with self._mutex:
            self.is_over = True
            if self._permit.in_use:
                return
            (connection, self._connection), was_used, self._is_used = (self._connection, None), self._is_used, False
        if connection is not None:
            await connection.close()
        if was_used:
            self._wire.widen()
