"""Threads, as the core sees them. Nothing here suspends, so `run` drives a coroutine to completion in one step."""

import _thread
import logging
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from ..core.clock import LONGEST_NAP, Clock, now
from ..core.wire import Connection

T = TypeVar("T")


def run(work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Takes a function, because a signal handler may raise before a coroutine that the caller created starts."""
    steps = work()
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("a lock with threads awaited something from asyncio")


class Flag:
    """A lock that is free while the flag is set. Waiting clears it.

    It is not an Event: a signal handler that raises inside an Event leaves its inner lock taken for all threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it was set

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    async def wait(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))


class Worker:
    """A thread. A low-level thread starts it, because `Thread.start` uses an Event: see Flag."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool]) -> None:
        self._work, self._name, self._more = work, name, more
        self._mutex = threading.Lock()
        self.runs = False

    def start(self) -> None:
        if not self.runs:
            _thread.start_new_thread(self._launch, ())

    def _launch(self) -> None:
        with self._mutex:
            if self.runs:
                return
            self.runs = True
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        try:
            run(self._work)
        finally:
            self.runs = False
            if self._more():
                self.start()


class Callbacks:
    """A few threads that run the user's callbacks. They end when they have had nothing to run for a while."""

    MOST = 3

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._workers = [
            Worker(self._run, "serverlock callbacks", lambda: not self._work.empty()) for _ in range(self.MOST)
        ]

    def call(self, work: Callable[[], object]) -> None:
        self._work.put(work)
        for worker in self._workers:
            if not worker.runs:
                worker.start()
                break

    async def _run(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._linger)
            except queue.Empty:
                return
            try:
                work()
            except Exception:
                logging.getLogger("serverlock").exception("a callback failed")
            del work


class Runtime:
    now: Clock = staticmethod(now)
    longest_nap = LONGEST_NAP
    linger = 2.0

    def __init__(self) -> None:
        self._callbacks = Callbacks(self.linger)
        self._watcher: Watcher | None = None
        self._mutex = threading.Lock()

    def caller(self) -> Hashable:
        return threading.current_thread()  # its number is reused once it has ended

    def flag(self) -> Flag:
        return Flag()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def worker(
        self, work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool] = lambda: False
    ) -> Worker:
        return Worker(work, name, more)

    def thread(self, work: Callable[[], object], name: str) -> threading.Thread:
        """A thread that the caller starts. It does not keep the process alive."""
        return threading.Thread(target=work, name=name, daemon=True)

    async def finish(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        await work()

    def call_back(self, work: Callable[[], object]) -> None:
        self._callbacks.call(work)

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), work)
        timer.daemon, timer.name = True, "serverlock timer"
        try:
            timer.start()
        except RuntimeError:
            pass  # the interpreter is exiting

    def watch(self, connection: Connection, ended: Callable[[], None]) -> None:
        with self._mutex:
            if self._watcher is None:
                self._watcher = Watcher()
        self._watcher.watch(connection, ended)

    async def unwatch(self, connection: Connection) -> None:
        if self._watcher is not None:
            self._watcher.unwatch(connection)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()


class Watcher:
    """One thread that notices when session connections end."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._mutex = threading.Lock()
        self._connections: dict[Connection, tuple[int, Callable[[], None]]] = {}
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._is_closed = False
        self._worker = Worker(self._run, "serverlock sessions", lambda: False)
        self._worker.start()

    def watch(self, connection: Any, ended: Callable[[], None]) -> None:
        number = connection.fileno()
        if number < 0:
            ended()
            return
        self.unwatch(connection)
        with self._mutex:
            if self._is_closed:
                return
            self._connections[connection] = number, ended
            self._selector.register(number, selectors.EVENT_READ, connection)
        self._worker.start()

    def unwatch(self, connection: Connection) -> None:
        with self._mutex:
            known = self._connections.pop(connection, None)
            if known is not None:
                self._selector.unregister(known[0])

    def close(self) -> None:
        """May run twice: the user closes the manager, and the interpreter does so at exit."""
        with self._mutex:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._wake.send(b"x")

    async def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                connection = key.data
                with self._mutex:
                    known = self._connections.get(connection)
                    # The server sends nothing on such a connection, so it has ended, unless TLS sent something.
                    if known is None or connection.is_alive():
                        continue
                    del self._connections[connection]
                    self._selector.unregister(known[0])
                known[1]()
        self._selector.close()
        self._wake.close()
        self._woken.close()
