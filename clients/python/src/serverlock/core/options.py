"""The options of a manager and of its locks. Durations are seconds, or timedelta."""

import logging
from collections.abc import Callable
from typing import Any, TypedDict

from ..hooks import Hooks
from .request import Duration


class Options:
    """The options of a manager, checked."""

    def __init__(
        self, timeout: float, portable: bool, warn_without_module: bool, hooks: Hooks | None, log: logging.Logger
    ) -> None:
        self.timeout, self.portable, self.hooks, self.log = timeout, portable, hooks, log
        self.warn_without_module = warn_without_module  # until the warning is logged


class GrantOptions(TypedDict, total=False):
    """The options shared by locks and leaders.

    owner: a label for humans, 1 to 128 visible ASCII characters; the default is `host:pid`, None sends none. It grants
    no permissions.
    session: the lock has its own connection, and ends one second after that closes.
    replicas, replicas_within: this many replicas must have the grant within that time (1 s), or the lock is released.
    fsync: this server and that many replicas must have the grant on disk (WAITAOF).
    """

    owner: str | None
    session: bool
    replicas: int
    replicas_within: Duration
    fsync: bool


class LeaderOptions(GrantOptions, total=False):
    """The options of `leader`. wait: how long one attempt waits before the next starts (60 s)."""

    wait: Duration


class OnceOptions(TypedDict, total=False):
    """The options of `once`. They mean the same as for locks."""

    owner: str | None
    replicas: int
    replicas_within: Duration
    fsync: bool
    max_hold: Duration | None
    on_lost: Callable[[Any], object] | None


class FlightOptions(TypedDict, total=False):
    """The options of `single_flight`.

    wait: how long to wait for the value, in seconds (60). math.inf: forever.
    max_hold: the lease is not renewed after this long.
    """

    wait: Duration
    owner: str | None
    max_hold: Duration | None
    on_lost: Callable[[Any], object] | None


class RecoverOptions(GrantOptions, total=False):
    """The options of `recover`.

    at_least: others cannot get the lock for this long, however soon it is released.
    max_hold: the lease is not renewed after this long.
    on_lost: called with the hold when it is lost.
    """

    at_least: Duration
    max_hold: Duration | None
    on_lost: Callable[[Any], object] | None


class AllOfOptions(RecoverOptions, total=False):
    """The options of `all_of`.

    wait: how long to wait in the queue. 0: not at all; math.inf: forever.
    reentrant: a caller that already holds this lock gets the same hold again.
    """

    wait: Duration
    reentrant: bool


class LockOptions(AllOfOptions, total=False):
    """The options of `lock`, `shared` and `limit`, for wrappers that pass them on. details: fill `predecessor`."""

    details: bool
