"""The differences between client libraries. redis-py and valkey-py are nearly the same code."""

import inspect
import sys
from typing import Any, TypeAlias

from ..errors import LockBadArgument
from .wire import ConnectionLost, ReplyError, reply_error

# An object of the client library. Its types differ between versions, and it is not a dependency.
Raw: TypeAlias = Any


class Library:
    def __init__(self, client: object, *, is_async: bool) -> None:
        names = [f"{kind.__module__}.{kind.__name__}" for kind in type(client).__mro__]
        root = next((name.split(".")[0] for name in names if name.startswith(("redis.", "valkey."))), None)
        looks_async = any(".asyncio." in name for name in names)
        if root is None:
            raise LockBadArgument("", f"client is {type(client).__name__}, not a client of redis-py or valkey-py")
        if looks_async != is_async:
            other = "serverlock.aio.Locks" if looks_async else "serverlock.Locks"
            raise LockBadArgument("", f"client is {names[0]}, which needs {other}")
        if any(name.endswith("Pipeline") for name in names):
            raise LockBadArgument("", "client is a pipeline: pass the client that created it")
        self.is_cluster = any(name.endswith("Cluster") for name in names)
        self.client_class: Raw = next(
            (kind for kind in type(client).__mro__ if kind.__name__ in ("Redis", "Valkey")), None
        )
        errors: Raw = sys.modules[f"{root}.exceptions"]
        self.errors = errors
        self.response_error: type[Exception] = errors.ResponseError
        self.moved: type[Exception] = errors.MovedError
        self.ask: type[Exception] = errors.AskError
        self.root_error: type[Exception] = getattr(errors, "RedisError", None) or errors.ValkeyError
        self._auth_error: type[Exception] = errors.AuthenticationError
        retry: Raw = sys.modules[f"{root}.asyncio.retry" if is_async else f"{root}.retry"]
        backoff: Raw = sys.modules[f"{root}.backoff"]
        pools: Raw = sys.modules[f"{root}.asyncio.connection" if is_async else f"{root}.connection"]
        self._plain: object = pools.ConnectionPool.get_connection
        self._retry: Raw = retry.Retry
        self._backoff: Raw = backoff.NoBackoff

    def client_of(self, cluster: Raw) -> Raw:
        """The cluster client's method that returns a node's client."""
        names = (f"get_{root}_connection" for root in ("redis", "valkey"))
        return next((getattr(cluster, name) for name in names if hasattr(cluster, name)), None)

    def no_retry(self) -> Raw:
        return self._retry(self._backoff(), 0)

    def is_plain_pool(self, pool: Raw) -> bool:
        """Whether the pool takes connections as the library's plain pool does."""
        return (
            getattr(type(pool), "get_connection", None) is self._plain
            and hasattr(pool, "_available_connections")
            and hasattr(pool, "_in_use_connections")
            and hasattr(pool, "_lock")
            and getattr(pool, "cache", None) is None
        )

    def read(self, error: BaseException, *, chain: bool = False) -> ConnectionLost | ReplyError | None:
        """Translates an exception from the library or the system. Returns None for any other."""
        if isinstance(error, (ReplyError, ConnectionLost)):
            return error
        read = self._read(error)
        if chain and read is not None:
            read.__cause__ = error
        return read

    def _read(self, error: BaseException) -> ConnectionLost | ReplyError | None:
        if isinstance(error, self._auth_error) or (
            type(error).__name__ == "NoPermissionError" and "AUTH" in str(error)
        ):
            return ConnectionLost(error, final=True)
        if isinstance(error, self.response_error):
            return reply_error(error)
        # LOADING and the like are connection errors to the library.
        if type(error).__name__ in ("BusyLoadingError", "MasterDownError", "ClusterDownError", "TryAgainError"):
            return reply_error(error) if isinstance(error, Exception) else None
        if isinstance(error, (self.root_error, OSError, TimeoutError, EOFError)):
            return ConnectionLost(error)
        return None

    def translated(self, error: BaseException) -> BaseException:
        """What the caller gets for it: ReplyError, ConnectionLost, or an error that the connection did not cause."""
        if isinstance(error, UnboundLocalError) and error.__context__ is not None:
            # valkey-py opens a connection with a `finally` that fails if a signal handler has already raised.
            error = error.__context__
        return self.read(error, chain=True) or error

    def own(self, kwargs: dict[str, Raw], timeout: float) -> dict[str, Raw]:
        """The arguments for a dedicated connection: the pool's, but with RESP2, one try, and our time-outs."""
        mine = dict(kwargs)
        for name in list(mine):
            if name.startswith("maint_notifications") or name in ("cache", "cache_config", "parser_class"):
                del mine[name]
        mine.pop("oss_cluster_maint_notifications_handler", None)
        mine.update(
            protocol=2,
            decode_responses=False,
            retry=self.no_retry(),
            retry_on_timeout=False,
            retry_on_error=[],
            health_check_interval=0,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
        )
        return mine


def pool_arguments(pool: Raw) -> tuple[str, ...]:
    """Older libraries need the command's name to take a connection."""
    parameters = inspect.signature(type(pool).get_connection).parameters
    named = parameters.get("command_name")
    return ("LOCK",) if named is not None and named.default is inspect.Parameter.empty else ()
