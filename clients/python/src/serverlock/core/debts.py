"""What could not be given back at once, settled in the background: attempts and grants that are no longer wanted.

They have a worker of their own: a debt that gets no reply must not delay a renewal.
"""

import threading
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from .clock import now
from .wire import ConnectionLost, ReplyError, Runtime

Debt: TypeAlias = Callable[[], Coroutine[None, None, None]]

LONGEST_SLEEP = 3600.0
PAUSE = 0.25


class Debts:
    def __init__(self, runtime: Runtime) -> None:
        self._mutex = threading.Lock()
        self._debts: list[tuple[float, Debt]] = []
        self._settling = 0
        self._is_closed = False
        self._owed = runtime.flag()
        self._worker = runtime.worker(self._pay, "serverlock debts")

    @property
    def count(self) -> int:
        """Includes those that are being settled."""
        return len(self._debts) + self._settling

    def owe(self, until: float, debt: Debt) -> None:
        """Runs `debt` until it succeeds, or until that time."""
        with self._mutex:
            self._debts.append((until, debt))
        self._worker.start()
        self._owed.set()

    def close(self) -> None:
        self._is_closed = True
        self._owed.set()

    async def _pay(self) -> None:
        pause = 0.0
        while not self._is_closed:
            await self._owed.wait(pause or LONGEST_SLEEP)
            self._owed.clear()
            with self._mutex:
                debts, self._debts = self._debts, []
                self._settling = len(debts)
            owed = []
            for debt in debts:
                if not await _settle(*debt):
                    owed.append(debt)
                self._settling -= 1
            with self._mutex:
                self._debts += owed
            pause = PAUSE if owed else 0.0
            del debts, owed


async def _settle(until: float, debt: Debt) -> bool:
    try:
        await debt()
    except ConnectionLost as error:
        return error.final or now() >= until
    except ReplyError:
        return now() >= until
    return True
