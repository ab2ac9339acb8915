"""One grant, as its holder sees it: held, lost or released.

Renewal, loss and release happen on several threads. Each changes the state under `_mutex`.
"""

import math
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ..errors import LockLost
from .clock import Clock
from .lease import Lease
from .request import Request
from .sessions import Session


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The last holder, which never released the lock: its work may be half done."""

    overdue: float
    token: int | None
    owner: str | None


@dataclass(slots=True)
class Grant:
    """A grant as it arrives. sent: when its request was sent. portable: its commands use the script."""

    token: int
    sent: float
    predecessor: Predecessor | None = None
    portable: bool = False
    session: Session | None = None
    result: bytes | None = None  # what its release passes on to those that wait for it
    result_until: float = math.inf  # when the lock is lost: nobody stores a result after that


class Hold:
    """A held lock, until it is released or lost. `token` is the fencing token."""

    _is_renewed = True
    _is_reentrant = True  # a lock with `reentrant` may get it again
    _margin = 0.1

    def __init__(
        self,
        manager: object,
        request: Request,
        grant: Grant,
        *,
        began: float,
        pid: int,
        now: Clock,
        on_lost: Callable[["Hold"], None],
    ) -> None:
        """on_lost: called once, when the lock is lost."""
        self.token = grant.token
        self.predecessor = grant.predecessor
        self._manager = manager  # a manager lives as long as its holds
        self._request = request
        self._grant = grant
        self._session = grant.session
        self._session_ref: object = None  # a weak reference, like `_dropped`
        self._pid = pid
        self._now = now
        self._on_lost = on_lost
        self._mutex = threading.Lock()
        self._began, self._granted = began, now()
        self._lease = Lease(grant.sent, request.lease, self._granted + request.max_hold, self._margin)
        self._lost: LockLost | None = None
        self._ended: float | None = None
        self._entries = 1  # calls of `acquire` that have not been followed by a `release`
        self._gone = False  # the server replied that the grant has ended
        self._renewing = False
        self._failed_at = -math.inf  # when an EXTEND last failed: the server may still run it a little later
        self._caller: Hashable = None  # who may get it again
        self._entry = 0  # the number of its newest entry in the timer
        self._dropped: object = None  # a weak reference whose callback runs once nobody refers to the hold
        self._report_ref: object = None  # another one

    @property
    def key(self) -> str:
        """The key, or the keys, as error texts show them."""
        return self._request.name

    @property
    def waited(self) -> float:
        """The seconds it took to get the lock."""
        return self._granted - self._began

    @property
    def lost(self) -> LockLost | None:
        """Why the lock is lost; None while it is held, or if it was released in time."""
        if self._lost is None and self._ended is None:
            if self._pid != os.getpid():
                return LockLost(self.key, "it belongs to the parent process")
            if self._now() >= self._lease.lost_at:
                self._lose("its lease was not renewed in time")
        return self._lost

    @property
    def is_held(self) -> bool:
        """Whether the lock is certain to be held."""
        return self.lost is None and self._ended is None

    def left(self) -> float:
        """The seconds for which the lock is certain to be held if no renewal succeeds; 0 if it is lost or released."""
        return max(0.0, self._lease.lost_at - self._now()) if self.is_held else 0.0

    def check(self) -> None:
        """Raises LockLost unless the lock is certain to be held. Sends nothing: call it before each step of work."""
        lost = self.lost
        if lost is not None:
            raise lost.with_traceback(None)
        if self._ended is not None:
            raise LockLost(self.key, "it was released")

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self._ended is not None else "held"
        return f"<{type(self).__module__}.{type(self).__name__} {self.key} token={self.token} {state}>"

    # The rest is for this package.

    def _extending(self, sent: float, lease: float) -> bool:
        """Call this before an EXTEND is sent. False: the hold has ended, so none may be sent."""
        with self._mutex:
            if self._ended is not None:
                return False
            self._lease.extending(sent, lease)
            return True

    def _extended(self, sent: float, lease: float, is_done: bool) -> None:
        with self._mutex:
            self._lease.extended(sent, lease, counts=is_done and self._lost is None)
            if not is_done:
                self._failed_at = self._now()

    def _lose(self, why: str, *, gone: bool = False) -> None:
        """Call this if the lock ended without a release. gone: the server reported that it ended."""
        with self._mutex:
            self._gone = self._gone or gone
            if self._lost is not None or self._ended is not None:
                return
            self._lost = LockLost(self.key, f"lost: {why}")
        self._on_lost(self)

    def _enter_again(self) -> bool:
        """Counts one more `acquire`. Returns False if the hold has ended."""
        with self._mutex:
            if self._lost is not None or self._ended is not None:
                return False
            self._entries += 1
            return True

    def _leave_again(self) -> bool:
        """Whether this `release` belongs to a repeated `acquire`, so that the lock stays held."""
        with self._mutex:
            if self._ended is not None or self._entries == 1:
                return False
            self._entries -= 1
            return True

    def _end(self) -> bool:
        """Marks the lock as released. Returns False if it already was."""
        with self._mutex:
            first, self._ended = self._ended is None, self._now()
            return first

    def _released_late(self) -> LockLost:
        return LockLost(self.key, "lost: its grant had ended before it was released")

    def _stop_work(self) -> None:
        """Stops the work of a holder that lost the lock, in the language's own way."""
