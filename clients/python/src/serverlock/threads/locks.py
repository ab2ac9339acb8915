"""Locks for redis.Redis, redis.RedisCluster and their Valkey counterparts, used from any number of threads."""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Unpack

from ..core.campaign import PIECE
from ..core.engine import Engine
from ..core.manager import Manager, shows
from ..core.once import schedule_of
from ..core.options import FlightOptions, LeaderOptions, OnceOptions
from ..core.request import Duration, Key, Request
from ..core.scopes import Entered, left_by
from ..core.single_flight import WAIT, flight_of, fly
from ..errors import LockMisuse
from .held import Held, leave
from .leader import Leader, ignore
from .once import Once
from .runtime import Runtime, run
from .wire import Wire


class Locks(Manager["Lock"]):
    """The locks of one client: any number of threads may use it.

    It sends its commands over the client's own connections. The first wait opens one more connection, for all waits.
    The first lock starts a thread for the leases, the first wait another one. These threads do not keep the process
    alive.
    """

    def _set_up(self) -> None:
        self._mutex = threading.Lock()

    def _lock_of(self, request: Request) -> "Lock":
        return Lock(self, request)

    def _engine(self) -> Engine:
        engine = self._current
        if engine is None or engine.pid != os.getpid():
            engine = self._new_engine()
        return engine

    def _new_engine(self) -> Engine:
        # After a fork, the old mutex may be held by a thread that does not exist here.
        if self._current is not None and self._current.pid != os.getpid():
            self._mutex = threading.Lock()
        with self._mutex:
            if self._current is None or self._current.pid != os.getpid():
                self._current = self._build()
                weakref.finalize(self, _close, self._current)
            return self._current

    def _build(self) -> Engine:
        runtime = Runtime()
        return Engine(runtime, Wire(self._client, self._library, runtime), self._options)

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
        return Once(self, schedule_of(key, period, lease, rerun, options))

    @shows(FlightOptions, wait=WAIT)
    def single_flight(
        self, key: Key, lease: Duration, compute: Callable[[Held], bytes], **options: Unpack[FlightOptions]
    ) -> bytes:
        """Returns the value of the key: one caller computes it, and all that wait, in any process, get the same bytes.

        compute: called with the hold by the caller that gets the lock, and returns bytes. Up to 64 KB are passed on.
        lease: in seconds; renewed while `compute` runs. If a process dies, another computes once its lease has ended.
        wait: how long this call waits for the value, in seconds.
        The callers of one manager share one attempt. If `compute` fails, its caller gets the error.
        Raises LockTimeout if there is no value within `wait`, LockMisuse within `compute`, or another LockError.
        """
        request = flight_of(key, lease, options)

        async def call(held: Held) -> bytes:
            return compute(held)

        async def end(held: Held, error: BaseException | None) -> None:
            leave(held, error)

        return run(lambda: fly(self._engine(), self, request, Held, call, lambda _: None, end))

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

    def close(self) -> None:
        """Ends the manager's threads and closes its own connections. Held locks are no longer renewed."""
        run(self._engine().close)

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _close(engine: Engine) -> None:
    if engine.pid == os.getpid():
        run(engine.close)


class Lock:
    """Describes a lock. It holds nothing: any number of callers may use it, and each gets its own hold."""

    def __init__(self, locks: Locks, request: Request) -> None:
        self._locks, self._request = locks, request
        self._entered: list[Entered[Held | None]] = []

    def acquire(self) -> Held:
        """Gets the lock within `wait`. Raises LockRefused, LockTimeout or another LockError."""
        return run(lambda: self._locks._engine().acquire(self._locks, self._request, Held))

    def __enter__(self) -> Held:
        engine = self._locks._engine()
        outer = engine.reentered(self._request)
        if outer is not None:  # the outermost scope releases it
            self._entered.append((sys._getframe(1), engine.runtime.caller(), None))
            return outer  # type: ignore[return-value]
        held = self.acquire()
        try:
            self._entered.append((sys._getframe(1), held._engine.enter_scope(held), held))
            return held
        except BaseException as error:  # from a signal handler
            self._entered[:] = [entry for entry in self._entered if entry[2] is not held]
            leave(held, error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held: Held | None = None
        try:
            entry = left_by(self._entered, sys._getframe(1), self._locks._engine().runtime.caller())
            if entry is None:
                raise LockMisuse(self._request.name, "this thread did not enter this scope, and several others did")
            held = entry[2]
            self._entered.remove(entry)
            if held is not None:
                held._engine.scopes.leave(held, entry[1])
        finally:
            if held is not None:
                leave(held, error)

    def __repr__(self) -> str:
        return f"<serverlock.Lock {self._request.name}>"
