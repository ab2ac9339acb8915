"""The application's own client, with threads: its pool, Sentinel or cluster.

Connections are taken from its pool for one exchange each, so the library never sends a command twice on its own.
"""

import selectors
import time
import weakref
from collections.abc import Callable, Hashable, Sequence

from ..core.library import Library, Raw, pool_arguments
from ..core.pipeline import Pipeline, is_demoted
from ..core.wire import Connection, ConnectionLost, Reply, ReplyError, Words
from .runtime import Runtime, run

MOST_HOPS = 5


class ThreadConnection:
    """A connection outside the pool. One thread at a time; `close` from any."""

    def __init__(self, library: Library, connection: Raw) -> None:
        self._library, self._connection = library, connection
        self._is_closed = False

    async def call(self, words: Words, timeout: float) -> Reply:
        await self.send(words)
        try:
            if not self._connection.can_read(timeout):
                raise TimeoutError(f"no reply within {timeout:g} s")
            return self._connection.read_response()
        except BaseException as error:
            raise self._failed(error) from error

    async def send(self, words: Words) -> None:
        try:
            if not self.is_open:
                raise ConnectionError("the connection is closed")
            self._connection.send_command(*words, check_health=False)
        except BaseException as error:
            raise self._failed(error) from error

    async def read(self, timeout: float) -> Reply:
        try:
            if not self._connection.can_read(timeout):
                return None
            return self._connection.read_response()
        except BaseException as error:
            raise self._failed(error) from error

    async def ready(self, timeout: float) -> bool:
        sock = self._connection._sock
        if sock is None:
            return True
        is_tls, end = hasattr(sock, "pending"), time.monotonic() + timeout
        if is_tls and sock.pending():
            return True
        # The library reads while it waits, so an exception from a signal handler could lose what it has read.
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(sock, selectors.EVENT_READ)
            except (OSError, ValueError):
                return True  # `receive` reports it
            while selector.select(max(0.0, end - time.monotonic())):
                if not is_tls or self._has_reply():
                    return True
        return False

    def _has_reply(self) -> bool:
        """Within TLS, there is more than replies: session tickets, key updates."""
        try:
            return bool(self._connection.can_read(0))
        except BaseException as error:
            raise self._failed(error) from error

    async def receive(self) -> Reply:
        try:
            if not self.is_open:
                raise ConnectionError("the connection is closed")
            return self._connection.read_response()
        except BaseException as error:
            raise self._failed(error) from error

    async def close(self) -> None:
        self._is_closed = True
        self._connection.disconnect()

    @property
    def is_open(self) -> bool:
        return self._connection._sock is not None

    def fileno(self) -> int:
        sock = self._connection._sock
        return -1 if sock is None else int(sock.fileno())

    def is_alive(self) -> bool:
        """False once it has ended or something unexpected has arrived."""
        try:
            return not self._connection.can_read(0)
        except BaseException:
            return False

    def _failed(self, error: BaseException) -> BaseException:
        read = self._library.read(error)
        if isinstance(read, ReplyError):
            return read
        self._connection.disconnect()
        if read is None and self._is_closed and isinstance(error, Exception):
            return ConnectionLost(
                error
            )  # the library raises all sorts of errors if another thread closes its connection
        return read or error


class Wire:
    def __init__(self, client: Raw, library: Library, runtime: Runtime) -> None:
        self._client, self._library, self._runtime = client, library, runtime
        self.is_cluster = library.is_cluster
        self._pool: Raw = None if self.is_cluster else client.connection_pool
        self._client_of = library.client_of(client)
        pool = self._client_of(next(iter(client.get_nodes()))).connection_pool if self.is_cluster else self._pool
        self._arguments = pool_arguments(pool)
        self._pipeline = Pipeline(runtime, lambda calls, timeout: self._exchange(self._pool, calls, timeout))
        self._pipelines: weakref.WeakKeyDictionary[Raw, Pipeline] = weakref.WeakKeyDictionary()

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
            return str(self._pool_of(key))
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
        try:
            pool = self._pool_of(key) if self.is_cluster else self._pool
        except Exception as error:
            raise self._library.translated(error) from error
        return self._connect_to(pool, timeout)

    def _connect_to(self, pool: Raw, timeout: float) -> ThreadConnection:
        connection: Raw = None
        try:
            connection = pool.connection_class(**self._library.own(pool.connection_kwargs, timeout))
            connection.connect()
        except BaseException as error:
            if connection is not None:
                connection.disconnect()
            raise self._library.translated(error) from error
        return ThreadConnection(self._library, connection)

    async def _exchange(self, pool: Raw, calls: Sequence[Words], timeout: float) -> list[Reply]:
        """Sends calls over one pool connection, and closes it if a reply is missing."""
        replies: list[Reply] = []
        try:
            connection = self._taken(pool, timeout)
        except BaseException as error:
            return [self._failure(error)] * len(calls)
        try:
            if len(calls) == 1:
                connection.send_command(*calls[0])
            else:
                connection.send_packed_command(connection.pack_commands(calls))
            end, limit = time.monotonic() + timeout, connection.socket_timeout
            # For one reply, the library's time-out is enough, unless it is longer.
            must_wait = len(calls) > 1 or not limit or limit > timeout
            while len(replies) < len(calls):
                if must_wait and not connection.can_read(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no reply within {timeout:g} s")
                try:
                    replies.append(connection.read_response())
                except self._library.response_error as error:
                    replies.append(self._library.read(error, chain=True))
            if is_demoted(replies):
                connection.disconnect()  # the next connection may lead to the new master
        except BaseException as error:
            connection.disconnect()
            replies += [self._failure(error)] * (len(calls) - len(replies))
        finally:
            pool.release(connection)
        return replies

    def _failure(self, error: BaseException) -> ReplyError | ConnectionLost:
        """Re-raises the error if the connection did not cause it: a KeyboardInterrupt, for example."""
        translated = self._library.translated(error)
        if not isinstance(translated, (ReplyError, ConnectionLost)):
            raise translated
        return translated

    def _taken(self, pool: Raw, timeout: float) -> Raw:
        """A pool connection, connected in one try. The library would try ten times, for a minute or more.

        This does what the library's plain pool does in `get_connection`. Other pools use their own.
        """
        if not self._library.is_plain_pool(pool):
            return pool.get_connection(*self._arguments)
        pool._checkpid()
        connection = None
        try:
            with pool._lock:
                try:
                    connection = pool._available_connections.pop()
                except IndexError:
                    connection = pool.make_connection()
                pool._in_use_connections.add(connection)
            if connection._sock is not None:
                try:
                    # Data on an idle connection is either EOF or a reply that nobody is waiting for.
                    if not connection.can_read():
                        return connection
                except Exception as error:
                    if self._library.read(error) is None:
                        raise
                connection.disconnect()
            self._connect(pool, connection, timeout)
        except BaseException:
            if connection is not None:
                connection.disconnect()  # half connected, it would fail for the next caller
                pool.release(connection)
            raise
        return connection

    def _connect(self, pool: Raw, connection: Raw, timeout: float) -> None:
        limit = connection.socket_timeout
        if limit is None or limit > timeout:
            # With the library's time-out, it would wait too long for a stopped server.
            run(lambda: self._probe(pool, timeout))
        kept, connection.retry = connection.retry, self._library.no_retry()
        try:
            connection.connect()
        finally:
            connection.retry = kept

    async def _probe(self, pool: Raw, timeout: float) -> None:
        connection = self._connect_to(pool, timeout)
        try:
            await connection.call(("PING",), timeout)
        finally:
            await connection.close()

    # In a cluster

    def _pool_of(self, key: bytes) -> Raw:
        client = self._client
        node = client.nodes_manager.get_node_from_slot(client.keyslot(key), False)
        return self._client_of(node).connection_pool

    def _pipeline_of(self, pool: Raw) -> Pipeline:
        pipeline = self._pipelines.get(pool)
        if pipeline is None:
            pipeline = self._pipelines.setdefault(
                pool, Pipeline(self._runtime, lambda calls, timeout: self._exchange(pool, calls, timeout))
            )
        return pipeline

    async def _routed(self, key: bytes, words: Words, timeout: float) -> Reply:
        """Follows the slot. If a node is gone, asks the cluster for its nodes once."""
        pool, asking = None, False
        for hop in range(MOST_HOPS):
            try:
                if pool is None:
                    pool = self._pool_of(key)
                return await self._pipeline_of(pool).call(words, timeout, asking=asking)
            except ReplyError as error:
                if error.code not in ("MOVED", "ASK") or hop == MOST_HOPS - 1:
                    raise
                asking, pool = error.code == "ASK", self._redirected(error.__cause__)
            except ConnectionLost:
                self._refresh()
                raise
            except self._library.response_error as error:
                raise self._failure(error) from error
        raise ConnectionLost(ConnectionError("the slot keeps moving"))

    def _redirected(self, error: Raw) -> Raw:
        manager = self._client.nodes_manager
        if isinstance(error, self._library.moved):
            if hasattr(manager, "move_slot"):
                manager.move_slot(error)
            else:
                self._refresh()
        node = self._client.get_node(host=error.host, port=error.port)
        if node is None:
            self._refresh()
            node = self._client.get_node(host=error.host, port=error.port)
        return None if node is None else self._client_of(node).connection_pool

    async def refresh(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        try:
            self._client.nodes_manager.initialize()
        except Exception as error:
            read = self._library.read(error)
            if read is None:
                raise
