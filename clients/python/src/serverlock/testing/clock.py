"""A clock that stands still until a test moves it, and rings alarms in chronological order."""

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Protocol

from ..core.request import Duration, seconds_of

# When it starts: 2030-03-17 17:46:40 UTC.
EPOCH = 1_900_000_000


class Timed(Protocol):
    """The in-memory server, as the clock sees it."""

    def next_due(self) -> float:
        """When something falls due next; infinity if nothing will."""

    def run_due(self) -> None:
        """Carries out what is due."""


def _nothing() -> None:
    """What a cancelled alarm does."""


class Alarm:
    """Rings once, unless it is cancelled."""

    __slots__ = ("is_over", "ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring, self.is_over = ring, False

    def cancel(self) -> None:
        self.is_over, self.ring = True, _nothing  # it must not keep a caller, and so a manager, alive


class Clock:
    """`mutex` protects the clock, and everything in the server that it drives."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.activity = 0  # counts what happens, so that a loop can see whether anything still does
        self._now = 0.0
        self._count = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._server: Timed | None = None

    def time(self) -> float:
        """The server's time, in seconds since the beginning of 1970."""
        return EPOCH + self._now

    # The rest is for this package.

    def now(self) -> float:
        """The lease clock of the managers, and the clock of the server."""
        return self._now

    def drive(self, server: Timed) -> None:
        self._server = server

    def alarm(self, seconds: float, ring: Callable[[], object]) -> Alarm:
        made = Alarm(ring)
        with self.mutex:
            self.activity += 1
            heapq.heappush(self._alarms, (self._now + seconds, next(self._count), made))
        return made

    def end_of(self, step: Duration) -> float:
        """The time after this step."""
        return self._now + seconds_of(step, "the step", "", 0.0)

    def step(self, end: float) -> bool:
        """Goes to the next moment at which something is due, and does it. False: nothing was due until `end`."""
        with self.mutex:
            server = self._server
            due = min(self._next_alarm(), float("inf") if server is None else server.next_due())
            if due > end:
                self._now = max(self._now, end)
                return False
            self.activity += 1
            self._now = max(self._now, due)
            if server is not None:
                server.run_due()
            while self._next_alarm() <= self._now:
                alarm = heapq.heappop(self._alarms)[2]
                alarm.is_over = True
                alarm.ring()
            return True

    def _next_alarm(self) -> float:
        while self._alarms and self._alarms[0][2].is_over:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else float("inf")
