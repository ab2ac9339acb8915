"""Attempts and grants that could not be cancelled or released at once: settled in the background.

Debts have their own worker: one that gets no reply must not delay a renewal.
"""

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeAlias

from .wire import ConnectionLost, ReplyError, Runtime

Debt: TypeAlias = Callable[[], Coroutine[None, None, object]]

LONGEST_SLEEP = 3600.0
PAUSE = 0.25


@dataclass(slots=True)
class Owed:
    at: float  # not before
    until: float
    debt: Debt


class Debts:
    def __init__(self, runtime: Runtime) -> None:
        self._mutex = threading.Lock()
        self._debts: list[Owed] = []
        self._settling = 0
        self._now = runtime.now
        self._is_closed = False
        self._owed = runtime.flag()
        self._worker = runtime.worker(self._pay, "serverlock debts")

    @property
    def count(self) -> int:
        """Includes those that are being settled."""
        return len(self._debts) + self._settling

    def owe(self, until: float, debt: Debt, after: float = 0.0) -> None:
        """Runs `debt` until it succeeds or `until` has passed, starting in `after` seconds."""
        with self._mutex:
            self._debts.append(Owed(self._now() + after, until, debt))
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
            at = self._now()
            with self._mutex:
                due = [owed for owed in self._debts if owed.at <= at]
                self._debts = [owed for owed in self._debts if owed.at > at]
                self._settling = len(due)
            for owed in due:
                if not await self._settle(owed):
                    owed.at = self._now() + PAUSE
                    with self._mutex:
                        self._debts.append(owed)
                self._settling -= 1
            with self._mutex:
                pause = max(0.01, min(owed.at for owed in self._debts) - self._now()) if self._debts else 0.0
            del due

    async def _settle(self, owed: Owed) -> bool:
        try:
            await owed.debt()
        except ConnectionLost as error:
            return error.final or self._now() >= owed.until
        except ReplyError:
            return self._now() >= owed.until
        return True
