"""Leader election for threads."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Unpack, cast

from ..core.campaign import PIECE, Campaign, Leadership, leader_of
from ..core.manager import Manager, check_names
from ..core.options import LeaderOptions
from ..core.request import Duration, Key, request_of
from ..core.wire import Flag
from .held import Held
from .runtime import Runtime, run


def ignore(token: int) -> None:
    """The default callback."""


class Leader:
    """Campaigns for a key in its own thread, from `start` until `stop`.

    That thread calls on_elected with the token when this process becomes the leader, and on_lost with the same token
    when it no longer is. Both must return quickly: do the work elsewhere.
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
        self._stopped = threading.Event()
        self._observers: list[Flag] = []
        self._campaign: Campaign[Held] | None = None
        self._thread: threading.Thread | None = None
        check_names(options, LeaderOptions.__optional_keys__)
        options.setdefault("wait", PIECE)
        self._request = request_of([key], lease, **options, on_lost=self._woken)

    @property
    def token(self) -> int | None:
        """The token while this process is the leader, else None."""
        hold = None if self._campaign is None else self._campaign.hold
        return hold.token if hold is not None and hold.is_held else None

    def start(self) -> "Leader":
        engine = self._locks._engine()
        campaign = Campaign(engine, self._locks, self._request, Held, self._on_elected, self._on_lost)
        self._campaign = campaign
        self._thread = cast(Runtime, engine.runtime).thread(lambda: run(campaign.run), "serverlock leader")
        self._thread.start()
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Steps down for good, and waits until that is done. A campaign that is waiting for the lock ends later."""
        self._stopped.set()
        for flag in tuple(self._observers):
            flag.set()
        if self._campaign is not None:
            leads = self._campaign.hold is not None
            self._campaign.stop()
            if leads and self._thread is not None:
                self._thread.join(timeout)

    def resign(self) -> None:
        """Steps down, and campaigns again once others have had a chance."""
        if self._campaign is not None:
            self._campaign.resign()

    def observe(self) -> Iterator[Leadership]:
        """Yields the current leader, then each change, until `stop`. Asks the server three times per lease."""
        before: Leadership | None = None
        flag = self._locks._engine().runtime.flag()
        self._observers.append(flag)
        try:
            while not self._stopped.is_set():
                now = run(lambda: leader_of(self._locks._engine(), self._request.key))
                if now != before:
                    before = now
                    yield now
                run(lambda: flag.wait(self._request.lease / 3))
        finally:
            self._observers.remove(flag)

    def __enter__(self) -> "Leader":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _woken(self, _: object) -> None:
        if self._campaign is not None:
            self._campaign.wake()
