"""An in-memory server and its managers, for threads."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..core.engine import BoundHold, Engine, H
from ..core.flights import Caller
from ..core.request import Key, Request, key_of, shown
from ..threads import locks
from .server import MemoryServer
from .thread_clock import Clock, Runtime
from .wire import MemoryWire

F = TypeVar("F", bound=Callable[..., Any])


class CountedEngine(Engine):
    """The clock knows when a caller is inside."""

    def __init__(self, runtime: Runtime, wire: MemoryWire, options: Any) -> None:
        super().__init__(runtime, wire, options)
        self._inside = runtime.clock.inside

    async def acquire(self, manager: object, request: Request, kind: type[H]) -> H:
        with self._inside():
            return await super().acquire(manager, request, kind)

    async def turn(self, caller: Caller) -> bytes | None:
        with self._inside():
            return await super().turn(caller)

    async def extend(self, hold: BoundHold, lease: float | None) -> None:  # type: ignore[override]
        with self._inside():
            await super().extend(hold, lease)

    async def release(self, hold: BoundHold, *, entirely: bool = False) -> bool:  # type: ignore[override]
        with self._inside():
            return await super().release(hold, entirely=entirely)

    async def keep(self, hold: BoundHold, until: float, *, is_long: bool) -> bool:  # type: ignore[override]
        with self._inside():
            return await super().keep(hold, until, is_long=is_long)


class Locks(locks.Locks):
    """The production manager, over an in-memory server."""

    def _adopt(self, client: "Server") -> None:
        self._client = client

    def _build(self) -> Engine:
        runtime = Runtime(self._client.clock)
        return CountedEngine(runtime, MemoryWire(self._client._commands, runtime), self._options)


class Server(MemoryServer[locks.Locks]):
    """An in-memory lock server, for threads. Its clock stands still until `clock.advance`.

    Its managers behave like several processes. `expire`, `lose` and `refuse` return once what they caused has settled.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock, Locks)

    def until_waiting(self, key: Key, count: int = 1) -> None:
        """Waits in real time until this many attempts are in the key's queue: for a thread that has just started."""
        if not self.clock.until(lambda: self.waiters(key) >= count):
            name = shown([key_of(key)])
            raise TimeoutError(f"{self.waiters(key)} attempts wait for {name}, not {count}")

    def _has_settled(self) -> None:
        self.clock.settle()
