"""The server's clock, and the margin that the server adds to leases: each is requested at most once a minute."""

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from . import kinds
from .semaphore import Semaphore
from .wire import ConnectionLost, Reply, ReplyError, Runtime, Wire

T = TypeVar("T")

VALID_FOR = 60.0
# An estimate that may be off by more than this is used, but not kept.
MOST_DOUBT = 0.25
PAUSE = 0.01
USUAL_MARGIN = 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """offset: the server's time minus the local clock. doubt: by how much that may be wrong. asked: local time."""

    offset: float
    doubt: float
    asked: float

    @property
    def is_good(self) -> bool:
        """Whether it is accurate enough to be kept."""
        return self.doubt <= MOST_DOUBT


class Asking:
    """The caller that asks, while others wait for its answer."""


class ServerClock:
    def __init__(self, runtime: Runtime, wire: Wire, timeout: float) -> None:
        self._runtime, self._wire, self._timeout = runtime, wire, timeout
        self._now = runtime.now
        self._asking = Semaphore(runtime, 1)
        # By key in a cluster, because each of its servers has its own clock.
        self._known: dict[bytes, Estimate] = {}
        self._margin, self._margin_asked = USUAL_MARGIN, -VALID_FOR

    @property
    def margin(self) -> float:
        """The margin, as currently known."""
        return self._margin

    async def read(self, key: bytes) -> Estimate:
        """Estimates the clock of the key's server. Raises ReplyError or ConnectionLost."""
        place = key if self._wire.is_cluster else b""
        found = self._fresh(place)
        return await self._one_by_one(lambda: self._ask(key, place)) if found is None else found

    async def _one_by_one(self, ask: Callable[[], Coroutine[None, None, T]]) -> T:
        asking = Asking()
        if not await self._asking.acquire(asking, self._timeout):
            raise ConnectionLost(TimeoutError("another caller has asked the server, and is waiting for the reply"))
        try:
            return await ask()
        finally:
            self._asking.release(asking)

    def _fresh(self, place: bytes) -> Estimate | None:
        found = self._known.get(place)
        return found if found is not None and self._now() < found.asked + VALID_FOR else None

    async def _ask(self, key: bytes, place: bytes) -> Estimate:
        """Asks, unless another caller has just done so. Asks twice if the reply is lost or slow."""
        found = self._fresh(place)
        if found is not None:
            return found
        try:
            made = await self._call(key)
        except (ReplyError, ConnectionLost) as error:
            if not kinds.is_retried(error):
                raise
            await self._runtime.sleep(PAUSE)
            made = await self._call(key)
        else:
            if not made.is_good:  # it may have had to wait for a new connection
                try:
                    made = min(made, await self._call(key), key=lambda it: it.doubt)
                except (ReplyError, ConnectionLost):
                    pass
        if made.is_good:
            self._known = {name: it for name, it in self._known.items() if made.asked < it.asked + VALID_FOR}
            self._known[place] = made
        return made

    async def _call(self, key: bytes) -> Estimate:
        sent = self._now()
        reply = await self._wire.call(key, ("TIME",), self._timeout)
        return estimate_of(reply, sent, self._now())

    async def read_margin(self, ask: Callable[[], Coroutine[None, None, float | None]]) -> float:
        """`ask` returns the margin, or None if the server does not say."""

        async def ask_once() -> None:
            if self._now() < self._margin_asked + VALID_FOR:
                return
            try:
                margin = await ask()
                self._margin = USUAL_MARGIN if margin is None else margin
            except ReplyError:  # this user is not allowed to ask
                pass
            self._margin_asked = self._now()

        if self._now() >= self._margin_asked + VALID_FOR:
            try:
                await self._one_by_one(ask_once)
            except ConnectionLost:
                pass
        return self._margin


def estimate_of(reply: Reply, sent: float, received: float) -> Estimate:
    """From a reply to TIME: the server read its clock at some moment between `sent` and `received`."""
    try:
        server = int(reply[0]) + int(reply[1]) / 1_000_000 if isinstance(reply, list) else math.nan
    except (IndexError, TypeError, ValueError):
        server = math.nan
    if math.isnan(server):
        raise ReplyError("ERR", f"unexpected reply {reply!r} to TIME")
    return Estimate(server - (sent + received) / 2, (received - sent) / 2, received)
