"""A semaphore whose permits belong to objects: a permit becomes free once its owner releases it or is gone.

So no permit is lost if a caller ends between two statements. Signal handlers can raise there (a soft time limit,
Ctrl-C), and may even cut a clean-up short.
"""

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wire import Flag, Runtime

# A wake-up can be lost with its caller. That delays the next caller by at most this long.
BACKSTOP = 0.5


class Permits:
    def __init__(self, size: int) -> None:
        self._mutex = threading.Lock()
        self._owners: list[weakref.ref[object] | None] = [None] * size

    def acquire(self, owner: object, of: int | None = None) -> bool:
        """Whether the owner got one of the first `of` permits. Never waits."""
        with self._mutex:
            for number, ref in enumerate(self._owners[:of]):
                if ref is None or ref() is None:
                    self._owners[number] = weakref.ref(owner)
                    return True
            return False

    def release(self, owner: object) -> bool:
        """Whether the owner had a permit."""
        with self._mutex:
            for number, ref in enumerate(self._owners):
                if ref is not None and ref() is owner:
                    self._owners[number] = None
                    return True
            return False

    @property
    def in_use(self) -> int:
        return sum(ref is not None and ref() is not None for ref in tuple(self._owners))


class Semaphore:
    """Permits that callers wait for, in order."""

    def __init__(self, runtime: "Runtime", size: int) -> None:
        self._runtime, self._permits = runtime, Permits(size)
        self._waiting: deque[Flag] = deque()

    async def acquire(self, owner: object, timeout: float) -> bool:
        if not self._waiting and self._permits.acquire(owner):
            return True
        end = time.monotonic() + timeout
        flag = self._runtime.flag()
        try:
            self._waiting.append(flag)
            while not self._permits.acquire(owner):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                await flag.wait(min(left, BACKSTOP))
                flag.clear()
            return True
        finally:
            try:
                self._waiting.remove(flag)
            except ValueError:
                pass
            self._wake()

    def release(self, owner: object) -> None:
        if self._permits.release(owner):
            self._wake()

    def _wake(self) -> None:
        try:
            self._waiting[0].set()
        except IndexError:
            pass

    @property
    def has_waiters(self) -> bool:
        """Whether somebody is waiting for a permit."""
        return bool(self._waiting)

    @property
    def in_use(self) -> int:
        return self._permits.in_use
