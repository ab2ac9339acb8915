"""`redis.asyncio.lock.Lock`, over LOCK.*: waiters queue in order, and the token is a fencing token.

    from serverlock.compat.redis_py_asyncio import Lock    # was: from redis.asyncio.lock import Lock

    async with Lock(client, "report", timeout=30):         # or client.lock("report", timeout=30, lock_class=Lock)
        ...

It raises the exceptions of the client's library, redis-py or valkey-py. docs/MIGRATING.md lists what differs.
"""

import logging
from collections.abc import Awaitable
from types import TracebackType
from typing import Literal

from ..aio.locks import Locks
from ..core.library import Raw
from .interface import LEASE, Interface, manager_of

__all__ = ["Lock"]

logger = logging.getLogger("serverlock")


class Lock(Interface):
    """A lock for one key. `sleep` is ignored: nothing polls."""

    def __init__(
        self,
        redis: Raw,
        name: str | bytes | memoryview,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        """timeout: the longest time in seconds that the lock is held; None: until it is released or this Lock is gone.
        blocking_timeout: how long to wait; None: forever.
        """
        manager = manager_of(redis, Locks, is_async=True)
        super().__init__(
            manager, redis, name, timeout, sleep, blocking, blocking_timeout, thread_local, raise_on_release_error
        )

    async def acquire(
        self, blocking: bool | None = None, blocking_timeout: float | None = None, token: str | bytes | None = None
    ) -> bool:
        """Returns whether it got the lock within `blocking_timeout`."""
        return await self._acquire(blocking, blocking_timeout, token)

    async def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return await self._locked()

    async def owned(self) -> bool:
        """Whether the lock is held with this token."""
        return await self._owned()

    async def release(self) -> None:
        """Releases the lock; raises LockNotOwnedError if it had already ended. A cancelled release may be retried."""
        token = self._token
        if token is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        try:
            await self.do_release(token)
        except self._errors.LockNotOwnedError:
            self.local.token = None
            raise
        self.local.token = None

    async def do_release(self, expected_token: str | bytes) -> None:
        """Releases the lock with this token."""
        await self._release(expected_token)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[Literal[True]]:
        """Adds to the remaining time, or replaces it."""
        self._check_extensible("extend")
        return self._extend("extend", additional_time, adds=not replace_ttl)

    def reacquire(self) -> Awaitable[Literal[True]]:
        """Sets the remaining time to `timeout` again."""
        self._check_extensible("reacquire")
        return self._extend("reacquire", self.timeout or LEASE)

    async def __aenter__(self) -> "Lock":
        if await self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except self._errors.LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("the lock %r was unlocked, or no longer owned, at the end of its block", self.name)
