"""The calls that describe a lock: the same for threads and asyncio."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypedDict, TypeVar

from ..hooks import Hooks
from .engine import Engine
from .options import Options
from .request import MOST_HOLDERS, Duration, Key, Request, checked, count_of, key_of, seconds_of, shown

L = TypeVar("L")


class LockOptions(TypedDict, total=False):
    """What every lock takes besides its key and lease, for wrappers that pass it on. Durations are seconds, or timedelta.

    wait: how long to wait in the queue; 0: not at all; math.inf: without an end.
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
        warn_without_module: bool = True,
        hooks: Hooks | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """timeout: how long a reply may take. portable: without the module, lock by script. warn_without_module: and
        log a warning when that begins. hooks: told of what happens to locks. logger: "serverlock", if it is not another.
        """
        log = logger or logging.getLogger("serverlock")
        seconds = seconds_of(timeout, "timeout", "", 0.001)
        self._options = Options(seconds, bool(portable), bool(warn_without_module), hooks, log)
        self._client = client
        self._set_up()

    def _set_up(self) -> None:
        """Checks the client, before anything is sent."""
        raise NotImplementedError

    def _lock_of(self, request: Request) -> L:
        raise NotImplementedError

    def _engine(self) -> Engine:
        """The engine of this process, or loop."""
        raise NotImplementedError

    def lock(
        self,
        key: Key,
        lease: Duration,
        *,
        wait: Duration = 0.0,
        owner: str | None = None,
        session: bool = False,
        details: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
        at_least: Duration = 0.0,
        max_hold: Duration | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """One holder at a time."""
        return self._of(
            [key], lease, wait=wait, owner=owner, session=session, details=details,
            replicas=replicas, replicas_within=replicas_within, fsync=fsync, at_least=at_least,
            max_hold=max_hold, on_lost=on_lost,
        )

    def shared(
        self,
        key: Key,
        lease: Duration,
        *,
        wait: Duration = 0.0,
        owner: str | None = None,
        session: bool = False,
        details: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
        at_least: Duration = 0.0,
        max_hold: Duration | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """Any number of holders that share it (readers); none beside a holder of `lock` (a writer)."""
        return self._of(
            [key], lease, wait=wait, owner=owner, session=session, details=details,
            replicas=replicas, replicas_within=replicas_within, fsync=fsync, at_least=at_least,
            max_hold=max_hold, on_lost=on_lost, kind=(b"SHARED",),
        )

    def limit(
        self,
        key: Key,
        n: int,
        lease: Duration,
        *,
        wait: Duration = 0.0,
        owner: str | None = None,
        session: bool = False,
        details: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
        at_least: Duration = 0.0,
        max_hold: Duration | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """At most n holders at a time."""
        number = count_of(n, "n", shown([key_of(key)]), 1, MOST_HOLDERS)
        return self._of(
            [key], lease, wait=wait, owner=owner, session=session, details=details,
            replicas=replicas, replicas_within=replicas_within, fsync=fsync, at_least=at_least,
            max_hold=max_hold, on_lost=on_lost, kind=(b"LIMIT", number),
        )

    def all_of(
        self,
        keys: Iterable[Key],
        lease: Duration,
        *,
        wait: Duration = 0.0,
        owner: str | None = None,
        session: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
        at_least: Duration = 0.0,
        max_hold: Duration | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """All of the keys or none, under one token. While it waits it holds none. No details."""
        return self._of(
            [keys] if isinstance(keys, (str, bytes)) else keys, lease, wait=wait, owner=owner,
            session=session, replicas=replicas, replicas_within=replicas_within, fsync=fsync,
            at_least=at_least, max_hold=max_hold, on_lost=on_lost, many=True,
        )

    def recover(
        self,
        key: Key,
        lease: Duration,
        *,
        owner: str | None = None,
        session: bool = False,
        replicas: int = 0,
        replicas_within: Duration = 1.0,
        fsync: bool = False,
        at_least: Duration = 0.0,
        max_hold: Duration | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """Only a lock that its last holder never released; `predecessor` says whose it was. It does not wait."""
        return self._of(
            [key], lease, owner=owner, session=session, replicas=replicas,
            replicas_within=replicas_within, fsync=fsync, at_least=at_least, max_hold=max_hold,
            on_lost=on_lost, recover=True,
        )


    def _of(self, keys: Iterable[object], lease: object, **options: Any) -> L:
        return self._lock_of(request_of(keys, lease, **options))


def request_of(
    keys: Iterable[object],
    lease: object,
    *,
    wait: object = 0,
    owner: object = None,
    session: object = False,
    details: object = False,
    replicas: object = 0,
    replicas_within: object = 1,
    fsync: object = False,
    at_least: object = 0,
    max_hold: object = None,
    on_lost: object = None,
    **more: Any,
) -> Request:
    """What these options describe; anything else than `kind`, `many` and `recover` is a TypeError."""
    return checked(
        keys, lease, wait, owner, at_least, max_hold, replicas, replicas_within,
        session=bool(session), details=bool(details), fsync=bool(fsync), on_lost=on_lost, **more,
    )
