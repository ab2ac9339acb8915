"""Runs once per period, for asyncio."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, TypeVar

from ..core.manager import Manager
from ..core.once import OnceHold, Outcome, Schedule, acquire, finish
from ..core.scopes import Entered, left_by
from ..errors import LockMisuse
from .held import Held

T = TypeVar("T")


class HeldOnce(OnceHold, Held):
    """The held lock of one tick."""

    async def _finish(self, error: BaseException | None) -> bool:
        return await (self.release() if error is not None else finish(self))


class Once:
    """Describes a body that runs once per period, in one of the processes that ask. Callers may share it.

    As a block, it yields the hold, or None if the tick runs elsewhere: `async with once as held: if held: ...`
    """

    def __init__(self, locks: Manager[Any], schedule: Schedule) -> None:
        self._locks, self._schedule = locks, schedule
        self._entered: list[Entered[HeldOnce | None]] = []

    async def run(self, body: Callable[[HeldOnce], Awaitable[T]]) -> Outcome[T]:
        """Calls the body with its hold, unless another process is running this tick, or has run it.

        If the body raises or is cancelled, another process may run this tick.
        """
        async with self as held:
            if held is None:
                return Outcome("elsewhere")
            value = await body(held)
        return Outcome("recovered" if held.recovered else "ran", value)

    def __aenter__(self) -> Coroutine[None, None, HeldOnce | None]:
        return self._enter(sys._getframe(1))

    async def _enter(self, frame: FrameType) -> HeldOnce | None:
        engine = self._locks._engine()
        held = await acquire(engine, self._locks, self._schedule, HeldOnce)
        if held is None:
            self._entered.append((frame, asyncio.current_task(), None))
            return None
        held._enter()
        self._entered.append((frame, engine.enter_scope(held), held))
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[None, None, None]:
        return self._leave(sys._getframe(1), error)

    async def _leave(self, frame: FrameType, error: BaseException | None) -> None:
        entry = left_by(self._entered, frame, asyncio.current_task())
        if entry is None:
            name = self._schedule.request.name
            raise LockMisuse(name, "this task did not enter this scope, and several others did")
        self._entered.remove(entry)
        held = entry[2]
        if held is not None:
            held._engine.scopes.leave(held, entry[1])
            await held._leave(error)

    def __repr__(self) -> str:
        return f"<serverlock.aio.Once {self._schedule.request.name} every {self._schedule.period:g} s>"
