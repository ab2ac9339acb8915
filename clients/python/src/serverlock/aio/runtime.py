"""asyncio, as the core sees it."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from ..core.wire import Line

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


class Gate:
    def __init__(self, size: int) -> None:
        self._semaphore = asyncio.Semaphore(size)
        self._waiting = 0

    async def enter(self, timeout: float) -> bool:
        if not self._semaphore.locked():
            await self._semaphore.acquire()
            return True
        self._waiting += 1
        try:
            async with asyncio.timeout(None if timeout == math.inf else max(0.0, timeout)):
                await self._semaphore.acquire()
            return True
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._semaphore.release()

    @property
    def is_crowded(self) -> bool:
        return self._waiting > 0


class Runtime:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: set[asyncio.Task[None]] = set()  # they are not cancelled, and end in time
        self._watched: dict[Line, asyncio.Task[None]] = {}

    def caller(self) -> Hashable:
        return asyncio.current_task()

    def flag(self) -> Flag:
        return Flag()

    def gate(self, size: int) -> Gate:
        return Gate(size)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task = asyncio.create_task(work(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """To its end, even if the caller is cancelled again; the task goes on in that case."""
        task = asyncio.ensure_future(work)
        self._last.add(task)
        task.add_done_callback(self._last.discard)
        await asyncio.shield(task)

    async def whole(self, work: Coroutine[Any, Any, None]) -> None:
        await self.finish(work)

    def tell(self, work: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(work)

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        self.loop.call_later(seconds, work)

    def watch(self, line: Any, ended: Callable[[], None]) -> None:
        async def watching() -> None:
            await line.ended()
            if self._watched.pop(line, None) is not None:
                ended()

        self._watched[line] = asyncio.create_task(watching(), name="serverlock session")

    async def unwatch(self, line: Line) -> None:
        task = self._watched.pop(line, None)
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
