"""Runs a body once for each tick, in one of the processes that ask. The lock itself records that a tick has run: it is
kept until the tick's window ends."""

from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from ..errors import LockBadArgument, LockRefused, LockTimeout
from . import kinds, ticks
from .engine import LATE_EXTEND, BoundHold, Engine
from .manager import check_names
from .options import OnceOptions
from .request import Duration, Key, Request, key_of, request_of, seconds_of, shown
from .server_clock import MOST_DOUBT, Estimate
from .wire import ConnectionLost, ReplyError

T_co = TypeVar("T_co", covariant=True)

# A lease that ends earlier than it should by more than ROUNDING, or later by more than EXACT, is corrected.
ROUNDING = 0.002
EXACT = 0.1
MOST_CORRECTIONS = 3
# A long lease is at least this long until the tick of its grant is known: that may be the next one.
LEAST_LEASE = 1.0
# After this time, two clocks may have drifted so far apart that the server's is read again when a body ends.
DRIFTS = 600.0


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """What became of a call for a tick.

    outcome: "ran": the body ran here. "elsewhere": another process is running it, or has run it. "recovered": the lease
    of a process that ran expired within this window, perhaps in the middle of its work, and the body ran here.
    value: what the body returned; None if it ran elsewhere.
    """

    outcome: Literal["ran", "elsewhere", "recovered"]
    value: T_co | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The arguments of `once`, checked. rerun: whether a tick runs again if its process dies."""

    request: Request
    period: float
    rerun: bool


def schedule_of(key: Key, period: Duration, lease: Duration | None, rerun: bool, options: OnceOptions) -> Schedule:
    check_names(options, OnceOptions.__optional_keys__)
    name = shown([key_of(key)])
    seconds = seconds_of(period, "period", name, ticks.LEAST_PERIOD)
    more: dict[str, Any] = {**options}
    request = request_of([key], ticks.default_lease(seconds) if lease is None else lease, details=True, **more)
    if request.lease > seconds / 2:
        raise LockBadArgument(name, f"lease is {lease!r}, longer than half of the period")
    return Schedule(request, seconds, bool(rerun))


@dataclass(slots=True)
class Run:
    """The tick that a hold runs. `is_long`: from the start, its lease lasts until the end of the window."""

    tick: int
    period: float
    recovered: bool
    estimate: Estimate
    margin: float
    is_long: bool

    def lease_ends(self) -> float:
        """When the lease must end, by the local clock, so that the server lets others in at the end of the window.

        Others may get in a little later, but not earlier, if the estimate of the server's clock is wrong.
        """
        end = ticks.end_of(self.tick, self.period) + min(self.estimate.doubt, MOST_DOUBT)
        return end - self.estimate.offset - self.margin


class OnceHold(BoundHold):
    """A hold that runs one tick."""

    _is_reentrant = False
    _run: Run

    @property
    def tick(self) -> int:
        """The number of the tick: how many periods after the beginning of 1970 it begins, by the server's clock."""
        return self._run.tick

    @property
    def recovered(self) -> bool:
        """Whether the lease of a process that ran expired within this window: its work may be half done."""
        return self._run.recovered


H = TypeVar("H", bound=OnceHold)


async def acquire(engine: Engine, manager: object, schedule: Schedule, kind: type[H]) -> H | None:
    """Begins to run the current tick. None: another process is running it, or has run it."""
    request, clock = schedule.request, engine.resources.clock
    hold: H | None = None
    try:
        estimate = await clock.read(request.key)
        if not schedule.rerun:
            tick = ticks.tick_at(engine.now() + estimate.offset, schedule.period)
            run = Run(tick, schedule.period, False, estimate, clock.margin, True)
            # It is never renewed.
            request = replace(request, lease=max(LEAST_LEASE, run.lease_ends() - engine.now()), max_hold=0.0)
        hold = await engine.acquire(manager, request, kind)
        run = hold._run = _run_of(hold, schedule, estimate, await engine.margin(hold))
        if run.is_long:
            await _correct(engine, hold, run)
        return hold
    except LockRefused as error:
        if isinstance(error, LockTimeout):
            raise
        return None
    except BaseException as error:
        if hold is not None:
            engine.give_up(hold)
        if isinstance(error, (ReplyError, ConnectionLost)):
            raise kinds.typed(error, request.name) from error
        raise


async def _correct(engine: Engine, hold: BoundHold, run: Run) -> None:
    """Sets the end of a long lease again if it is off, or if the server may have counted it from too late a moment."""
    took = hold._granted - hold._grant.sent
    for _ in range(MOST_CORRECTIONS):
        if -ROUNDING <= hold._lease.ends_at - run.lease_ends() <= EXACT and took <= LATE_EXTEND:
            return
        sent = engine.now()
        await engine.extend(hold, max(0.001, run.lease_ends() - sent))
        took = engine.now() - sent


def _run_of(hold: BoundHold, schedule: Schedule, estimate: Estimate, margin: float) -> Run:
    period, before = schedule.period, hold.predecessor
    # The server granted it between two moments. If a kept lease had to end first, its window has ended by the later.
    tick = ticks.tick_at(hold._granted + estimate.offset, period)
    granted = hold._grant.sent + estimate.offset - estimate.doubt
    recovered = before is not None and ticks.is_recovery(granted - before.overdue, tick, period)
    return Run(tick, period, recovered, estimate, margin, not schedule.rerun)


async def finish(hold: OnceHold) -> bool:
    """Ends the hold of a body that succeeded: nobody else will run its tick. Returns whether it was held to the end."""
    engine, run = hold._engine, hold._run
    try:
        if not run.is_long and (engine.now() > run.estimate.asked + DRIFTS or not run.estimate.is_good):
            try:
                run.estimate = await engine.resources.clock.read(hold._request.key)
            except (ReplyError, ConnectionLost):
                pass
        return await engine.keep(hold, run.lease_ends(), is_long=run.is_long)
    finally:
        if hold._ended is None:  # the caller was interrupted
            engine.owe_keep(hold, run.lease_ends())
