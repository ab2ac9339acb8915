"""Renewal in a thread, over a connection of its own: for a loop that is blocked for longer than a lease.

The thread and the loop share the deadlines of the holds, so `check` is right as soon as the loop runs again. A loss is
still reported on the loop. C code that keeps the GIL blocks the thread too.
"""

import importlib
import inspect
from logging import Logger

from ..core.library import Library, Raw
from ..core.module import Module
from ..core.renewal import Timer
from ..errors import LockBadArgument
from ..threads.runtime import Runtime
from ..threads.wire import Wire


class RenewalThread:
    """Where to send renewals: with the same library's client for threads."""

    def __init__(self, client: Raw, library: Library, renewal: Raw, timeout: float) -> None:
        """renewal: a client for threads, or "thread" to connect as the application's own client does."""
        self._client = _twin(client, library, timeout) if renewal == "thread" else renewal
        self._library = Library(self._client, is_async=False)

    def timer(self, module: Module, timeout: float, log: Logger) -> Timer:
        runtime = Runtime()
        return Timer(runtime, Wire(self._client, self._library, runtime), module, timeout, log)


def _twin(client: Raw, library: Library, timeout: float) -> Raw:
    """A client for threads, for the same server."""
    pool = None if library.is_cluster else client.connection_pool
    if pool is None or hasattr(pool, "service_name"):
        raise LockBadArgument("", 'renewal is "thread": with Sentinel or a cluster, pass a client for threads instead')
    root = library.client_class.__module__.split(".")[0]
    connections = importlib.import_module(f"{root}.connection")
    names = [it.__name__ for it in pool.connection_class.__mro__]
    kind = next((getattr(connections, name) for name in names if hasattr(connections, name)), None)
    if kind is None:
        raise LockBadArgument("", f'renewal is "thread": with a {names[0]}, pass a client for threads instead')
    client_class = getattr(importlib.import_module(root), library.client_class.__name__)
    threads = Library(client_class(), is_async=False)
    known = {name for it in kind.__mro__ for name in inspect.signature(it).parameters}
    kwargs = {name: it for name, it in threads.own(pool.connection_kwargs, timeout).items() if name in known}
    return client_class(connection_pool=connections.ConnectionPool(connection_class=kind, **kwargs))
