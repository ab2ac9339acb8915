"""Threads, as the core sees them. Nothing here ever suspends, so `run` drives a coroutine to its end in one step."""

import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from ..core.wire import Line

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a lock with threads awaited something of asyncio")


class Flag:
    def __init__(self) -> None:
        self._event = threading.Event()
        self.set, self.clear = self._event.set, self._event.clear

    async def wait(self, timeout: float) -> bool:
        return self._event.wait(min(timeout, threading.TIMEOUT_MAX))


class Gate:
    def __init__(self, size: int) -> None:
        self._semaphore = threading.Semaphore(size)
        self._waiting = 0

    async def enter(self, timeout: float) -> bool:
        if self._semaphore.acquire(blocking=False):
            return True
        self._waiting += 1
        try:
            return self._semaphore.acquire(timeout=None if timeout == math.inf else max(0.0, timeout))
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._semaphore.release()

    @property
    def is_crowded(self) -> bool:
        return self._waiting > 0


class Runtime:
    def __init__(self) -> None:
        self._watcher: Watcher | None = None
        self._mutex = threading.Lock()

    def caller(self) -> Hashable:
        return threading.get_ident()

    def flag(self) -> Flag:
        return Flag()

    def gate(self, size: int) -> Gate:
        return Gate(size)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        threading.Thread(target=lambda: run(work()), name=name, daemon=True).start()

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        await work

    async def whole(self, work: Coroutine[Any, Any, None]) -> None:
        await work

    def tell(self, work: Callable[[], object]) -> None:
        threading.Thread(target=work, name="serverlock told", daemon=True).start()

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), work)
        timer.daemon, timer.name = True, "serverlock timer"
        try:
            timer.start()
        except RuntimeError:
            pass  # the interpreter ends, and takes everybody along who could be told

    def watch(self, line: Line, ended: Callable[[], None]) -> None:
        with self._mutex:
            if self._watcher is None:
                self._watcher = Watcher()
        self._watcher.watch(line, ended)

    async def unwatch(self, line: Line) -> None:
        if self._watcher is not None:
            self._watcher.unwatch(line)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()


class Watcher:
    """One thread that sees the lines of sessions end."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._mutex = threading.Lock()
        self._lines: dict[Line, tuple[int, Callable[[], None]]] = {}
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._is_closed = False
        threading.Thread(target=self._run, name="serverlock sessions", daemon=True).start()

    def watch(self, line: Any, ended: Callable[[], None]) -> None:
        number = line.fileno()
        if number < 0:
            ended()
            return
        with self._mutex:
            self._lines[line] = number, ended
            self._selector.register(number, selectors.EVENT_READ, line)

    def unwatch(self, line: Line) -> None:
        with self._mutex:
            known = self._lines.pop(line, None)
            if known is not None:
                self._selector.unregister(known[0])

    def close(self) -> None:
        self._is_closed = True
        self._wake.send(b"x")

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                line = key.data
                # The server says nothing on such a line: it has ended, unless TLS has something to say.
                if line is not None and not line.is_alive():
                    with self._mutex:
                        known = self._lines.pop(line, None)
                        if known is not None:
                            self._selector.unregister(known[0])
                    if known is not None:
                        known[1]()
        self._selector.close()
        self._wake.close()
        self._woken.close()
