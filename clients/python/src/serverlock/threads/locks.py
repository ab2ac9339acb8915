"""Locks for redis.Redis, redis.RedisCluster and their Valkey twins, used from any number of threads."""

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from ..core.engine import Engine, Options
from ..core.hold import Grant, Hold
from ..core.library import Library
from ..core.manager import LockOptions, Manager
from ..core.request import Duration, Key, Request, seconds_of
from ..errors import LockMisuse
from ..hooks import Hooks
from .runtime import Runtime, run
from .wire import Wire

__all__ = ["Held", "Lock", "LockOptions", "Locks"]


class Locks(Manager["Lock"]):
    """The locks of one client: any number of threads may use it.

    It sends its commands over the client's own connections. The first wait opens one more, for all waits. It starts a
    thread for the leases at the first lock, and one for the waits. None of them keeps the process from ending.
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
        self._entered: list[Entered] = []

    def acquire(self) -> Held:
        """Gets the lock, within `wait`; raises LockRefused, LockTimeout or another LockError."""
        return run(self._locks._engine().acquire(self._locks, self._request, Held))

    def __enter__(self) -> Held:
        held = self.acquire()
        try:
            self._entered.append((sys._getframe(1), held._engine.enter_scope(held), held))
            return held
        except BaseException as error:  # of a handler of a signal
            self._entered[:] = [entry for entry in self._entered if entry[2] is not held]
            _leave(held, error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        held: Held | None = None
        try:
            entry = left_by(self._entered, sys._getframe(1), self._locks._engine().runtime.caller())
            if entry is None:
                raise LockMisuse(self._request.name, "this scope was not entered, or by several others: leave it where it began")
            held = entry[2]
            self._entered.remove(entry)
            held._engine.leave_scope(held, entry[1])
        finally:
            if held is not None:
                _leave(held, error)

    def __repr__(self) -> str:
        return f"<serverlock.Lock {self._request.name}>"


Entered: TypeAlias = tuple[FrameType, Hashable, Any]


def left_by(entered: "list[Entered]", frame: FrameType, caller: Hashable) -> "Entered | None":
    """The scope that ends: that of this `with`, else the last one of this caller, else the only one there is.

    Frameworks leave a scope in another thread or task than they entered it in, while others use the same Lock.
    """
    mine = [entry for entry in entered if entry[0] is frame] or [entry for entry in entered if entry[1] is caller]
    return mine[-1] if mine else entered[0] if len(entered) == 1 else None


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
