"""An in-memory server and its managers, for asyncio.

from serverlock.testing.aio import Server

server = Server()
locks = server.locks()          # in place of serverlock.aio.Locks(client)
await server.clock.advance(30)
"""

import asyncio
import math
import time
from collections.abc import Callable

from ..aio import locks, runtime
from ..core.engine import Engine
from ..core.request import Duration, Key, key_of, shown
from ..core.wire import Connection
from . import clock
from .server import MemoryServer
from .wire import MemoryWire, unwatch, watch

__all__ = ["Clock", "Server"]

# Everything has settled when the loop has run this many times without a step in a manager.
IDLE_TURNS = 20
# A task that asks again and again, without a pause, never settles.
MOST_TURNS = 100_000
# In real seconds.
PATIENCE = 60.0


class Clock(clock.Clock):
    """The clock of an in-memory server. It stands still until `advance` moves it."""

    async def advance(self, seconds: Duration) -> None:
        """Moves the clock, and carries out everything that falls due on the way, in chronological order.

        Returns once the managers and the callbacks have finished what that caused.
        """
        end = self.end_of(seconds)
        await self.settle()
        while self.step(end):
            await self.settle()

    async def settle(self) -> None:
        """Waits until all tasks have done what they can without the clock. The same as `advance(0)`."""
        seen, idle = self.activity, 0
        for _ in range(MOST_TURNS):
            if idle == IDLE_TURNS:
                return
            await asyncio.sleep(0)
            idle = idle + 1 if seen == self.activity else 0
            seen = self.activity


class Flag:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._sleeper: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._clock.activity += 1
        self._is_set = True
        if self._sleeper is not None:
            _wake(self._sleeper)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, timeout: float) -> bool:
        if not self._is_set and timeout > 0:
            sleeper = self._sleeper = asyncio.get_running_loop().create_future()
            alarm = None if math.isinf(timeout) else self._clock.alarm(timeout, lambda: _wake(sleeper))
            try:
                await sleeper
            finally:
                self._sleeper = None
                if alarm is not None:
                    alarm.cancel()
        return self._is_set


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Runtime(runtime.Runtime):
    longest_nap = 3600.0  # nothing is suspended

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.now = clock.now

    def flag(self) -> Flag:  # type: ignore[override]
        return Flag(self._clock)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await Flag(self._clock).wait(seconds)
        else:
            await asyncio.sleep(0)

    def call_back(self, work: Callable[[], object]) -> None:
        self._clock.activity += 1
        super().call_back(work)

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        self._clock.alarm(seconds, lambda: self.call_back(work))

    def watch(self, connection: Connection, ended: Callable[[], None]) -> None:
        watch(connection, ended)

    async def unwatch(self, connection: Connection) -> None:
        unwatch(connection)


class Locks(locks.Locks):
    """The production manager, over an in-memory server."""

    def _adopt(self, client: "Server") -> None:
        self._client = client

    def _build(self) -> Engine:
        runtime = Runtime(self._client.clock)
        return Engine(runtime, MemoryWire(self._client._commands, runtime), self._options)


class Server(MemoryServer[locks.Locks]):
    """An in-memory lock server, for asyncio. Its clock stands still until `clock.advance`.

    Its managers behave like several processes. After `expire`, `lose` and `refuse`, `await clock.settle()` lets the
    other tasks do what follows.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock, Locks)

    async def until_waiting(self, key: Key, count: int = 1) -> None:
        """Waits in real time until this many attempts are in the key's queue: for a task that has just started."""
        end = time.monotonic() + PATIENCE
        while self.waiters(key) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.waiters(key)} attempts wait for {shown([key_of(key)])}, not {count}")
            await asyncio.sleep(0.001)
