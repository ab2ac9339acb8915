"""A few dedicated connections, for calls that need one to themselves: blocking waits, and WAIT after a grant.

Callers take turns. Idle connections are kept for the next caller.
"""

import threading

from .semaphore import Semaphore
from .wire import Connection, Runtime, Wire

SIZE = 8


class Connections:
    def __init__(self, runtime: Runtime, wire: Wire, timeout: float) -> None:
        self._wire, self._timeout = wire, timeout
        self._mutex = threading.Lock()
        self._semaphore = Semaphore(runtime, SIZE)
        self._idle: list[Connection] = []
        self._is_closed = False

    @property
    def has_waiters(self) -> bool:
        return self._semaphore.has_waiters

    @property
    def in_use(self) -> int:
        return self._semaphore.in_use

    async def take(self, taker: object, key: bytes, timeout: float) -> Connection | None:
        """Returns None if no connection became free in time. Raises ConnectionLost."""
        if not await self._semaphore.acquire(taker, timeout):
            return None
        # In a cluster each key has its own server, so a connection to another server is useless.
        while not self._wire.is_cluster:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if connection.is_open:
                return connection
        try:
            return await self._wire.connect(key, self._timeout)
        except BaseException:
            self._semaphore.release(taker)
            raise

    async def give_back(self, taker: object, connection: Connection) -> None:
        self._semaphore.release(taker)
        if connection.is_open and not self._wire.is_cluster and not self._is_closed:
            with self._mutex:
                self._idle.append(connection)
        else:
            await connection.close()

    async def close(self) -> None:
        self._is_closed = True
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()
