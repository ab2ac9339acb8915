"""`redis.lock.Lock`, over LOCK.*: waiters queue in order, and the token is a fencing token.

    from serverlock.compat.redis_py import Lock    # was: from redis.lock import Lock

    with Lock(client, "report", timeout=30):       # or client.lock("report", timeout=30, lock_class=Lock)
        ...

It raises the exceptions of the client's library, redis-py or valkey-py. docs/MIGRATING.md lists what differs.
"""

import logging
from types import TracebackType
from typing import Literal

from ..core.library import Raw
from ..threads.locks import Locks
from ..threads.runtime import run
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
        manager = manager_of(redis, Locks, is_async=False)
        super().__init__(
            manager, redis, name, timeout, sleep, blocking, blocking_timeout, thread_local, raise_on_release_error
        )

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Returns whether it got the lock within `blocking_timeout`."""
        return run(lambda: self._acquire(blocking, blocking_timeout, token))

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return run(self._locked)

    def owned(self) -> bool:
        """Whether the lock is held with this token."""
        return run(self._owned)

    def release(self) -> None:
        """Releases the lock; raises LockNotOwnedError if it had already ended."""
        token = self._token
        if token is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        self.local.token = None
        self.do_release(token)

    def do_release(self, expected_token: str | bytes) -> None:
        """Releases the lock with this token."""
        run(lambda: self._release(expected_token))

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds to the remaining time, or replaces it."""
        self._check_extensible("extend")
        return run(lambda: self._extend("extend", additional_time, adds=not replace_ttl))

    def reacquire(self) -> Literal[True]:
        """Sets the remaining time to `timeout` again."""
        self._check_extensible("reacquire")
        return run(lambda: self._extend("reacquire", self.timeout or LEASE))

    def __enter__(self) -> "Lock":
        if self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except self._errors.LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("the lock %r was unlocked, or no longer owned, at the end of its block", self.name)
