"""A held lock, for asyncio."""

import asyncio
import os

from ..core.engine import BoundHold, Engine
from ..core.hold import Grant
from ..core.request import Duration, Key, Request, seconds_of
from ..core.wire import Reply


class Held(BoundHold):
    """A held lock. Any task may check, extend or release it."""

    def __init__(self, engine: Engine, manager: object, request: Request, grant: Grant, began: float) -> None:
        super().__init__(engine, manager, request, grant, began)
        self._loop = asyncio.get_running_loop()
        self._over_flag = asyncio.Event()
        self._work: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._has_cancelled = False

    async def release(self) -> bool:
        """Releases the lock. Returns whether it was held to the end."""
        return await self._engine.release(self)

    async def extend(self, lease: Duration | None = None) -> None:
        """Sets a new lease, counted from now. Renewal does this automatically, with the lock's lease."""
        seconds = None if lease is None else seconds_of(lease, "lease", self.key, 0.001)
        await self._engine.extend(self, seconds)

    async def verify(self) -> float:
        """Asks the server whether the lock is held. Returns the seconds left, or raises LockLost."""
        return await self._engine.verify(self)

    async def fenced(self, command: str, key: Key, *args: str | bytes | int) -> Reply:
        """Runs one command on the lock's server if the lock is held there at that moment; otherwise raises LockLost.

        In a cluster, `key` must be in the lock's slot.
        """
        return await self._engine.fenced(self, (command, key, *args))

    async def until_lost(self) -> None:
        """Waits until the lock is lost, for tasks that did not enter the scope."""
        await self._over_flag.wait()

    async def _finish(self, error: BaseException | None) -> bool:
        """Ends the hold at the end of its scope. Returns whether it was held to the end."""
        return await self._engine.release(self, entirely=True)

    def _stop_work(self) -> None:
        """Runs on the loop, even if another thread has noticed the loss."""
        if asyncio._get_running_loop() is not self._loop:
            self._engine.runtime.call_back(self._stop_work)
            return
        self._over_flag.set()
        if self._work is not None and not self._has_cancelled:
            self._has_cancelled = self._work.cancel()

    def _enter(self) -> None:
        self._work = asyncio.current_task()
        self._cancels_before = 0 if self._work is None else self._work.cancelling()
        if self._lost is not None:
            self._stop_work()

    async def _leave(self, error: BaseException | None) -> None:
        """Ends the scope. The body's error takes precedence over a loss, unless it is `_stop_work`'s cancellation."""
        work, self._work = self._work, None
        stopped = False
        if self._has_cancelled and work is not None:
            stopped = work.uncancel() <= self._cancels_before
            if stopped and not isinstance(error, asyncio.CancelledError):
                try:
                    await asyncio.sleep(0)  # the cancellation was meant for a body that has ended
                except asyncio.CancelledError:
                    pass
        if isinstance(error, asyncio.CancelledError) and stopped:
            error = None
        if self._pid != os.getpid() or self._ended is not None:
            return
        try:
            in_time = await self._finish(error)
        except Exception:
            if error is None:
                raise
            return
        if not in_time and error is None:
            raise self._lost or self._released_late()
