"""Runs once per period, for threads."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ..core.manager import Manager
from ..core.once import OnceHold, Outcome, Schedule, acquire, finish
from ..core.scopes import Entered, left_by
from ..errors import LockMisuse
from .held import Held, leave
from .runtime import run

T = TypeVar("T")


class HeldOnce(OnceHold, Held):
    """The held lock of one tick."""

    def _finish(self, error: BaseException | None) -> bool:
        return self.release() if error is not None else run(lambda: finish(self))


class Once:
    """Describes a body that runs once per period, in one of the processes that ask. Callers may share it.

    As a block, it yields the hold, or None if the tick runs elsewhere: `with once as held: if held: ...`
    """

    def __init__(self, locks: Manager[Any], schedule: Schedule) -> None:
        self._locks, self._schedule = locks, schedule
        self._entered: list[Entered[HeldOnce | None]] = []

    def run(self, body: Callable[[HeldOnce], T]) -> Outcome[T]:
        """Calls the body with its hold, unless another process is running this tick, or has run it.

        If the body raises, another process may run this tick.
        """
        with self as held:
            if held is None:
                return Outcome("elsewhere")
            value = body(held)
        return Outcome("recovered" if held.recovered else "ran", value)

    def __enter__(self) -> HeldOnce | None:
        held = run(lambda: acquire(self._locks._engine(), self._locks, self._schedule, HeldOnce))
        try:
            engine = self._locks._engine()
            caller = engine.runtime.caller() if held is None else engine.enter_scope(held)
            self._entered.append((sys._getframe(1), caller, held))
            return held
        except BaseException as error:  # from a signal handler
            if held is not None:
                self._entered[:] = [entry for entry in self._entered if entry[2] is not held]
                leave(held, error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held: HeldOnce | None = None
        try:
            entry = left_by(self._entered, sys._getframe(1), self._locks._engine().runtime.caller())
            if entry is None:
                name = self._schedule.request.name
                raise LockMisuse(name, "this thread did not enter this scope, and several others did")
            held = entry[2]
            self._entered.remove(entry)
            if held is not None:
                held._engine.scopes.leave(held, entry[1])
        finally:
            if held is not None:
                leave(held, error)

    def __repr__(self) -> str:
        return f"<serverlock.Once {self._schedule.request.name} every {self._schedule.period:g} s>"
