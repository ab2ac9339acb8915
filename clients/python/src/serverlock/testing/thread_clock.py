"""Time for threads, on a clock that stands still until a test moves it.

A thread that waits in a manager really blocks, until the clock or another thread wakes it. The clock knows which
threads are awake inside the managers, so `advance` returns once they have done what they were woken for.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator

from ..core.request import Duration
from ..core.wire import Connection
from ..threads import runtime
from . import clock
from .wire import unwatch, watch

# In real seconds: how long a test's callback may take before `advance` continues without it, and how long
# `until_waiting` waits.
PATIENCE = 10.0
MOST_PATIENCE = 60.0


class Counted(threading.Thread):
    """A thread of a manager. It counts as awake from its start."""

    def __init__(self, clock: "Clock", work: Callable[[], object], name: str) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self._clock = clock

    def start(self) -> None:
        self._clock.is_awake(self)
        super().start()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._clock.is_asleep(self)


class Sleeper:
    """A thread that waits."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.alarm: clock.Alarm | None = None
        self.is_woken = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def sleep(self) -> None:
        self._lock.acquire()

    def wake(self) -> None:
        self._lock.release()


class Clock(clock.Clock):
    """The clock of an in-memory server. It stands still until `advance` moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = threading.Condition(self.mutex)
        self._moving = threading.Lock()
        self._awake: set[threading.Thread] = set()
        self._inside: set[threading.Thread] = set()  # the test's own threads, while they are in a manager

    def advance(self, seconds: Duration) -> None:
        """Moves the clock, and carries out everything that falls due on the way, in chronological order.

        Returns once the managers and the callbacks have finished what that caused.
        """
        with self._moving:
            end = self.end_of(seconds)
            self.settle()
            while self.step(end):
                self.settle()

    # The rest is for this package.

    def settle(self) -> None:
        """Waits until every thread in a manager is waiting for something, or has left."""
        end, me = time.monotonic() + PATIENCE, threading.current_thread()
        with self.mutex:
            while any(thread is not me and _may_act(thread) for thread in self._awake):
                if not self._news.wait(max(0.0, end - time.monotonic())):
                    return

    def until(self, condition: Callable[[], bool]) -> bool:
        with self.mutex:
            return self._news.wait_for(condition, MOST_PATIENCE)

    def has_changed(self) -> None:
        with self.mutex:
            self._news.notify_all()

    def is_awake(self, thread: threading.Thread) -> None:
        with self.mutex:
            self._awake.add(thread)

    def is_asleep(self, thread: threading.Thread) -> None:
        with self.mutex:
            self._awake.discard(thread)
            self._news.notify_all()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The caller is in a manager."""
        me = threading.current_thread()
        if isinstance(me, Counted) or me in self._inside:
            yield
            return
        with self.mutex:
            self._inside.add(me)
            self._awake.add(me)
        try:
            yield
        finally:
            with self.mutex:
                self._inside.discard(me)
            self.is_asleep(me)

    def fall_asleep(self, seconds: float) -> Sleeper:
        """The caller holds the mutex, and then calls `sleep`."""
        sleeper = Sleeper()
        if not math.isinf(seconds):
            sleeper.alarm = self.alarm(seconds, lambda: self.wake(sleeper))
        self.is_asleep(sleeper.thread)
        return sleeper

    def wake(self, sleeper: Sleeper) -> None:
        with self.mutex:
            if sleeper.is_woken:
                return
            sleeper.is_woken = True
            if sleeper.alarm is not None:
                sleeper.alarm.cancel()
            if isinstance(sleeper.thread, Counted) or sleeper.thread in self._inside:
                self._awake.add(sleeper.thread)
            sleeper.wake()


def _may_act(thread: threading.Thread) -> bool:
    return thread.ident is None or thread.is_alive()


class Flag:
    """Waiting clears it, as in production."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._sleeper: Sleeper | None = None

    def set(self) -> None:
        with self._clock.mutex:
            self._is_set = True
            if self._sleeper is not None:
                self._clock.wake(self._sleeper)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, timeout: float) -> bool:
        clock, sleeper = self._clock, None
        with clock.mutex:
            if not self._is_set and timeout > 0:
                sleeper = self._sleeper = clock.fall_asleep(timeout)
        try:
            if sleeper is not None:
                sleeper.sleep()
        finally:
            with clock.mutex:
                if sleeper is not None:
                    clock.wake(sleeper)  # a signal handler may have raised
                    self._sleeper = None
                was_set, self._is_set = self._is_set, False
        return was_set


class Worker(runtime.Worker):
    def __init__(
        self, owner: "Runtime", work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool]
    ) -> None:
        super().__init__(work, name, more)
        self._owner = owner

    def start(self) -> None:
        with self._mutex:
            if self.runs:
                return
            self.runs = True
        self._owner.thread(self._run, self._name).start()


class Runtime(runtime.Runtime):
    longest_nap = 3600.0  # nothing is suspended

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.now = clock.now

    def flag(self) -> Flag:  # type: ignore[override]
        return Flag(self.clock)

    async def sleep(self, seconds: float) -> None:
        await Flag(self.clock).wait(seconds)

    def worker(
        self, work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool] = lambda: False
    ) -> Worker:
        return Worker(self, work, name, more)

    def thread(self, work: Callable[[], object], name: str) -> threading.Thread:
        return Counted(self.clock, work, name)

    def call_back(self, work: Callable[[], object]) -> None:
        self.thread(lambda: _call(work), "serverlock callback").start()

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        self.clock.alarm(seconds, self.thread(work, "serverlock timer").start)

    def watch(self, connection: Connection, ended: Callable[[], None]) -> None:
        watch(connection, ended)

    async def unwatch(self, connection: Connection) -> None:
        unwatch(connection)


def _call(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        logging.getLogger("serverlock").exception("a callback failed")
