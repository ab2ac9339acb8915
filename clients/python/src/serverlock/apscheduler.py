"""Jobs of APScheduler that run once per tick, over all schedulers. Needs APScheduler.

locks = Locks(redis.Redis())

@scheduler.scheduled_job("cron", minute=0)
@once_per_tick(locks, "report", period=3600)
def report(): ...
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from .aio.locks import Locks as AioLocks
from .core.once import schedule_of
from .core.options import OnceOptions
from .core.request import Duration, Key
from .errors import LockBadArgument
from .threads.locks import Locks

F = TypeVar("F", bound=Callable[..., Any])


def once_per_tick(
    locks: Locks | AioLocks,
    key: Key,
    period: Duration,
    *,
    lease: Duration | None = None,
    rerun: bool = True,
    **options: Unpack[OnceOptions],
) -> Callable[[F], F]:
    """A decorator for a job that several schedulers start: one of them runs it for each tick, the others return None.

    locks: serverlock.Locks for functions, serverlock.aio.Locks for coroutine functions.
    period: the time between two ticks, which begin at its multiples. A call is for the nearest one.
    lease, rerun and the other options are those of `Locks.once`.
    A job with the parameter `held` gets the hold in it.
    """
    schedule_of(key, period, lease, rerun, options)  # checks them

    def decorate(job: F) -> F:
        signature = inspect.signature(job)
        takes_held = "held" in signature.parameters
        is_async = inspect.iscoroutinefunction(job)
        if is_async is not isinstance(locks, AioLocks):
            kind = "a coroutine function: it needs serverlock.aio.Locks" if is_async else "not a coroutine function"
            raise LockBadArgument(repr(key), f"the job {job.__name__} is {kind}")
        once: Any = locks.once(key, period, lease=lease, rerun=rerun, **options)

        def run(*args: Any, **kwargs: Any) -> Any:
            return once.run(lambda held: job(*args, **_with(kwargs, held, takes_held))).value

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            return (await once.run(lambda held: job(*args, **_with(kwargs, held, takes_held)))).value

        wrapper: Any = functools.wraps(job)(run_async if is_async else run)
        # The scheduler compares a job's arguments with this.
        named = [it for it in signature.parameters.values() if it.name != "held"]
        wrapper.__signature__ = signature.replace(parameters=named)
        return wrapper  # type: ignore[no-any-return]

    return decorate


def _with(kwargs: dict[str, Any], held: object, takes_held: bool) -> dict[str, Any]:
    return {**kwargs, "held": held} if takes_held else kwargs
