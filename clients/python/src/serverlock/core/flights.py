"""The callers of one manager that want the value of one key. They share one attempt.

The first of them in order of arrival has the attempt, and computes. If it leaves without a value, the next begins a new
one. Flights refer to their callers weakly, so nothing stays behind wherever a signal handler ends a caller.
"""

import copy
import threading
import weakref
from collections.abc import Hashable

from ..errors import LockError, LockMisuse
from . import kinds
from .request import Request
from .weak import WeakMap
from .wire import Runtime

# A signal handler can end what would have told a caller that its turn has come. In seconds.
LOOK_AGAIN = 1.0


class Flight:
    def __init__(self) -> None:
        self.outcome: bytes | LockError | None = None
        self._callers: list[weakref.ref[Caller]] = []

    @property
    def first(self) -> "Caller | None":
        """The caller that has the attempt."""
        callers = (ref() for ref in tuple(self._callers))
        return next((caller for caller in callers if caller is not None), None)

    def join(self, caller: "Caller") -> None:
        self._callers.append(weakref.ref(caller, self._gone))

    def leave(self, caller: "Caller") -> None:
        for ref in tuple(self._callers):
            if ref() is caller:
                self._gone(ref)

    def land(self, outcome: bytes | LockError) -> None:
        """All callers get this."""
        self.outcome = outcome
        for ref in tuple(self._callers):
            caller = ref()
            if caller is not None:
                caller.flag.set()

    def _gone(self, ref: "weakref.ref[Caller]") -> None:
        try:
            self._callers.remove(ref)
        except ValueError:
            pass
        first = self.first
        if first is not None:
            first.flag.set()


class Caller:
    """One call."""

    def __init__(self, runtime: Runtime, request: Request, flight: Flight) -> None:
        self._now, self._request = runtime.now, request
        self.flight, self.flag, self.who = flight, runtime.flag(), runtime.caller()
        self.began = self._now()
        self.deadline = self.began + request.wait

    def left(self) -> float:
        return self.deadline - self._now()

    async def turn(self) -> bytes | None:
        """Waits for the value. None: this caller is the first, and has to get it. Raises the attempt's error."""
        while True:
            self.flag.clear()
            outcome = self.flight.outcome
            if isinstance(outcome, LockError):
                error = copy.copy(outcome)
                error.__cause__ = outcome.__cause__
                raise error
            if outcome is not None:
                return outcome
            if self.flight.first is self:
                return None
            left = self.left()
            if left <= 0:
                raise kinds.timed_out(self._request.name, self._now() - self.began)
            await self.flag.wait(min(left, LOOK_AGAIN))


class Flights:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._by_key: WeakMap[bytes, Flight] = WeakMap()

    def __len__(self) -> int:
        return len(self._by_key)

    def join(self, request: Request) -> Caller:
        """Raises LockMisuse if this caller is computing the value."""
        who: Hashable = self._runtime.caller()
        with self._mutex:
            flight = self._by_key.get(request.key)
            first = None if flight is None else flight.first
            if first is not None and first.who is who:
                raise LockMisuse(request.name, "this caller is computing its value")
            if flight is None or flight.outcome is not None:
                flight = self._by_key[request.key] = Flight()
            caller = Caller(self._runtime, request, flight)
            flight.join(caller)
            return caller
