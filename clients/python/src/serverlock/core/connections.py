"""A few connections for calls that need a connection to themselves: blocking waits, and WAIT behind a grant.

Callers take turns. A connection that is idle is kept for the next one.
"""

import threading
from typing import TYPE_CHECKING

from .semaphore import Semaphore
from .wire import Connection

if TYPE_CHECKING:
    from .engine import Engine

SIZE = 8


class Connections:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._semaphore = Semaphore(engine.runtime, SIZE)
        self._idle: list[Connection] = []

    @property
    def has_waiters(self) -> bool:
        return self._semaphore.has_waiters

    @property
    def in_use(self) -> int:
        return self._semaphore.in_use

    async def take(self, taker: object, key: bytes, timeout: float) -> Connection | None:
        """A connection; None when none came free in time. Raises ConnectionLost."""
        if not await self._semaphore.acquire(taker, timeout):
            return None
        # In a cluster each key has its own server: a connection kept for another one would be of no use.
        while not self._engine.wire.is_cluster:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if connection.is_open:
                return connection
        try:
            return await self._engine.wire.connect(key, self._engine.timeout)
        except BaseException:
            self._semaphore.release(taker)
            raise

    async def give_back(self, taker: object, connection: Connection) -> None:
        self._semaphore.release(taker)
        if connection.is_open and not self._engine.wire.is_cluster and not self._engine.is_closed:
            with self._mutex:
                self._idle.append(connection)
        else:
            await connection.close()

    async def close(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()
