"""The managers' connections to an in-memory server. The same for threads and asyncio: their runtimes do the waiting."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence

from ..core.wire import Connection, ConnectionLost, Reply, ReplyError, Runtime, Words
from .commands import Commands
from .table import Pending


class MemoryConnection:
    def __init__(self, commands: Commands, runtime: Runtime) -> None:
        self._commands, self._now = commands, runtime.now
        self._replies: deque[Reply] = deque()
        self._arrived = runtime.flag()
        self._is_open = True
        self.ended: Callable[[], None] | None = None

    def deliver(self, reply: Reply) -> None:
        self._replies.append(reply)
        self._arrived.set()

    async def call(self, words: Words, timeout: float) -> Reply:
        await self.send(words)
        if not await self.ready(timeout):
            await self.close()
            raise ConnectionLost(TimeoutError(f"no reply within {timeout:g} s"))
        return await self.receive()

    async def send(self, words: Words) -> None:
        if not self._is_open:
            raise ConnectionLost(ConnectionError("the connection is closed"))
        reply = self._commands.execute(words, self)
        if not isinstance(reply, Pending):
            self.deliver(reply)

    async def read(self, timeout: float) -> Reply:
        return await self.receive() if await self.ready(timeout) else None

    async def ready(self, timeout: float) -> bool:
        end = self._now() + timeout
        while True:
            self._arrived.clear()
            if self._replies or not self._is_open:
                return True
            left = end - self._now()
            if left <= 0:
                return False
            await self._arrived.wait(left)

    async def receive(self) -> Reply:
        if not self._replies:
            raise ConnectionLost(ConnectionError("the connection is closed"))
        reply = self._replies.popleft()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._commands.disconnect(self)
            self._arrived.set()
            if self.ended is not None:
                self.ended()

    @property
    def is_open(self) -> bool:
        return self._is_open


class MemoryWire:
    """The application's own client."""

    is_cluster = False
    in_use = 0

    def __init__(self, commands: Commands, runtime: Runtime) -> None:
        self.commands, self._runtime = commands, runtime

    async def call(self, key: bytes, words: Words, timeout: float) -> Reply:
        reply = self.commands.execute(words)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def batch(self, calls: Sequence[tuple[bytes, Words]], timeout: float) -> list[Reply]:
        return [self.commands.execute(words) for _, words in calls]

    async def connect(self, key: bytes, timeout: float) -> Connection:
        return MemoryConnection(self.commands, self._runtime)

    async def server_of(self, key: bytes) -> Hashable:
        return None

    def narrow(self, congested: Callable[[], None]) -> bool:
        return False  # so every wait is in the queue with NOTIFY, whether it is the only one or not

    def widen(self) -> None:
        """Nothing was narrowed."""

    async def refresh(self) -> None:
        """There is no cluster."""


def watch(connection: Connection, ended: Callable[[], None]) -> None:
    if isinstance(connection, MemoryConnection) and connection.is_open:
        connection.ended = ended
    else:
        ended()


def unwatch(connection: Connection) -> None:
    if isinstance(connection, MemoryConnection):
        connection.ended = None
