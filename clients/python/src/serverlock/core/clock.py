"""The clock for leases: like the server's, it keeps running while the machine is suspended. It never goes backwards."""

import sys
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]  # in seconds, from some moment

# Threads and loops do not wake during a suspend, so while there are holds, the lease clock is read this often.
LONGEST_NAP = 0.5


def _of_system() -> Clock | None:
    """The system's clock that keeps running during a suspend, if there is one."""
    name = "CLOCK_BOOTTIME" if sys.platform == "linux" else "CLOCK_MONOTONIC" if sys.platform == "darwin" else ""
    number = getattr(time, name, None)
    if number is None:
        return None
    try:
        time.clock_gettime(number)
    except OSError:
        return None
    read = time.clock_gettime
    return lambda: read(number)


class Larger:
    """For systems without such a clock: adds the larger of the monotonic clock's and the wall clock's advance.

    Setting the wall clock back adds nothing. Setting it forward ends leases early, which is safe.
    """

    def __init__(self, monotonic: Clock = time.monotonic, wall: Clock = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._mutex = threading.Lock()
        self._at = self._before = monotonic()
        self._before_by_wall = wall()

    def __call__(self) -> float:
        with self._mutex:
            monotonic, wall = self._monotonic(), self._wall()
            self._at += max(monotonic - self._before, wall - self._before_by_wall, 0.0)
            self._before, self._before_by_wall = monotonic, wall
            return self._at


now: Clock = _of_system() or Larger()
