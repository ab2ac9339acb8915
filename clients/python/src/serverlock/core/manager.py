"""The calls that describe a lock: the same for threads and asyncio."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from ..hooks import Hooks
from .engine import Options
from .request import MOST_HOLDERS, Duration, Key, Request, checked, count_of, key_of, seconds_of, shown

L = TypeVar("L")


class LockOptions(TypedDict, total=False):
    """What every lock takes besides its key and lease. Durations are seconds, or timedelta.

    wait: how long to stand in line; 0: not at all; math.inf: for ever.
    owner: a label for people, 1 to 128 visible ASCII characters. It grants nothing.
    session: the lock ends with a connection of its own, one second after it.
    details: fill `predecessor`.
    replicas, replicas_within: so many replicas must have the grant, within that time, or it is given back.
    fsync: this server, and as many replicas, must have it on disk (WAITAOF).
    at_least: the lock is not free for others before that time, however soon it is released.
    max_hold: the lease is not renewed any more after that time.
    on_lost: called with the hold when it is lost.
    """

    wait: Duration
    owner: str | None
    session: bool
    details: bool
    replicas: int
    replicas_within: Duration
    fsync: bool
    at_least: Duration
    max_hold: Duration | None
    on_lost: Callable[[Any], object] | None


class Manager(Generic[L]):
    """Locks of one client. Make one for each client of the application, and keep it."""

    def __init__(
        self,
        client: Any,
        *,
        timeout: Duration = 5.0,
        portable: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """timeout: how long a reply may take. portable: without the module, lock by script."""
        log = logger or logging.getLogger("serverlock")
        self._options = Options(seconds_of(timeout, "timeout", "", 0.001), bool(portable), hooks, log)
        self._client = client

    def _made(self, request: Request) -> L:
        raise NotImplementedError

    def lock(self, key: Key, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """One holder at a time."""
        return self._made(_request([key], lease, options))

    def shared(self, key: Key, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """Any number of holders that share it (readers); none beside a holder of `lock` (a writer)."""
        return self._made(_request([key], lease, options, kind=(b"SHARED",)))

    def limit(self, key: Key, n: int, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """At most n holders at a time."""
        name = shown([key_of(key)])
        kind = (b"LIMIT", count_of(n, "n", name, 1, MOST_HOLDERS))
        return self._made(_request([key], lease, options, kind=kind))

    def all_of(self, keys: Iterable[Key], lease: Duration, **options: Unpack[LockOptions]) -> L:
        """All of the keys or none, under one token. While it waits it holds none. No details."""
        if isinstance(keys, (str, bytes)):
            keys = [keys]
        return self._made(_request(keys, lease, {**options, "details": False}, many=True))

    def recover(self, key: Key, lease: Duration, **options: Unpack[LockOptions]) -> L:
        """Only a lock that its last holder never released; `predecessor` says whose it was. It does not wait."""
        return self._made(_request([key], lease, {**options, "wait": 0, "details": False}, recover=True))


def _request(keys: Iterable[object], lease: object, options: LockOptions, **more: Any) -> Request:
    return checked(
        keys,
        lease,
        options.get("wait", 0),
        options.get("owner"),
        options.get("at_least", 0),
        options.get("max_hold"),
        options.get("replicas", 0),
        options.get("replicas_within", 1),
        session=bool(options.get("session")),
        details=bool(options.get("details")),
        fsync=bool(options.get("fsync")),
        on_lost=options.get("on_lost"),
        **more,
    )
