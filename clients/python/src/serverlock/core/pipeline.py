"""Two connections from the application's pool, shared by any number of callers.

A caller that gets a permit sends its own calls. The others queue theirs, and a manager's sender sends the queue as
one pipeline. The pipeline belongs to no caller, so cancelling or interrupting one caller affects no other.

Measured against a semaphore of two or four over the same exchanges, in alternating rounds alongside other work: the
semaphore takes 1.5 to 1.6 times the CPU of process and server with 1,000 threads, 1.4 to 1.9 times with 500 asyncio
tasks. So the queue is worth its code (rule W8).
"""

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from .semaphore import BACKSTOP, Permits
from .wire import ConnectionLost, Flag, Reply, ReplyError, Runtime, Words

AT_ONCE = 2
MOST = 128

Exchange: TypeAlias = Callable[[Sequence[Words], float], Awaitable[list[Reply]]]


class Owner:
    """Holds a permit for as long as it lives."""

    __slots__ = ("__weakref__",)


class Entry:
    """One caller's calls, and their replies."""

    __slots__ = ("calls", "flag", "has_left", "is_sent", "replies", "timeout")

    def __init__(self, calls: Sequence[Words], timeout: float, flag: Flag) -> None:
        self.calls, self.timeout, self.flag = calls, timeout, flag
        self.has_left = self.is_sent = False
        self.replies: list[Reply] | None = None


class Sender:
    """Sends the queue. Belongs to no caller."""

    def __init__(self, pipeline: "Pipeline") -> None:
        self.flag = pipeline._runtime.flag()
        self.is_busy = False
        self.worker = pipeline._runtime.worker(
            lambda: pipeline._send(self), "serverlock sender", lambda: bool(pipeline._queue)
        )


class Pipeline:
    """`exchange` sends calls over one connection. For each call it returns a reply, ReplyError or ConnectionLost."""

    def __init__(self, runtime: Runtime, exchange: Exchange) -> None:
        self._runtime, self._exchange = runtime, exchange
        self._mutex = threading.Lock()
        self._queue: deque[Entry] = deque()
        self._permits = Permits(AT_ONCE)
        self._at_once = AT_ONCE
        self._was_wide = False
        self._congested: Callable[[], None] | None = None
        self._senders = [Sender(self) for _ in range(AT_ONCE)]

    def narrow(self, congested: Callable[[], None]) -> bool:
        """From now on, runs one exchange at a time. Returns False if two have already run at once.

        `congested` is called when one is not enough: more than one caller is queuing.
        """
        if not self._was_wide:
            self._at_once, self._congested = 1, congested
        return not self._was_wide

    def widen(self) -> None:
        self._at_once, self._congested = AT_ONCE, None

    @property
    def in_use(self) -> int:
        return self._permits.in_use

    @property
    def queued(self) -> int:
        return len(self._queue)

    async def call(self, words: Words, timeout: float, *, asking: bool = False) -> Reply:
        """asking: the key's slot is being migrated to this server."""
        reply = (await self.calls((("ASKING",), words) if asking else (words,), timeout))[-1]
        if isinstance(reply, (ReplyError, ConnectionLost)):
            raise reply.with_traceback(None)
        return reply

    async def calls(self, calls: Sequence[Words], timeout: float) -> list[Reply]:
        owner = Owner()
        try:
            if not self._queue and self._acquire(owner):
                return await self._exchange(calls, timeout)
        finally:
            self._permits.release(owner)
            if self._queue:
                self._staff()
        return await self._queued(calls, timeout)

    async def _queued(self, calls: Sequence[Words], timeout: float) -> list[Reply]:
        entry = Entry(calls, timeout, self._runtime.flag())
        try:
            self._queue.append(entry)
            congested = self._congested
            if congested is not None and len(self._queue) > 1:
                self._congested = None
                congested()
            left = timeout  # counted in steps, so that time while this process was stopped does not count
            while entry.replies is None:
                self._staff()
                await entry.flag.wait(min(BACKSTOP, timeout))
                left -= BACKSTOP
                if left <= 0 and entry.replies is None and self._withdraw(entry):
                    late = ConnectionLost(TimeoutError(f"no connection came free within {timeout:g} s"))
                    return [late] * len(calls)
        except BaseException:
            if not self._withdraw(entry):
                # The entry was sent, and whatever undoes it must not overtake it.
                await self._runtime.finish(lambda: _answered(entry))
            raise
        return entry.replies

    def _acquire(self, owner: Owner) -> bool:
        has_permit = self._permits.acquire(owner, self._at_once)
        if has_permit and not self._was_wide:
            self._was_wide = self._permits.in_use > 1
        return has_permit

    def _withdraw(self, entry: Entry) -> bool:
        """Returns whether the entry had not been sent yet, and now never will be."""
        with self._mutex:
            entry.has_left = not entry.is_sent
        return entry.has_left

    def _staff(self) -> None:
        """Starts a sender if there are calls and a permit."""
        if self._queue and self._permits.in_use < self._at_once:
            sender = next((sender for sender in self._senders if not sender.is_busy), self._senders[0])
            sender.flag.set()
            sender.worker.start()

    async def _send(self, sender: "Sender") -> None:
        while True:
            owner = Owner()
            sender.is_busy = True
            try:
                while self._queue and self._acquire(owner):
                    while batch := self._batch():
                        await self._send_batch(batch)
                    self._permits.release(owner)  # the sender then checks again: a call may have been queued meanwhile
            finally:
                sender.is_busy = False
                self._permits.release(owner)
            if not self._runtime.linger or not await sender.flag.wait(self._runtime.linger):
                return
            sender.flag.clear()

    def _batch(self) -> list[Entry]:
        batch: list[Entry] = []
        with self._mutex:
            while self._queue and len(batch) < MOST:
                entry = self._queue.popleft()
                if not entry.has_left:
                    entry.is_sent = True
                    batch.append(entry)
        return batch

    async def _send_batch(self, batch: list[Entry]) -> None:
        replies: list[Reply] = []
        try:
            calls = [words for entry in batch for words in entry.calls]
            replies = await self._exchange(calls, max(entry.timeout for entry in batch))
        finally:
            # This runs even if the manager has been closed, because the callers must get an answer.
            for entry in batch:
                mine, replies = replies[: len(entry.calls)], replies[len(entry.calls) :]
                missing = len(entry.calls) - len(mine)
                entry.replies = mine + [ConnectionLost(ConnectionError("the exchange was interrupted"))] * missing
                entry.flag.set()


async def _answered(entry: Entry) -> None:
    entry.flag.clear()
    if entry.replies is None:
        await entry.flag.wait(entry.timeout)


def is_demoted(replies: Sequence[Reply]) -> bool:
    return any(isinstance(reply, ReplyError) and reply.code == "READONLY" for reply in replies)
