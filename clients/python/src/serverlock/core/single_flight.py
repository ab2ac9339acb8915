"""One caller computes a value; all that wait for it, in all processes, get the same bytes."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from ..errors import LockBadArgument, LockError, LockMisuse, LockTimeout
from .engine import Engine, H
from .flights import Caller
from .manager import check_names
from .options import FlightOptions
from .request import Duration, Key, Request, request_of
from .results import Resolved

WAIT = 60.0
LEAST_WAIT = 0.001


def flight_of(key: Key, lease: Duration, options: FlightOptions) -> Request:
    """The request of `single_flight`, checked."""
    check_names(options, FlightOptions.__optional_keys__)
    more: dict[str, Any] = {"wait": WAIT, **options}
    request = request_of([key], lease, **more, result=True)
    if request.wait < LEAST_WAIT:
        raise LockBadArgument(request.name, f"wait is {more['wait']!r}, not at least {LEAST_WAIT:g} seconds")
    return request


async def fly(
    engine: Engine,
    manager: object,
    request: Request,
    kind: type[H],
    compute: Callable[[H], Awaitable[bytes]],
    enter: Callable[[H], None],
    leave: Callable[[H, BaseException | None], Awaitable[None]],
) -> bytes:
    """enter, leave: begin and end the scope of the hold in which `compute` runs."""
    if engine.is_closed:
        raise LockMisuse(request.name, "its manager is closed")
    engine.reentered(request)
    caller = engine.flights.join(request)
    try:
        value = await engine.turn(caller)
        if value is not None:
            return value
        got: H | bytes | None = None
        try:
            got = await _get(engine, manager, request, kind, caller)
            return got if isinstance(got, bytes) else await _compute(engine, got, caller, compute, enter, leave)
        except BaseException as error:  # perhaps from a signal handler, before `compute` was called
            if got is not None and not isinstance(got, bytes):
                await leave(got, error)
            raise
    finally:
        caller.flight.leave(caller)


async def _get(engine: Engine, manager: object, request: Request, kind: type[H], caller: Caller) -> H | bytes:
    """The lock, or the value that another process computed."""
    try:
        return await engine.acquire(manager, replace(request, wait=max(LEAST_WAIT, caller.left())), kind)
    except Resolved as end:
        caller.flight.land(end.value)
        return end.value
    except LockTimeout:
        raise
    except LockError as error:
        caller.flight.land(error)
        raise


async def _compute(
    engine: Engine,
    hold: H,
    caller: Caller,
    compute: Callable[[H], Awaitable[bytes]],
    enter: Callable[[H], None],
    leave: Callable[[H, BaseException | None], Awaitable[None]],
) -> bytes:
    who = None
    try:
        who = engine.enter_scope(hold)
        enter(hold)
        value: object = await compute(hold)
        if not isinstance(value, bytes):
            raise LockBadArgument(hold.key, f"compute returned {type(value).__name__}, not bytes")
        caller.flight.land(value)
        if hold.is_held:
            hold._grant.result_until = hold._lease.lost_at
            hold._grant.result = value
    except BaseException as error:
        engine.scopes.leave(hold, engine.runtime.caller() if who is None else who)
        await leave(hold, error)
        raise
    engine.scopes.leave(hold, who)
    try:
        await leave(hold, None)
    except LockError as error:
        engine.log.debug("the value of %s is there, but its lock: %s", hold.key, error)
    return value
