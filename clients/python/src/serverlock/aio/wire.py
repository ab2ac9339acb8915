"""The application's own client, with asyncio: its pool, Sentinel or cluster.

Connections are taken from its pool for one exchange each, so the library never sends a command twice on its own.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence

from ..core.library import Library, Raw, pool_arguments
from ..core.pipeline import Pipeline, is_demoted
from ..core.wire import Connection, ConnectionLost, Reply, ReplyError, Words
from .deadline import Deadline
from .runtime import Runtime

MOST_HOPS = 5


class TaskConnection:
    """A connection outside the pool, for one task at a time."""

    def __init__(self, library: Library, connection: Raw) -> None:
        self._library, self._connection = library, connection
        self._deadline = Deadline()
        self._reading: asyncio.Task[Reply] | None = None

    async def call(self, words: Words, timeout: float) -> Reply:
        try:
            with self._deadline.after(timeout):
                await self._send(words)
                return await self._connection.read_response()
        except BaseException as error:
            raise await self._failed(error) from error

    async def send(self, words: Words) -> None:
        try:
            await self._send(words)
        except BaseException as error:
            raise await self._failed(error) from error

    async def _send(self, words: Words) -> None:
        if not self.is_open:
            raise ConnectionError("the connection is closed")
        await self._connection.send_packed_command(self._connection.pack_command(*words), False)

    async def read(self, timeout: float) -> Reply:
        """A cancelled read could lose half a message, so the read continues until the next call."""
        try:
            reading = self._reading
            if reading is None:
                reading = self._reading = self._read()
            await asyncio.wait([reading], timeout=timeout)
            if not reading.done():
                return None
            self._reading = None
            if reading.cancelled():
                raise ConnectionError("the connection was closed")
            return reading.result()
        except BaseException as error:
            raise await self._failed(error) from error

    async def ended(self) -> None:
        """Returns once the connection has ended or something unexpected has arrived."""
        await self.ready(None)

    async def ready(self, timeout: float | None) -> bool:
        """The library closes the connection of a cancelled read, so the read has a task of its own."""
        reading = self._reading
        if reading is None:
            reading = self._reading = self._read()
        await asyncio.wait([reading], timeout=timeout)
        return reading.done()

    def _read(self) -> "asyncio.Task[Reply]":
        reading = asyncio.create_task(self._connection.read_response(), name="serverlock reading")
        reading.add_done_callback(_retrieve)
        return reading

    async def receive(self) -> Reply:
        reading, self._reading = self._reading, None
        try:
            if reading is None or reading.cancelled():
                raise ConnectionError("the connection was closed")
            return reading.result()
        except BaseException as error:
            raise await self._failed(error) from error

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        await self._connection.disconnect(nowait=True)

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_connected)

    async def _failed(self, error: BaseException) -> BaseException:
        read = self._library.read(error)
        if not isinstance(read, ReplyError):
            await self._connection.disconnect(nowait=True)
        return read or error


def _retrieve(reading: "asyncio.Task[Reply]") -> None:
    """Without this, a read that fails while nobody is waiting for it is reported as an error."""
    if not reading.cancelled():
        reading.exception()


class Wire:
    def __init__(self, client: Raw, library: Library, runtime: Runtime) -> None:
        self._client, self._library, self._runtime = client, library, runtime
        self.is_cluster = library.is_cluster
        self._pool: Raw = None if self.is_cluster else client.connection_pool
        self._arguments = () if self.is_cluster else pool_arguments(self._pool)
        self._pipeline = Pipeline(runtime, lambda calls, timeout: self._exchange(None, calls, timeout))
        self._pipelines: dict[str, tuple[Raw, Pipeline]] = {}
        self._deadlines: list[Deadline] = []  # as many as there have been concurrent exchanges

    async def call(self, key: bytes, words: Words, timeout: float) -> Reply:
        if not self.is_cluster:
            return await self._pipeline.call(words, timeout)
        return await self._routed(key, words, timeout)

    async def batch(self, calls: Sequence[tuple[bytes, Words]], timeout: float) -> list[Reply]:
        if not self.is_cluster:
            return await self._pipeline.calls([words for _, words in calls], timeout)
        return [await self._settled(key, words, timeout) for key, words in calls]

    async def server_of(self, key: bytes) -> Hashable:
        if not self.is_cluster:
            return None
        try:
            return str((await self._node_of(key)).name)
        except Exception as error:
            raise self._library.translated(error) from error

    def narrow(self, congested: Callable[[], None]) -> bool:
        return not self.is_cluster and self._pipeline.narrow(congested)

    def widen(self) -> None:
        self._pipeline.widen()

    @property
    def in_use(self) -> int:
        return self._pipeline.in_use + self._pipeline.queued

    async def _settled(self, key: bytes, words: Words, timeout: float) -> Reply:
        try:
            return await self.call(key, words, timeout)
        except (ReplyError, ConnectionLost) as error:
            return error

    async def connect(self, key: bytes, timeout: float) -> Connection:
        connection: Raw = None
        try:
            with Deadline().after(timeout):
                if self.is_cluster:
                    node = await self._node_of(key)
                    made, kwargs = node.connection_class, node.connection_kwargs
                else:
                    made, kwargs = self._pool.connection_class, self._pool.connection_kwargs
                connection = made(**self._library.own(kwargs, timeout) | {"socket_timeout": None})
                await connection.connect()
        except BaseException as error:
            if connection is not None:
                await connection.disconnect(nowait=True)
            raise self._library.read(error) or error from error
        return TaskConnection(self._library, connection)

    async def _exchange(self, node: Raw, calls: Sequence[Words], timeout: float) -> list[Reply]:
        """Sends calls over one pool connection, and closes it if a reply is missing."""
        replies: list[Reply] = []
        deadline = self._deadlines.pop() if self._deadlines else Deadline()
        try:
            with deadline.after(timeout):
                await self._on_connection(node, calls, replies)
        except BaseException as error:
            read = self._library.read(error, chain=True)
            if read is None:
                raise
            replies += [read] * (len(calls) - len(replies))
        finally:
            self._deadlines.append(deadline)
        return replies

    async def _on_connection(self, node: Raw, calls: Sequence[Words], replies: list[Reply]) -> None:
        connection = node.acquire_connection() if node else await self._taken()
        try:
            if node:
                await connection.connect()
            await self._talk(connection, calls, replies)
            if is_demoted(replies):
                await connection.disconnect(nowait=True)  # the next connection may lead to the new master
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            if node:
                _give_back(node, connection)
            else:
                await self._pool.release(connection)

    async def _talk(self, connection: Raw, calls: Sequence[Words], replies: list[Reply]) -> None:
        # `_exchange` sets the time-out, because the library's own would need a task for each call.
        kept, connection.socket_timeout = connection.socket_timeout, None
        try:
            if len(calls) == 1:
                await connection.send_command(*calls[0])
            else:
                await connection.send_packed_command(connection.pack_commands(calls))
            while len(replies) < len(calls):
                try:
                    replies.append(await connection.read_response())
                except self._library.response_error as error:
                    replies.append(self._library.read(error, chain=True))
        finally:
            connection.socket_timeout = kept

    async def _taken(self) -> Raw:
        """A pool connection, connected in one try. The library would try ten times."""
        pool = self._pool
        if not (self._library.is_plain_pool(pool) and hasattr(pool, "get_available_connection")):
            return await pool.get_connection(*self._arguments)
        connection = pool.get_available_connection()
        kept, connection.retry = connection.retry, self._library.no_retry()
        try:
            await pool.ensure_connection(connection)
        except BaseException:
            await pool.release(connection)
            raise
        finally:
            connection.retry = kept
        return connection

    # In a cluster

    async def _node_of(self, key: bytes) -> Raw:
        await self._client.initialize()
        return self._client.nodes_manager.get_node_from_slot(self._client.keyslot(key), False)

    def _pipeline_of(self, node: Raw) -> Pipeline:
        name = str(node.name)
        if self._pipelines.get(name, (None, None))[0] is not node:
            self._pipelines[name] = (
                node,
                Pipeline(self._runtime, lambda calls, timeout: self._exchange(node, calls, timeout)),
            )
        return self._pipelines[name][1]

    async def _routed(self, key: bytes, words: Words, timeout: float) -> Reply:
        """Follows the slot. If a node is gone, asks the cluster for its nodes once."""
        node, asking = None, False
        for hop in range(MOST_HOPS):
            try:
                if node is None:
                    node = await self._node_of(key)
                return await self._pipeline_of(node).call(words, timeout, asking=asking)
            except ReplyError as error:
                if error.code not in ("MOVED", "ASK") or hop == MOST_HOPS - 1:
                    raise
                asking = error.code == "ASK"
                node = await self._redirected(error.__cause__)
            except ConnectionLost:
                await self.refresh()
                raise
            except Exception as error:
                raise self._library.read(error) or error from error
        raise ConnectionLost(ConnectionError("the slot keeps moving"))

    async def _redirected(self, error: Raw) -> Raw:
        if isinstance(error, self._library.moved):
            await self.refresh()
        node = self._client.get_node(host=error.host, port=error.port)
        if node is None:
            await self.refresh()
            node = self._client.get_node(host=error.host, port=error.port)
        return node

    async def refresh(self) -> None:
        try:
            await self._client.nodes_manager.initialize()
        except Exception as error:
            if self._library.read(error) is None:
                raise


def _give_back(node: Raw, connection: Raw) -> None:
    if hasattr(node, "release"):
        node.release(connection)
    else:
        node._free.append(connection)
