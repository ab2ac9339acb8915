"""One timer renews all holds of a manager.

The timer itself only keeps time, so it notices a loss in time whatever the network does. A worker sends the EXTENDs
that are due together. Both have only weak references to holds: a dropped hold is not renewed.
"""

import heapq
import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from logging import Logger
from typing import TypeAlias

from .debts import LONGEST_SLEEP, Debt
from .hold import Hold
from .module import Module
from .way import Way
from .wire import ConnectionLost, Reply, ReplyError, Runtime, Wire

Due: TypeAlias = "weakref.ref[Hold] | Callable[[], None]"


class Timer:
    def __init__(self, runtime: Runtime, wire: Wire, module: Module, timeout: float, log: Logger) -> None:
        self._runtime, self._wire, self._module, self._timeout, self._log = runtime, wire, module, timeout, log
        self._now = runtime.now
        self._mutex = threading.Lock()
        self._count = itertools.count()
        self._entries: list[tuple[float, int, Due]] = []
        self._ended = 0  # entries of holds that have ended
        self._awake_at = -math.inf  # no thread is sleeping yet
        self._woken = runtime.flag()
        self._to_renew: list[weakref.ref[Hold]] = []
        self._renewals = runtime.flag()
        # Finalizers append here. They can run anywhere, so they must do nothing else.
        self.dropped: deque[Debt] = deque()
        self._keeper = runtime.worker(self._keep_time, "serverlock timer")
        self._renewer = runtime.worker(self._renew_due, "serverlock renewal")
        self._is_closed = False

    def add(self, hold: Hold) -> None:
        if hold._is_renewed:
            self._schedule(hold, hold._lease.renew_at)

    def forget(self) -> None:
        """Call this if a hold ended before its entry was due. Such entries are removed once they are the majority."""
        self._ended += 1
        if self._ended > 1000 and self._ended * 2 > len(self._entries):
            with self._mutex:
                self._entries = [entry for entry in self._entries if _is_live(entry[2])]
                heapq.heapify(self._entries)
                self._ended = 0

    def later(self, at: float, work: Callable[[], None]) -> None:
        self._push(at, next(self._count), work)

    def close(self) -> None:
        """Ends the workers. Nothing more is renewed, but losses are still reported."""
        self._is_closed = True
        with self._mutex:
            entries, self._entries = self._entries, []
        self._woken.set()
        self._renewals.set()
        self._report_losses([due for _, _, due in entries if isinstance(due, weakref.ref)])

    def _report_losses(self, refs: "list[weakref.ref[Hold]]") -> None:
        # Reading `is_held` reports the loss of a hold whose lease has ended.
        holds = [hold for hold in _alive(refs) if hold.is_held]
        if holds:
            first = min(hold._lease.lost_at for hold in holds) - self._now()
            rest = [weakref.ref(hold) for hold in holds]
            self._runtime.later(max(0.0, first), lambda: self._report_losses(rest))

    def _schedule(self, hold: Hold, at: float) -> None:
        """Only a hold's newest entry has an effect."""
        number = hold._entry = next(self._count)
        self._push(at, number, weakref.ref(hold))

    def _push(self, at: float, number: int, due: Due) -> None:
        with self._mutex:
            heapq.heappush(self._entries, (at, number, due))
            is_sooner = at < self._awake_at
        self._keeper.start()
        if is_sooner:
            self._woken.set()

    async def _keep_time(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            while self.dropped:
                await self.dropped.popleft()()
            at = self._now()
            with self._mutex:
                entries = []
                while self._entries and self._entries[0][0] <= at:
                    entries.append(heapq.heappop(self._entries)[1:])
                self._awake_at = self._entries[0][0] if self._entries else at + LONGEST_SLEEP
                longest = self._runtime.longest_nap if self._entries else LONGEST_SLEEP
            for number, due in entries:
                if isinstance(due, weakref.ref):
                    self._inspect(number, due, at)
                else:
                    due()
            if not entries:
                await self._woken.wait(min(longest, self._awake_at - at))

    def _inspect(self, number: int, ref: "weakref.ref[Hold]", at: float) -> None:
        hold = ref()
        if hold is None or number != hold._entry or not hold.is_held:
            return
        is_due = at >= hold._lease.renew_at and hold._lease.may_renew(self._now()) and not hold._renewing
        # This comes first: once the renewal has been sent, only the entry that it creates has an effect.
        self._schedule(hold, hold._lease.lost_at)
        if is_due:
            hold._renewing = True
            with self._mutex:
                self._to_renew.append(ref)
            self._renewer.start()
            self._renewals.set()

    async def _renew_due(self) -> None:
        while not self._is_closed:
            await self._renewals.wait(LONGEST_SLEEP)
            self._renewals.clear()
            with self._mutex:
                refs, self._to_renew = self._to_renew, []
            await self._renew(_alive(refs))
            del refs

    async def _renew(self, holds: list[Hold]) -> None:
        holds = [hold for hold in holds if hold.is_held]
        if not holds:
            return
        sent = self._now()
        left = min(hold._lease.lost_at for hold in holds) - sent
        timeout = max(0.05, min(self._timeout, left / 2))
        holds = [hold for hold in holds if hold._extending(sent, hold._request.lease)]
        ways = [self._module.way_of(hold._request, hold._grant) for hold in holds]
        replies = await self._extend(holds, ways, timeout)
        again = []  # in another way
        for hold, way, reply in zip(holds, ways, replies, strict=True):
            if isinstance(reply, ReplyError):
                instead = self._module.instead_of(hold._request, hold._grant, way, reply)
                if instead is not None:
                    again.append((hold, instead))
                    continue
            self._renewed(hold, sent, reply)
        if again:
            holds, ways = [hold for hold, _ in again], [way for _, way in again]
            replies = await self._extend(holds, ways, timeout)
            for hold, reply in zip(holds, replies, strict=True):
                self._renewed(hold, sent, reply)

    async def _extend(self, holds: list[Hold], ways: list[Way], timeout: float) -> list[Reply]:
        calls = [
            (hold._request.key, way.extend(hold._request, hold.token, hold._request.lease_ms))
            for hold, way in zip(holds, ways, strict=True)
        ]
        try:
            return await self._wire.batch(calls, timeout)
        except Exception as error:  # whatever it is, the other locks of this manager must be renewed
            self._log.exception("renewing locks failed")
            return [ConnectionLost(error)] * len(holds)

    def _renewed(self, hold: Hold, sent: float, reply: object) -> None:
        hold._renewing = False
        hold._extended(sent, hold._request.lease, reply == 1)
        if reply == 1:
            self._schedule(hold, hold._lease.renew_at)
        elif reply == 0:
            hold._lose("somebody else has taken it", gone=True)
        else:
            self._log.warning("renewing the lock %s failed; trying again: %s", hold.key, reply)
            self._schedule(hold, min(hold._lease.lost_at, self._now() + max(hold._lease.seconds / 20, 0.01)))


def _alive(refs: "list[weakref.ref[Hold]]") -> list[Hold]:
    """A function of its own, because a worker that waits must not keep a hold in one of its variables."""
    return [hold for hold in (ref() for ref in refs) if hold is not None]


def _is_live(due: Due) -> bool:
    if not isinstance(due, weakref.ref):
        return True
    hold = due()
    return hold is not None and hold._ended is None
