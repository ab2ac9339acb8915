"""One timer for all holds of a manager, and two workers that send what is due.

The timer only keeps time, so a loss is noticed in time whatever the network does. One worker sends the EXTENDs that are
due together. The other settles debts: attempts and grants that nobody wants any more, which could not be given back at
once. A debt that gets no reply must not hold up a renewal. Holds are known by weak references: a hold that was dropped is not renewed.
"""

import heapq
import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from .clock import now
from .hold import Hold
from .wire import ConnectionLost, ReplyError

if TYPE_CHECKING:
    from .engine import Engine

Debt: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

LONGEST_SLEEP = 3600.0
# Threads and loops do not wake during a suspend: the clock of leases is looked at so often while there are any.
LONGEST_BLINDNESS = 0.5


class Timer:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._count = itertools.count()
        self._entries: list[tuple[float, int, weakref.ref[Hold] | Callable[[], None]]] = []
        self._dead = 0
        self._awake_at = -math.inf  # no thread sleeps yet
        self._woken = engine.runtime.flag()
        self._due: list[weakref.ref[Hold]] = []
        self._debts: list[tuple[float, Debt]] = []
        self._settling = 0
        self._called = engine.runtime.flag()
        # What is to be done for holds that were dropped. A finalizer may do no more than append: it can run anywhere.
        self.dropped: deque[Debt] = deque()
        self._owed = engine.runtime.flag()
        self._keeper = engine.runtime.worker(self._keep_time, "serverlock timer")
        self._sender = engine.runtime.worker(self._send, "serverlock renewal")
        self._payer = engine.runtime.worker(self._pay, "serverlock debts")

    @property
    def owed(self) -> int:
        """How many debts there are, those that are being settled included."""
        return len(self._debts) + self._settling

    def add(self, hold: Hold) -> None:
        if hold._is_renewed:
            self._look_again(hold, hold._renew_at)

    def forget(self) -> None:
        """A hold has ended before its entry was due. Old entries are swept when they are most of them."""
        self._dead += 1
        if self._dead > 1000 and self._dead * 2 > len(self._entries):
            with self._mutex:
                self._entries = [entry for entry in self._entries if _is_live(entry[2])]
                heapq.heapify(self._entries)
                self._dead = 0

    def later(self, at: float, work: Callable[[], None]) -> None:
        self._at(at, next(self._count), work)

    def _look_again(self, hold: Hold, at: float) -> None:
        """Only the newest entry of a hold counts."""
        hold._entry = next(self._count)
        self._at(at, hold._entry, weakref.ref(hold))

    def owe(self, until: float, debt: Debt) -> None:
        """Something to be given back in the background, tried until it works or that time has come."""
        with self._mutex:
            self._debts.append((until, debt))
        self._payer.start()
        self._owed.set()

    def close(self) -> None:
        """Ends its threads. Nothing is renewed any more; that a hold is lost then is still told."""
        with self._mutex:
            entries, self._entries = self._entries, []
        self._woken.set()
        self._called.set()
        self._owed.set()
        self._tell_losses([what for _, _, what in entries if isinstance(what, weakref.ref)])

    def _tell_losses(self, refs: "list[weakref.ref[Hold]]") -> None:
        holds = [hold for ref in refs if (hold := ref()) is not None and hold.is_held]
        if holds:
            first = min(hold._lost_at for hold in holds) - now()
            rest = [weakref.ref(hold) for hold in holds]
            self._engine.runtime.later(max(0.0, first), lambda: self._tell_losses(rest))

    def _at(self, at: float, number: int, what: "weakref.ref[Hold] | Callable[[], None]") -> None:
        with self._mutex:
            heapq.heappush(self._entries, (at, number, what))
            is_sooner = at < self._awake_at
        self._keeper.start()
        if is_sooner:
            self._woken.set()

    def _work(self) -> None:
        self._sender.start()
        self._called.set()

    async def _keep_time(self) -> None:
        while not self._engine.is_closed:
            self._woken.clear()
            while self.dropped:
                await self.dropped.popleft()()
            at = now()
            with self._mutex:
                due = []
                while self._entries and self._entries[0][0] <= at:
                    due.append(heapq.heappop(self._entries)[1:])
                self._awake_at = self._entries[0][0] if self._entries else at + LONGEST_SLEEP
                longest = LONGEST_BLINDNESS if self._entries else LONGEST_SLEEP
            for number, what in due:
                if isinstance(what, weakref.ref):
                    self._look_at(number, what, at)
                else:
                    what()
            if not due:
                await self._woken.wait(min(longest, self._awake_at - at))

    def _look_at(self, number: int, ref: "weakref.ref[Hold]", at: float) -> None:
        hold = ref()
        if hold is None or number != hold._entry or not hold.is_held:
            return
        if at >= hold._renew_at and hold._may_renew and not hold._renewing:
            hold._renewing = True
            with self._mutex:
                self._due.append(ref)
            self._work()
        self._look_again(hold, hold._lost_at)

    async def _send(self) -> None:
        while not self._engine.is_closed:
            await self._called.wait(LONGEST_SLEEP)
            self._called.clear()
            with self._mutex:
                due, self._due = self._due, []
            await self._renew([hold for ref in due if (hold := ref()) is not None])
            del due

    async def _pay(self) -> None:
        pause = 0.0
        while not self._engine.is_closed:
            await self._owed.wait(pause or LONGEST_SLEEP)
            self._owed.clear()
            with self._mutex:
                debts, self._debts = self._debts, []
                self._settling = len(debts)
            owed = [debt for debt in debts if not await self._settle(*debt)]
            with self._mutex:
                self._debts += owed
                self._settling = 0
            pause = 0.25 if owed else 0.0
            del debts, owed

    async def _settle(self, until: float, debt: Debt) -> bool:
        try:
            await debt()
        except ConnectionLost as error:
            return error.final or now() >= until
        except ReplyError:
            return now() >= until
        return True

    async def _renew(self, holds: list[Hold]) -> None:
        holds = [hold for hold in holds if hold.is_held]
        if not holds:
            return
        sent = now()
        in_time = min(hold._lost_at for hold in holds) - sent
        timeout = max(0.05, min(self._engine.timeout, in_time / 2))
        for hold in holds:
            hold._extending(sent, hold._request.lease)
        calls = [(hold._request.key, self._engine.extend_words(hold, hold._request.lease_ms)) for hold in holds]
        try:
            replies = await self._engine.wire.batch(calls, timeout)
        except Exception as error:  # whatever it is, the other locks of this manager must not go without renewal
            self._engine.log.exception("renewing locks failed")
            replies = [ConnectionLost(error)] * len(holds)
        for hold, reply in zip(holds, replies, strict=True):
            self._renewed(hold, sent, reply)

    def _renewed(self, hold: Hold, sent: float, reply: Any) -> None:
        hold._renewing = False
        hold._extended(sent, hold._request.lease, reply == 1)
        if reply == 1:
            self._look_again(hold, hold._renew_at)
        elif reply == 0:
            hold._lose("somebody has taken it away", gone=True)
        else:
            self._engine.missed(hold, reply)
            self._engine.log.warning("renewing the lock %s failed, and is tried again: %s", hold.key, reply)
            self._look_again(hold, min(hold._lost_at, now() + max(hold._lease / 20, 0.01)))


def _is_live(what: "weakref.ref[Hold] | Callable[[], None]") -> bool:
    if not isinstance(what, weakref.ref):
        return True
    hold = what()
    return hold is not None and hold._ended is None
