"""Seats for a few at a time, and a gate in front of some.

A seat belongs to an object, and is free again when that leaves it or is gone. So nothing is lost if a caller ends
between two statements: handlers of signals raise there (a soft time limit, Ctrl-C), and cleaning up may be cut short too.
"""

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .wire import Flag, Runtime

# How long a wake-up that was lost with its caller delays the next one.
BACKSTOP = 0.5


class Seats:
    def __init__(self, size: int) -> None:
        self._mutex = threading.Lock()
        self._owners: list[weakref.ref[Any] | None] = [None] * size

    def take(self, owner: object, of: int | None = None) -> bool:
        """Whether the owner got one of the first `of` seats."""
        with self._mutex:
            for number, ref in enumerate(self._owners[:of]):
                if ref is None or ref() is None:
                    self._owners[number] = weakref.ref(owner)
                    return True
            return False

    def leave(self, owner: object) -> bool:
        """Whether it had one."""
        with self._mutex:
            for number, ref in enumerate(self._owners):
                if ref is not None and ref() is owner:
                    self._owners[number] = None
                    return True
            return False

    @property
    def in_use(self) -> int:
        return sum(ref is not None and ref() is not None for ref in tuple(self._owners))


class Gate:
    """Callers that wait for a seat."""

    def __init__(self, runtime: "Runtime", size: int) -> None:
        self._runtime, self._seats = runtime, Seats(size)
        self._waiting: deque[Flag] = deque()

    async def enter(self, owner: object, timeout: float) -> bool:
        if not self._waiting and self._seats.take(owner):
            return True
        end = time.monotonic() + timeout
        flag = self._runtime.flag()
        try:
            self._waiting.append(flag)
            while not self._seats.take(owner):
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

    def leave(self, owner: object) -> None:
        if self._seats.leave(owner):
            self._wake()

    def _wake(self) -> None:
        try:
            self._waiting[0].set()
        except IndexError:
            pass

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits in front of it."""
        return bool(self._waiting)

    @property
    def in_use(self) -> int:
        return self._seats.in_use
