"""asyncio, as the core sees it."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from ..core.clock import LONGEST_NAP, Clock, now
from ..core.wire import Connection

FOREVER = 3600.0


class Flag:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set, self.clear = self._event.set, self._event.clear

    async def wait(self, timeout: float) -> bool:
        if self._event.is_set():
            return True
        try:
            async with asyncio.timeout(min(timeout, FOREVER)):
                return await self._event.wait()
        except TimeoutError:
            return False


class Worker:
    """A task."""

    def __init__(self, runtime: "Runtime", work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        self._runtime, self._work, self._name = runtime, work, name
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._runtime.spawn(self._work(), self._name)


class Runtime:
    now: Clock = staticmethod(now)
    longest_nap = LONGEST_NAP
    linger = 0.0

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: set[asyncio.Task[None]] = set()  # not cancelled by `close`: they end soon on their own
        self._watched: dict[Connection, asyncio.Task[None]] = {}

    def caller(self) -> Hashable:
        return asyncio.current_task()

    def flag(self) -> Flag:
        return Flag()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def worker(
        self, work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool] = lambda: False
    ) -> Worker:
        return Worker(self, work, name)  # a task cannot miss work between its last check and its end

    def spawn(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs `work` to completion in a task, which continues even if the caller is cancelled again."""
        task = asyncio.ensure_future(work())
        self._last.add(task)
        task.add_done_callback(self._last.discard)
        await asyncio.shield(task)

    def call_back(self, work: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:
            pass  # the loop is closed

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        self.loop.call_later(seconds, work)

    def watch(self, connection: Any, ended: Callable[[], None]) -> None:
        async def watching() -> None:
            await connection.ended()
            if self._watched.pop(connection, None) is not None:
                ended()

        before = self._watched.get(connection)
        if before is not None:
            before.cancel()
        self._watched[connection] = asyncio.create_task(watching(), name="serverlock session")

    async def unwatch(self, connection: Connection) -> None:
        task = self._watched.pop(connection, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        tasks = [*self._tasks, *self._watched.values()]
        self._watched.clear()
        current = asyncio.current_task()
        tasks = [task for task in tasks if task is not current and not task.done()]
        for task in tasks:
            task.cancel()
        tasks += [task for task in self._last if task is not current]
        if tasks:
            await asyncio.wait(tasks)
