"""Locks for redis.asyncio.Redis, redis.asyncio.RedisCluster and their Valkey twins."""

import asyncio
import logging
import os
import sys
import weakref
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any

from ..core.engine import Engine, Options
from ..core.hold import Grant, Hold
from ..core.library import Library
from ..core.manager import Manager
from ..core.request import Duration, Key, Request, seconds_of
from ..errors import LockMisuse
from ..hooks import Hooks
from ..threads.locks import Entered, left_by
from .runtime import Runtime
from .wire import Wire


class Locks(Manager["Lock"]):
    """The locks of one client, for the tasks of one event loop.

    It sends its commands over the client's own connections. The first wait opens one more, for all waits.
    """

    def __init__(
        self,
        client: Any,
        *,
        timeout: Duration = 5.0,
        portable: bool = True,
        warn_without_module: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """timeout: how long a reply may take. portable: without the module, lock by script. warn_without_module: log a
        warning when that begins. hooks: who is told of what happens to locks. logger: another one than "serverlock".
        """
        super().__init__(
            client, timeout=timeout, portable=portable, warn_without_module=warn_without_module, hooks=hooks, logger=logger
        )
        self._library = Library(client, is_async=True)
        self._current: Engine | None = None
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def _made(self, request: Request) -> "Lock":
        return Lock(self, request)

    def _engine(self) -> Engine:
        loop = asyncio.get_running_loop()
        engine = self._current
        if engine is None or engine.pid != os.getpid() or self._loop is None or self._loop() is not loop:
            engine = self._current = _engine_of(self._client, self._library, self._options)
            self._loop = weakref.ref(loop)
            weakref.finalize(self, _drop, engine, self._loop)
        return engine

    def leader(
        self,
        key: Key,
        lease: Duration,
        *,
        on_elected: Callable[[int], object] = lambda token: None,
        on_lost: Callable[[int], object] = lambda token: None,
        wait: Duration = 60.0,
        owner: str | None = None,
        session: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
    ) -> "Leader":
        """Campaigns for a key until it is stopped: see Leader."""
        return Leader(
            self, key, lease, on_elected=on_elected, on_lost=on_lost, wait=wait, owner=owner, session=session,
            replicas=replicas, replicas_within=replicas_within, fsync=fsync,
        )

    async def aclose(self) -> None:
        """Ends the tasks and the connections of its own. Locks that are held are not renewed any more."""
        await self._engine().close()

    async def __aenter__(self) -> "Locks":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def _drop(engine: Engine, loop: "weakref.ref[asyncio.AbstractEventLoop]") -> None:
    """The manager is gone, and so are its holds: ends its tasks, if their loop still runs."""
    running = loop()
    if engine.pid == os.getpid() and running is not None and running.is_running() and not engine.is_closed:
        running.call_soon_threadsafe(lambda: running.create_task(engine.close()))


def _engine_of(client: Any, library: Library, options: Options) -> Engine:
    runtime = Runtime()
    return Engine(runtime, Wire(client, library, runtime), options)


class Held(Hold):
    """A lock that is held. Any task may check, extend or release it."""

    def __init__(self, engine: Engine, manager: object, request: Request, grant: Grant, began: float) -> None:
        super().__init__(engine, manager, request, grant, began)
        self._over_flag = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None
        self._cancels_before = 0
        self._has_cancelled = False

    async def release(self) -> bool:
        """Gives the lock back; whether it was held to the end."""
        return await self._engine.release(self)

    async def extend(self, lease: Duration | None = None) -> None:
        """Sets a new lease, counted from now. Renewal does so by itself with the lease of the lock."""
        made = None if lease is None else seconds_of(lease, "lease", self.key, 0.001)
        await self._engine.extend(self, made)

    async def verify(self) -> float:
        """Asks the server whether the lock is held; the seconds that are left. Raises LockLost."""
        return await self._engine.verify(self)

    async def fenced(self, command: str, key: Key, *args: str | bytes | int) -> Any:
        """Runs one command on the same server, only if the lock is held there at that moment. Raises LockLost.

        In a cluster, `key` has to be in the slot of the lock.
        """
        return await self._engine.fenced(self, (command, key, *args))

    async def until_lost(self) -> None:
        """Returns when the lock is lost, for tasks that did not enter the scope."""
        await self._over_flag.wait()

    def _tell(self) -> None:
        self._over_flag.set()
        if self._work is not None and not self._has_cancelled:
            self._has_cancelled = self._work.cancel()
        super()._tell()

    def _enter(self) -> None:
        self._work = asyncio.current_task()
        self._cancels_before = 0 if self._work is None else self._work.cancelling()
        if self._lost is not None:
            self._tell()

    async def _leave(self, error: BaseException | None) -> None:
        """The end of the scope. The error of the body is the one to tell, unless it is our own cancellation."""
        work, self._work = self._work, None
        stopped = False
        if self._has_cancelled and work is not None:
            stopped = work.uncancel() <= self._cancels_before
            if stopped and not isinstance(error, asyncio.CancelledError):
                try:
                    await asyncio.sleep(0)  # it was on its way to a body that has ended
                except asyncio.CancelledError:
                    pass
        if isinstance(error, asyncio.CancelledError) and stopped:
            error = None
        if self._pid != os.getpid() or self._ended is not None:
            return
        try:
            in_time = await self.release()
        except Exception:
            if error is None:
                raise
            return
        if not in_time and error is None:
            raise self._lost or self._over()


class Lock:
    """A description of a lock: it holds nothing, and any number of callers may use it. Each gets a hold of its own."""

    def __init__(self, locks: Locks, request: Request) -> None:
        self._locks, self._request = locks, request
        self._entered: list[Entered] = []

    async def acquire(self) -> Held:
        """Gets the lock, within `wait`; raises LockRefused, LockTimeout or another LockError.

        A cancelled wait leaves nothing behind.
        """
        return await self._locks._engine().acquire(self._locks, self._request, Held)

    def __aenter__(self) -> Coroutine[Any, Any, Held]:
        return self._enter(sys._getframe(1))

    async def _enter(self, frame: FrameType) -> Held:
        held = await self.acquire()
        held._enter()
        self._entered.append((frame, held._engine.enter_scope(held), held))
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        return self._leave(sys._getframe(1), error)

    async def _leave(self, frame: FrameType, error: BaseException | None) -> None:
        entry = left_by(self._entered, frame, asyncio.current_task())
        if entry is None:
            raise LockMisuse(self._request.name, "this scope was not entered, or by several others: leave it where it began")
        self._entered.remove(entry)
        held = entry[2]
        held._engine.leave_scope(held, entry[1])
        await held._leave(error)

    def __repr__(self) -> str:
        return f"<serverlock.aio.Lock {self._request.name}>"


from .leader import Leader  # noqa: E402 - it needs Locks
