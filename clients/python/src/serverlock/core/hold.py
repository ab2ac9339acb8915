"""One grant, as its holder sees it: how long it is good for on the holder's own watch, and whether it was lost.

Renewal, loss and release meet here from several threads; each changes the state under `_mutex`.
"""

import math
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LockLost
from .clock import now
from .request import Request
from .wire import Connection

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A holder that never released: its work may be half done."""

    overdue: float
    token: int | None
    owner: str | None


@dataclass(slots=True)
class Grant:
    """A grant as it arrives: when the request that it answers was sent, and what belongs to it."""

    token: int
    sent: float
    predecessor: Predecessor | None = None
    portable: bool = False
    connection: Connection | None = None


class Hold:
    """A lock that is held, until it is released or lost. `token` is the fencing token."""

    _is_renewed = True

    def __init__(self, engine: "Engine", manager: object, request: Request, grant: Grant, began: float) -> None:
        self.token = grant.token
        self.predecessor = grant.predecessor
        self._engine = engine
        self._manager = manager  # a manager lives as long as its holds
        self._request = request
        self._portable = grant.portable
        self._connection = grant.connection
        self._pid = engine.pid
        self._mutex = threading.Lock()
        self._began, self._granted = began, now()
        self._sent, self._lease = grant.sent, request.lease
        self._lost: LockLost | None = None
        self._ended: float | None = None
        self._gone = False  # the server has said that the grant is over
        self._renewing = False
        self._on_their_way = 0  # EXTENDs
        self._least = math.inf  # when the lease ends that ends first of them
        self._entry = 0  # the number of its entry in the timer
        self._dropped: Any = None  # who hears that nobody refers to it any more

    @property
    def key(self) -> str:
        """The key, or the keys, as texts show them."""
        return self._request.name

    @property
    def waited(self) -> float:
        """How long it took to get the lock, in seconds."""
        return self._granted - self._began

    @property
    def lost(self) -> LockLost | None:
        """Why the lock is lost; None while it is held, and after it was released in time."""
        if self._lost is None and self._ended is None:
            if self._pid != os.getpid():
                return LockLost(self.key, "it belongs to the parent process")
            if now() >= self._lost_at:
                self._lose("its lease was not renewed in time")
        return self._lost

    @property
    def is_held(self) -> bool:
        """Whether the lock is held for certain."""
        return self.lost is None and self._ended is None

    def left(self) -> float:
        """For how many seconds the lock is held for certain if no renewal succeeds; 0 when it is lost or released."""
        return max(0.0, self._lost_at - now()) if self.is_held else 0.0

    def check(self) -> None:
        """Raises LockLost unless the lock is held for certain. Asks nobody: call it before each step of the work."""
        lost = self.lost
        if lost is not None:
            raise lost.with_traceback(None)
        if self._ended is not None:
            raise LockLost(self.key, "it was released")

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self._ended is not None else "held"
        return f"<{type(self).__module__}.{type(self).__name__} {self.key} token={self.token} {state}>"

    # What follows is for this package.

    @property
    def _lost_at(self) -> float:
        """A tenth of the lease before its end."""
        return self._sent + self._lease * 0.9

    @property
    def _renew_at(self) -> float:
        return self._sent + self._lease / 3

    @property
    def _may_renew(self) -> bool:
        return now() < self._granted + self._request.max_hold

    def _extending(self, sent: float, lease: float) -> None:
        """An EXTEND is on its way. Its reply may be lost, so a lease that ends earlier counts at once.

        Of those that are on their way together nobody knows which the server does last: the one that ends first counts.
        """
        with self._mutex:
            self._least = min(sent + lease, self._least if self._on_their_way else math.inf)
            self._on_their_way += 1
            if sent + lease < self._sent + self._lease:
                self._sent, self._lease = sent, lease

    def _extended(self, sent: float, lease: float, is_done: bool) -> None:
        """What became of it."""
        with self._mutex:
            self._on_their_way -= 1
            if is_done and self._lost is None:
                self._sent, self._lease = sent, min(sent + lease, self._least) - sent

    def _lose(self, why: str, cause: BaseException | None = None, *, gone: bool = False) -> None:
        """The lock is over without having been released. Its user is told once."""
        with self._mutex:
            self._gone = self._gone or gone
            if self._lost is not None or self._ended is not None:
                return
            self._lost = LockLost(self.key, f"lost: {why}" + (f": {cause}" if cause else ""))
            self._lost.__cause__ = cause
        self._engine.lost(self)

    def _end(self) -> bool:
        """Marks it as released; whether it was not before."""
        with self._mutex:
            first, self._ended = self._ended is None, now()
            return first

    def _over(self) -> LockLost:
        """The error of a release that came too late."""
        return LockLost(self.key, "lost: its grant was over before it was released")

    def _tell(self) -> None:
        """Tells the user of the loss, in the way of the language."""
        told: Any = self._request.on_lost
        if told is not None:
            self._engine.runtime.tell(lambda: told(self))
