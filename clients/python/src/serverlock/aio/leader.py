"""Leader election for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Unpack

from ..core.campaign import PIECE, Campaign, Leadership, leader_of
from ..core.manager import Manager, check_names
from ..core.options import LeaderOptions
from ..core.request import Duration, Key, request_of
from .held import Held


def ignore(token: int) -> None:
    """The default callback."""


class Leader:
    """Campaigns for a key in its own task, from `start` until `stop`.

    That task calls on_elected with the token when this process becomes the leader, and on_lost with the same token
    when it no longer is.
    """

    def __init__(
        self,
        locks: Manager[Any],
        key: Key,
        lease: Duration,
        *,
        on_elected: Callable[[int], object] = ignore,
        on_lost: Callable[[int], object] = ignore,
        **options: Unpack[LeaderOptions],
    ) -> None:
        self._locks = locks
        self._on_elected, self._on_lost = on_elected, on_lost
        self._campaign: Campaign[Held] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        check_names(options, LeaderOptions.__optional_keys__)
        options.setdefault("wait", PIECE)
        self._request = request_of([key], lease, **options, on_lost=self._woken)

    @property
    def token(self) -> int | None:
        """The token while this process is the leader, else None."""
        hold = None if self._campaign is None else self._campaign.hold
        return hold.token if hold is not None and hold.is_held else None

    def start(self) -> "Leader":
        self._campaign = Campaign(
            self._locks._engine(), self._locks, self._request, Held, self._on_elected, self._on_lost
        )
        self._task = asyncio.create_task(self._campaign.run(), name="serverlock leader")
        return self

    async def stop(self) -> None:
        """Steps down for good."""
        self._is_stopped = True
        if self._campaign is None or self._task is None:
            return
        self._campaign.stop()
        if self._campaign.hold is None:
            self._task.cancel()  # it is waiting
        await asyncio.wait([self._task])

    def resign(self) -> None:
        """Steps down, and campaigns again once others have had a chance."""
        if self._campaign is not None:
            self._campaign.resign()

    async def observe(self) -> AsyncIterator[Leadership]:
        """Yields the current leader, then each change, until `stop`. Asks the server three times per lease."""
        before: Leadership | None = None
        while not self._is_stopped:
            engine = self._locks._engine()
            now = await leader_of(engine, self._request.key)
            if now != before:
                before = now
                yield now
            await engine.runtime.sleep(self._request.lease / 3)

    async def __aenter__(self) -> "Leader":
        return self.start()

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def _woken(self, _: object) -> None:
        if self._campaign is not None:
            self._campaign.wake()
