"""redis-py's Lock over LOCK.*: the part shared by threads and asyncio.

The token is the server's fencing token. With a timeout, the lock ends when the server says so, and is not renewed.
Without one, it is renewed for as long as its owner keeps the Lock.
"""

import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from ..core import kinds
from ..core.commands import fields_of, text_of
from ..core.engine import BoundHold
from ..core.hold import Grant
from ..core.library import Library, Raw
from ..core.manager import Manager
from ..core.request import Request, request_of
from ..core.wire import ConnectionLost, Reply, ReplyError
from ..errors import LockDenied, LockError, LockLost, LockNoServer, LockRefused

# The lease of a lock without a timeout, which is renewed once a third of the lease has passed.
LEASE = 30.0

M = TypeVar("M", bound=Manager[Any])

_managers: "weakref.WeakKeyDictionary[Raw, Any]" = weakref.WeakKeyDictionary()  # each value is an M


def manager_of(client: Raw, kind: type[M], *, is_async: bool) -> M:
    """The one manager of a client."""
    known = _managers.get(client)
    if known is None:
        library = Library(client, is_async=is_async)
        # A manager over the client itself would keep the client alive. With a cluster there is no other way.
        twin = client if library.is_cluster else library.client_class(connection_pool=client.connection_pool)
        known = _managers.setdefault(client, kind(twin))
    manager: M = known
    return manager


class Timed(BoundHold):
    """A hold with a timeout. It is not renewed, and counts as held for its whole lease."""

    _is_renewed = False
    _margin = 0.0


class Interface:
    """A lock for one key, with its token in `local`."""

    def __init__(
        self,
        manager: Manager[Any],
        redis: Raw,
        name: str | bytes | memoryview,
        timeout: float | None,
        sleep: float,
        blocking: bool,
        blocking_timeout: float | None,
        thread_local: bool,
        raise_on_release_error: bool,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = None
        self._locks = manager

    # What the public methods do

    async def _acquire(self, blocking: bool | None, blocking_timeout: float | None, token: object) -> bool:
        if token is not None:
            raise self._error("The token cannot be chosen: the server creates it. Read it from `local.token`")
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        wait = float("inf") if blocking_timeout is None else max(0.0, blocking_timeout)
        with self._with_their_errors():
            request = self._request(wait if (self.blocking if blocking is None else blocking) else 0.0)
            try:
                hold = await self._locks._engine().acquire(self._locks, request, Timed if self.timeout else BoundHold)
            except LockRefused as error:
                if isinstance(error.__cause__, self._library.root_error):
                    raise
                return False
        self.local.token = str(hold.token).encode()
        self.local.hold = hold
        return True

    async def _locked(self) -> bool:
        with self._with_their_errors():
            try:
                reply = await self._ask("LOCK.INFO")
            except LockError as error:
                if not _is_unknown(error):
                    raise
                return await self._locked_without_module()
        return text_of(fields_of(reply).get("state")) in ("held", "foreign")

    async def _locked_without_module(self) -> bool:
        """An expired lock's key stays for a while."""
        value = await self._ask("GET")
        if value is None:
            return False
        timestamp = re.match(rb"\d{10}\.\d{6}(?=\d{16})", value if isinstance(value, bytes) else value.encode())
        if timestamp is None:
            return True
        seconds, micros = await self._ask("TIME", of_key=False)
        return float(timestamp[0]) > int(seconds) + int(micros) / 1_000_000

    async def _owned(self) -> bool:
        token = self._token
        if token is None:
            return False
        with self._with_their_errors():
            try:
                hold = self._hold(token)
                return hold is not None and await hold._engine.verify(hold) > 0
            except LockLost:
                return False

    async def _release(self, token: object) -> None:
        with self._with_their_errors():
            hold = self._hold(token)
            held = hold is not None and await hold._engine.release(hold)
        if not held:
            raise self._not_owned("release")

    async def _extend(self, what: str, lease: float, *, adds: bool = False) -> Literal[True]:
        with self._with_their_errors():
            hold = self._hold(self._token)
            if hold is None:
                raise self._not_owned(what)
            try:
                left = await hold._engine.verify(hold) if adds else 0.0
                await hold._engine.extend(hold, left + lease)
            except LockLost as error:
                raise self._not_owned(what) from error
        return True

    def _check_extensible(self, what: str) -> None:
        if self._token is None:
            raise self._error(f"Cannot {what} an unlocked lock")
        if self.timeout is None:
            raise self._error(f"Cannot {what} a lock with no timeout")

    # What they need

    @property
    def _token(self) -> bytes | None:
        # A thread that has never acquired the lock has no such attribute.
        token: bytes | None = getattr(self.local, "token", None)
        return token

    @property
    def _library(self) -> Library:
        return self._locks._library

    @property
    def _errors(self) -> Raw:
        return self._library.errors

    def _request(self, wait: float) -> Request:
        return request_of([self.name], self.timeout or LEASE, wait=wait, owner=None)

    def _hold(self, token: object) -> BoundHold | None:
        """The hold with this token, which may come from elsewhere. None if the token is not from a server."""
        text = token.decode("ascii", "replace") if isinstance(token, bytes) else str(token)
        hold: BoundHold | None = getattr(self.local, "hold", None)
        if hold is not None and str(hold.token) == text and hold._ended is None:
            return hold
        if not text.isdecimal() or len(text) > 18:
            return None
        engine = self._locks._engine()
        grant = Grant(int(text), engine.now(), None, engine.module.is_missing)
        return Timed(engine, self._locks, self._request(0.0), grant, grant.sent)

    async def _ask(self, command: str, *, of_key: bool = True) -> Reply:
        request, engine = self._request(0.0), self._locks._engine()
        try:
            return await engine.wire.call(request.key, (command, request.key) if of_key else (command,), engine.timeout)
        except (ReplyError, ConnectionLost) as error:
            raise kinds.typed(error, request.name) from error

    # Errors are the library's

    @contextmanager
    def _with_their_errors(self) -> Iterator[None]:
        try:
            yield
        except LockError as error:
            raise self._theirs(error) from error

    def _theirs(self, error: LockError) -> BaseException:
        """The error that the library raised, or else the one that it would raise."""
        cause = error.__cause__
        while cause is not None and not isinstance(cause, (self._library.root_error, TimeoutError)):
            cause = cause.__cause__
        if isinstance(cause, self._library.root_error):
            return copy(cause)  # a copy, because its cause is set to ours: causes must not form a cycle
        if cause is not None:
            return self._error(str(error), "TimeoutError")
        if isinstance(error, LockNoServer):
            return self._error(str(error), "ConnectionError")
        if isinstance(error, LockDenied):
            return self._error(str(error), "AuthenticationError")
        return self._error(str(error))

    def _error(self, text: str, kind: str = "LockError") -> BaseException:
        error = getattr(self._errors, kind)(text)
        error.lock_name = self.name
        return error  # type: ignore[no-any-return]

    def _not_owned(self, what: str) -> BaseException:
        return self._error(f"Cannot {what} a lock that's no longer owned", "LockNotOwnedError")


def _is_unknown(error: LockError) -> bool:
    cause = error.__cause__
    while cause is not None and not isinstance(cause, ReplyError):
        cause = cause.__cause__
    return isinstance(cause, ReplyError) and cause.is_unknown_command
