"""FastAPI endpoints that hold a lock, and work that one of several instances does. Needs fastapi.

locks = aio.Locks(redis.asyncio.Redis())
app = FastAPI(lifespan=leading(locks, "importer", import_orders))

@app.post("/orders/{order}/pay")
async def pay(held: Annotated[Held, Depends(locked(locks, "order:{order}", lease=30), scope="function")]): ...
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Unpack

from fastapi import HTTPException, Request

from .aio.held import Held as AioHeld
from .aio.locks import Locks as AioLocks
from .core.manager import check_names
from .core.options import LeaderOptions, LockOptions
from .core.request import Duration, Key, request_of
from .errors import LockBadArgument, LockError, LockLost, LockRefused, LockTimeout
from .threads.held import Held
from .threads.locks import Locks

PAUSE = 1.0
PIECE = 60.0

log = logging.getLogger("serverlock")


def locked(
    locks: AioLocks | Locks,
    key: str | Callable[[Any], Key],
    lease: Duration,
    *,
    status: int = 409,
    **options: Unpack[LockOptions],
) -> Callable[..., Any]:
    """A dependency that holds a lock during the request; its value is the hold.

    locks: with serverlock.aio.Locks, a loss cancels an `async def` endpoint. Other endpoints call `held.check()` before
    each step that needs the lock.
    key: a template for the path's parameters ("order:{order}"), or a function of the request.
    status: of the reply if somebody else has the lock. It is 503 if the lock is lost, or the server cannot grant it.
    """
    check_names(options, LockOptions.__optional_keys__)
    if options.get("reentrant") and isinstance(locks, Locks):
        # A thread serves one request after the other, so the next one would get the lock of the last.
        raise LockBadArgument(str(key), "reentrant needs serverlock.aio.Locks")
    request_of(["checked"], lease, **options)
    return (
        _in_thread(locks, key, lease, status, options)
        if isinstance(locks, Locks)
        else _in_loop(locks, key, lease, status, options)
    )


def _in_thread(locks: Locks, key: Any, lease: Duration, status: int, options: LockOptions) -> Callable[..., Any]:
    def dependency(request: Request) -> Iterator[Held]:
        failed: BaseException | None = None
        try:
            # FastAPI may leave this in a different thread, and runs other requests in this one before that. So the
            # thread does not hold the lock: the request does.
            with locks.lock(_key_of(key, request), lease, **options).acquire() as held:
                try:
                    yield held
                except BaseException as error:
                    failed = error
                    raise
        except LockError as error:
            raise _reply(error, failed, status) from error

    return dependency


def _in_loop(locks: AioLocks, key: Any, lease: Duration, status: int, options: LockOptions) -> Callable[..., Any]:
    async def dependency(request: Request) -> AsyncIterator[AioHeld]:
        failed: BaseException | None = None
        try:
            async with locks.lock(_key_of(key, request), lease, **options) as held:
                try:
                    yield held
                except BaseException as error:
                    failed = error
                    raise
        except LockError as error:
            raise _reply(error, failed, status) from error

    return dependency


def _key_of(key: str | Callable[[Any], Key], request: Any) -> Key:
    return key.format_map(request.path_params) if isinstance(key, str) else key(request)


def _reply(error: LockError, failed: BaseException | None, status: int) -> BaseException:
    """The reply for an error of this lock. The endpoint's own errors, and those of the programmer, pass unchanged."""
    if error is failed or isinstance(error, (ValueError, RuntimeError)):
        return error
    reply: BaseException = HTTPException(status if isinstance(error, LockRefused) else 503, str(error))
    return reply


def leading(
    locks: AioLocks,
    key: Key,
    work: Callable[[AioHeld], Awaitable[object]],
    lease: Duration = 10.0,
    **options: Unpack[LeaderOptions],
) -> Callable[[Any], contextlib.AbstractAsyncContextManager[None]]:
    """A lifespan in which one of the instances runs `work` with its hold: `FastAPI(lifespan=leading(...))`.

    If the lock is lost, `work` is cancelled. If `work` ends or raises, the instance steps down, and campaigns again a
    second later. When the application shuts down, `work` is cancelled, and another instance takes over at once. If the
    instance dies, another one takes over once the lease and the server's margin have passed.
    In a lifespan of your own: `async with leading(...)(app): ...`.
    """
    check_names(options, LeaderOptions.__optional_keys__)
    options.setdefault("wait", PIECE)
    lock = locks.lock(key, lease, **options)

    async def campaign() -> None:
        while True:
            try:
                async with lock as held:
                    await work(held)
            except LockTimeout:
                continue
            except LockLost as error:
                log.warning("another instance may lead now: %s", error)
            except LockError as error:
                log.warning("campaigning failed; trying again: %s", error)
            except Exception:
                log.exception("the work of the leader for %r failed", key)
            await asyncio.sleep(PAUSE)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(campaign(), name="serverlock leading")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    return lifespan
