"""Locks for redis.Redis, redis.RedisCluster and their Valkey twins, used from any number of threads."""

import os
import threading
import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any

from ..core.engine import Engine, Options
from ..core.hold import Grant, Hold
from ..core.library import Library
from ..core.manager import LockOptions, Manager
from ..core.request import Duration, Key, Request, seconds_of
from ..errors import LockMisuse
from .runtime import Runtime, run
from .wire import Wire

__all__ = ["Held", "Lock", "LockOptions", "Locks"]


class Locks(Manager["Lock"]):
    """The locks of one client: any number of threads may use it.

    It sends its commands over the client's own connections. The first wait opens one more, for all waits. It starts a
    thread for the leases at the first lock, and one for the waits. None of them keeps the process from ending.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._library = Library(client, is_async=False)
        self._mutex = threading.Lock()
        self._current: Engine | None = None
        self._finalizer: Any = None

    def _made(self, request: Request) -> "Lock":
        return Lock(self, request)

    def _engine(self) -> Engine:
        engine = self._current
        if engine is None or engine.pid != os.getpid():
            engine = self._new_engine()
        return engine

    def _new_engine(self) -> Engine:
        # After a fork, a thread that does not exist here may have had the old mutex.
        if self._current is not None and self._current.pid != os.getpid():
            self._mutex = threading.Lock()
        with self._mutex:
            if self._current is None or self._current.pid != os.getpid():
                self._current = _engine_of(self._client, self._library, self._options)
                self._finalizer = weakref.finalize(self, _close, self._current)
            return self._current

    def leader(self, key: Key, lease: Duration, **options: Any) -> "Leader":
        """Campaigns for a key until it is stopped: see Leader."""
        return Leader(self, key, lease, **options)

    def close(self) -> None:
        """Ends the threads and the connections of its own. Locks that are held are not renewed any more."""
        run(self._engine().close())

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _close(engine: Engine) -> None:
    if engine.pid == os.getpid():
        run(engine.close())


def _engine_of(client: Any, library: Library, options: Options) -> Engine:
    runtime = Runtime()
    return Engine(runtime, Wire(client, library, runtime), options)


class Held(Hold):
    """A lock that is held. Any thread may check, extend or release it."""

    def release(self) -> bool:
        """Gives the lock back; whether it was held to the end."""
        return run(self._engine.release(self))

    def extend(self, lease: Duration | None = None) -> None:
        """Sets a new lease, counted from now. Renewal does so by itself with the lease of the lock."""
        made = None if lease is None else seconds_of(lease, "lease", self.key, 0.001)
        run(self._engine.extend(self, made))

    def verify(self) -> float:
        """Asks the server whether the lock is held; the seconds that are left. Raises LockLost."""
        return run(self._engine.verify(self))

    def fenced(self, command: str, key: Key, *args: str | bytes | int) -> Any:
        """Runs one command on the same server, only if the lock is held there at that moment. Raises LockLost.

        In a cluster, `key` has to be in the slot of the lock.
        """
        return run(self._engine.fenced(self, (command, key, *args)))

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _leave(self, error)


class Lock:
    """A description of a lock: it holds nothing, and any number of callers may use it. Each gets a hold of its own."""

    def __init__(self, locks: Locks, request: Request) -> None:
        self._locks, self._request = locks, request
        self._entered: list[tuple[Hashable, Held]] = []

    def acquire(self) -> Held:
        """Gets the lock, within `wait`; raises LockRefused, LockTimeout or another LockError."""
        return run(self._locks._engine().acquire(self._locks, self._request, Held))

    def __enter__(self) -> Held:
        held = self.acquire()
        self._entered.append((held._engine.enter_scope(held), held))
        return held

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        caller = self._locks._engine().runtime.caller()
        mine = [entry for entry in self._entered if entry[0] == caller] or self._entered
        if not mine:
            raise LockMisuse(self._request.name, "this scope was not entered")
        entry = mine[-1]
        self._entered.remove(entry)
        held = entry[1]
        held._engine.leave_scope(held, entry[0])
        _leave(held, error)

    def __repr__(self) -> str:
        return f"<serverlock.Lock {self._request.name}>"


def _leave(held: Held, error: BaseException | None) -> None:
    """The end of a scope. The error of the body is the one to tell."""
    if held._pid != os.getpid() or held._ended is not None:
        return
    try:
        in_time = held.release()
    except Exception:
        if error is None:
            raise
        return
    if not in_time and error is None:
        raise held._lost or held._over()


from .leader import Leader  # noqa: E402 - it needs Locks
