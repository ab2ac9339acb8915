"""Locks for redis.asyncio.Redis, redis.asyncio.RedisCluster and their Valkey counterparts."""

import asyncio
import logging
import math
import os
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType, TracebackType
from typing import Unpack

from ..core.campaign import PIECE
from ..core.engine import Engine
from ..core.library import Raw
from ..core.manager import Manager, shows
from ..core.once import schedule_of
from ..core.options import FlightOptions, LeaderOptions, OnceOptions
from ..core.request import Duration, Key, Request
from ..core.scopes import Entered, left_by
from ..core.single_flight import WAIT, flight_of, fly
from ..errors import LockBadArgument, LockMisuse
from ..hooks import Hooks
from .held import Held
from .leader import Leader, ignore
from .once import Once
from .renewal_thread import RenewalThread
from .runtime import Runtime
from .wire import Wire


class Locks(Manager["Lock"]):
    """The locks of one client, for the tasks of one event loop.

    It sends its commands over the client's own connections. The first wait opens one more connection, for all waits.
    """

    _is_async = True

    def __init__(
        self,
        client: Raw,
        *,
        timeout: Duration = 5.0,
        portable: bool = True,
        warn_without_module: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
        renewal: Raw = "loop",
    ) -> None:
        """renewal: "thread" renews in a thread, over one more connection, so that a loop that is blocked for longer
        than a lease keeps its locks. They then need `max_hold`; leaders are still renewed on the loop. With Sentinel or
        a cluster, pass a client for threads (redis.Redis, redis.RedisCluster) instead of "thread".
        The other arguments are those of serverlock.Locks.
        """
        super().__init__(
            client,
            timeout=timeout,
            portable=portable,
            warn_without_module=warn_without_module,
            hooks=hooks,
            logger=logger,
        )
        self._thread: RenewalThread | None = None
        if renewal != "loop":
            self._thread = RenewalThread(client, self._library, renewal, self._options.timeout)

    def _set_up(self) -> None:
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def _lock_of(self, request: Request) -> "Lock":
        self._check_renewal(request)
        return Lock(self, request)

    def _check_renewal(self, request: Request) -> None:
        if self._thread is not None and math.isinf(request.max_hold):
            raise LockBadArgument(
                request.name, "max_hold is missing: renewed in a thread, a loop that hangs would hold the lock forever"
            )

    def _engine(self) -> Engine:
        loop = asyncio.get_running_loop()
        engine = self._current
        if engine is None or engine.pid != os.getpid() or self._loop is None or self._loop() is not loop:
            if engine is not None and self._loop is not None:
                _end_thread(engine, self._loop)
            engine = self._current = self._build()
            self._loop = weakref.ref(loop)
            weakref.finalize(self, _drop, engine, self._loop)
        return engine

    def _build(self) -> Engine:
        runtime = Runtime()
        renewer = None if self._thread is None else self._thread.timer
        return Engine(runtime, Wire(self._client, self._library, runtime), self._options, renewer)

    @shows(OnceOptions)
    def once(
        self,
        key: Key,
        period: Duration,
        *,
        lease: Duration | None = None,
        rerun: bool = True,
        **options: Unpack[OnceOptions],
    ) -> Once:
        """Runs a body once for each tick, in one of the processes that ask: for cron jobs and schedulers.

        Ticks begin at multiples of the period, which is at least 10 s, on the server's clock. A call is for the nearest
        tick. The tick ends half a period after it begins, and nobody else runs it until then.
        lease: how soon another process may run the tick if one dies; the default is 10 s, or a quarter of the period
        if that is shorter.
        rerun: if False, a tick whose process dies is skipped. Such a lock is not renewed.
        """
        schedule = schedule_of(key, period, lease, rerun, options)
        if rerun:
            self._check_renewal(schedule.request)
        return Once(self, schedule)

    @shows(FlightOptions, wait=WAIT)
    async def single_flight(
        self, key: Key, lease: Duration, compute: Callable[[Held], Awaitable[bytes]], **options: Unpack[FlightOptions]
    ) -> bytes:
        """Returns the value of the key: one caller computes it, and all that wait, in any process, get the same bytes.

        compute: called with the hold by the caller that gets the lock, and returns bytes. Up to 64 KB are passed on.
        lease: in seconds; renewed while `compute` runs. If a process dies, another computes once its lease has ended.
        wait: how long this call waits for the value, in seconds.
        The callers of one manager share one attempt. If `compute` fails, its caller gets the error.
        Raises LockTimeout if there is no value within `wait`, LockMisuse within `compute`, or another LockError.
        """
        request = flight_of(key, lease, options)
        self._check_renewal(request)
        return await fly(self._engine(), self, request, Held, compute, Held._enter, Held._leave)

    @shows(LeaderOptions, wait=PIECE)
    def leader(
        self,
        key: Key,
        lease: Duration,
        *,
        on_elected: Callable[[int], object] = ignore,
        on_lost: Callable[[int], object] = ignore,
        **options: Unpack[LeaderOptions],
    ) -> Leader:
        """Returns a Leader, which campaigns for the key from `start` until `stop`."""
        return Leader(self, key, lease, on_elected=on_elected, on_lost=on_lost, **options)

    async def aclose(self) -> None:
        """Ends the manager's tasks and closes its own connections. Held locks are no longer renewed."""
        await self._engine().close()

    async def __aenter__(self) -> "Locks":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def _drop(engine: Engine, loop: "weakref.ref[asyncio.AbstractEventLoop]") -> None:
    """Ends the tasks of a manager that was dropped, if their loop is still running."""
    _end_thread(engine, loop)
    running = loop()
    if engine.pid == os.getpid() and running is not None and running.is_running() and not engine.is_closed:
        running.call_soon_threadsafe(lambda: running.create_task(engine.close()))


def _end_thread(engine: Engine, loop: "weakref.ref[asyncio.AbstractEventLoop]") -> None:
    """A thread that renews outlives its loop, unlike a task."""
    ended = loop()
    if engine.pid == os.getpid() and (ended is None or ended.is_closed()):
        engine.close_renewals()


class Lock:
    """Describes a lock. It holds nothing: any number of callers may use it, and each gets its own hold."""

    def __init__(self, locks: Locks, request: Request) -> None:
        self._locks, self._request = locks, request
        self._entered: list[Entered[Held | None]] = []

    async def acquire(self) -> Held:
        """Gets the lock within `wait`. Raises LockRefused, LockTimeout or another LockError.

        A cancelled wait leaves nothing behind.
        """
        return await self._locks._engine().acquire(self._locks, self._request, Held)

    def __aenter__(self) -> Coroutine[None, None, Held]:
        return self._enter(sys._getframe(1))

    async def _enter(self, frame: FrameType) -> Held:
        engine = self._locks._engine()
        outer = engine.reentered(self._request)
        if outer is not None:  # the outermost scope releases it
            self._entered.append((frame, engine.runtime.caller(), None))
            return outer  # type: ignore[return-value]
        held = await self.acquire()
        held._enter()
        self._entered.append((frame, held._engine.enter_scope(held), held))
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[None, None, None]:
        return self._leave(sys._getframe(1), error)

    async def _leave(self, frame: FrameType, error: BaseException | None) -> None:
        entry = left_by(self._entered, frame, asyncio.current_task())
        if entry is None:
            raise LockMisuse(self._request.name, "this task did not enter this scope, and several others did")
        self._entered.remove(entry)
        held = entry[2]
        if held is not None:
            held._engine.scopes.leave(held, entry[1])
            await held._leave(error)

    def __repr__(self) -> str:
        return f"<serverlock.aio.Lock {self._request.name}>"
