"""The clock of leases: it runs on while the machine is suspended, as the server's does, and is never set back."""

import sys
import threading
import time
from collections.abc import Callable


def _of_system() -> Callable[[], float] | None:
    """A clock of the system that counts a suspend."""
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
    """Where the system has none: the larger of what the monotonic and the wall clock say has passed since the last look.

    A wall clock that is set back adds nothing; one that is set forwards ends leases early, which is safe.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
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


now: Callable[[], float] = _of_system() or Larger()
