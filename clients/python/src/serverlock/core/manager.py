"""The calls that describe a lock, shared by threads and asyncio."""

import inspect
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar, Unpack

from ..hooks import Hooks
from .engine import Engine
from .library import Library, Raw
from .options import AllOfOptions, LockOptions, Options, RecoverOptions
from .request import MOST_HOLDERS, Duration, Key, Request, count_of, key_of, request_of, seconds_of, shown
from .wire import Word

L = TypeVar("L")
F = TypeVar("F", bound=Callable[..., object])


def shows(options: type, **defaults: object) -> Callable[[F], F]:
    """Lists each option with its default in `help` and `inspect.signature`, which do not expand Unpack.

    The defaults come from `request_of` and `defaults`.
    """
    known = inspect.signature(request_of).parameters

    def show(function: F) -> F:
        signature = inspect.signature(function)
        named = [it for it in signature.parameters.values() if it.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, kind in options.__annotations__.items():
            named.append(known[name].replace(annotation=kind, default=defaults.get(name, known[name].default)))
        function.__dict__["__signature__"] = signature.replace(parameters=named)
        return function

    return show


def check_names(options: Collection[str], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(sorted(known))}")


class Manager(Generic[L]):
    """The locks of one client. Create one manager for each Redis client in the application, and keep it."""

    _is_async = False

    def __init__(
        self,
        client: Raw,
        *,
        timeout: Duration = 5.0,
        portable: bool = True,
        warn_without_module: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """client: a redis-py or valkey-py client.
        timeout: how long a reply may take.
        portable: lock with the script where the module is missing.
        warn_without_module: log a warning when the module is first found to be missing.
        hooks: called when a lock is granted, refused, lost or released.
        logger: the default is "serverlock".
        """
        log = logger or logging.getLogger("serverlock")
        seconds = seconds_of(timeout, "timeout", "", 0.001)
        self._options = Options(seconds, bool(portable), bool(warn_without_module), hooks, log)
        self._current: Engine | None = None
        self._adopt(client)
        self._set_up()

    def _adopt(self, client: Raw) -> None:
        """Checks and keeps the client."""
        self._client = client
        self._library = Library(client, is_async=self._is_async)

    def _build(self) -> Engine:
        """A new engine for the client."""
        raise NotImplementedError

    def _set_up(self) -> None:
        """Creates whatever else threads or asyncio need."""

    def _lock_of(self, request: Request) -> L:
        raise NotImplementedError

    def _engine(self) -> Engine:
        """The engine of this process or loop."""
        raise NotImplementedError

    @shows(LockOptions)
    def lock(self, key: Key, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """One holder at a time. See LockOptions for the options."""
        return self._one(key, lease, options)

    @shows(LockOptions)
    def shared(self, key: Key, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """Any number of holders share it (readers); a holder of `lock` (a writer) excludes them."""
        return self._one(key, lease, options, (b"SHARED",))

    @shows(LockOptions)
    def limit(self, key: Key, n: int, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """At most n holders at a time."""
        return self._one(key, lease, options, (b"LIMIT", count_of(n, "n", shown([key_of(key)]), 1, MOST_HOLDERS)))

    @shows(AllOfOptions)
    def all_of(self, keys: Iterable[Key], lease: Duration, **options: Unpack[AllOfOptions]) -> L:
        """All of the keys or none, under one token. While it waits, it holds none of them."""
        check_names(options, AllOfOptions.__optional_keys__)
        every = [keys] if isinstance(keys, (str, bytes)) else keys
        return self._lock_of(request_of(every, lease, **options, many=True))

    @shows(RecoverOptions)
    def recover(self, key: Key, lease: Duration, **options: Unpack[RecoverOptions]) -> L:
        """Only a lock that its last holder never released; `predecessor` is that holder. Does not wait."""
        check_names(options, RecoverOptions.__optional_keys__)
        return self._lock_of(request_of([key], lease, **options, recover=True))

    def _one(self, key: Key, lease: Duration, options: LockOptions, kind: tuple[Word, ...] = ()) -> L:
        check_names(options, LockOptions.__optional_keys__)
        return self._lock_of(request_of([key], lease, **options, kind=kind))
