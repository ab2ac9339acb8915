"""How many callers share two connections of the application's pool.

Up to `AT_ONCE` exchanges run at a time. Callers that come meanwhile stand in a queue; whoever finishes hands the whole
queue to the first of them, which sends it as one pipeline. So a lone caller pays for nothing, and a crowd behind a slow
network needs no more connections than one caller.
"""

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from .wire import Broken, Runtime, Said, Words

AT_ONCE = 2
MOST = 128

Exchange: TypeAlias = Callable[[Sequence[Words], float], Awaitable[list[Any]]]


class Entry:
    """The calls of one caller, and what becomes of them."""

    __slots__ = ("batch", "calls", "flag", "replies")

    def __init__(self, calls: Sequence[Words]) -> None:
        self.calls = calls
        self.flag: Any = None
        self.batch: list[Entry] | None = None  # it is to send these, itself included
        self.replies: list[Any] | None = None


class Lane:
    """`exchange` sends calls over one connection and gives a reply, Said or Broken for each; it raises nothing else."""

    def __init__(self, runtime: Runtime, exchange: Exchange) -> None:
        self._runtime, self._exchange = runtime, exchange
        self._mutex = threading.Lock()
        self._queue: deque[Entry] = deque()
        self._running = 0
        self._at_once = AT_ONCE
        self._was_wide = False
        self._crowded: Callable[[], None] | None = None

    def narrow(self, crowded: Callable[[], None]) -> bool:
        """One exchange at a time from now on, if there never were two; whether it is so. `crowded` is called when that
        is not enough: more than one caller has to wait for another."""
        with self._mutex:
            if not self._was_wide:
                self._at_once, self._crowded = 1, crowded
            return not self._was_wide

    def widen(self) -> None:
        with self._mutex:
            self._at_once, self._crowded = AT_ONCE, None

    async def call(self, words: Words, timeout: float) -> Any:
        reply = (await self.calls((words,), timeout))[0]
        if isinstance(reply, (Said, Broken)):
            raise reply.with_traceback(None)
        return reply

    async def calls(self, calls: Sequence[Words], timeout: float) -> list[Any]:
        crowded = None
        with self._mutex:
            if self._running < self._at_once:
                self._running += 1
                self._was_wide = self._was_wide or self._running > 1
                entry = None
            else:
                entry = Entry(calls)
                entry.flag = self._runtime.flag()
                self._queue.append(entry)
                if len(self._queue) > 1:
                    crowded, self._crowded = self._crowded, None
        if crowded is not None:
            crowded()
        if entry is None:
            try:
                return await self._exchange(calls, timeout)
            finally:
                self._hand_over()
        try:
            await entry.flag.wait(timeout)
        except BaseException:
            if not self._withdraw(entry):
                self._pass_on(entry)
            raise
        if entry.replies is None and entry.batch is None and self._withdraw(entry):
            late = Broken(TimeoutError(f"no connection came free within {timeout:g} s"))
            return [late] * len(calls)
        if entry.batch is not None:
            await self._runtime.whole(self._send(entry.batch, timeout))
        while entry.replies is None:  # another caller has sent it
            entry.flag.clear()
            if entry.replies is None:
                await entry.flag.wait(timeout)
        return entry.replies

    async def _send(self, batch: list[Entry], timeout: float) -> None:
        replies: list[Any] = []
        try:
            replies = await self._exchange([words for entry in batch for words in entry.calls], timeout)
        finally:
            # Also when this caller was interrupted: the others have to know.
            self._hand_over()
            for entry in batch:
                mine, replies = replies[: len(entry.calls)], replies[len(entry.calls) :]
                missing = len(entry.calls) - len(mine)
                entry.replies = mine + [Broken(ConnectionError("the exchange was interrupted"))] * missing
                entry.flag.set()

    def _hand_over(self) -> None:
        with self._mutex:
            if not self._queue:
                self._running -= 1
                return
            batch: list[Entry] = []
            while self._queue and len(batch) < MOST:
                batch.append(self._queue.popleft())
            batch[0].batch = batch
        batch[0].flag.set()

    def _withdraw(self, entry: Entry) -> bool:
        """Takes it out of the queue; whether it was still there."""
        with self._mutex:
            if entry not in self._queue:
                return False
            self._queue.remove(entry)
            return True

    def _pass_on(self, entry: Entry) -> None:
        """The caller that was to send a batch is interrupted: the next one of the batch sends it."""
        batch, entry.batch = entry.batch, None
        if batch is None:
            return
        rest = [other for other in batch if other is not entry]
        if rest:
            rest[0].batch = rest
            rest[0].flag.set()
        else:
            self._hand_over()


def is_demoted(replies: Sequence[Any]) -> bool:
    return any(isinstance(reply, Said) and reply.code == "READONLY" for reply in replies)
