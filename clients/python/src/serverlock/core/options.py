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
        self.warn_without_module = warn_without_module  # until the warning was logged


class GrantOptions(TypedDict, total=False):
    """What the options of locks and leaders have in common.

    owner: a label for people, 1 to 128 visible ASCII characters. It grants nothing.
    session: the lock ends with a connection of its own, one second after it.
    replicas, replicas_within: so many replicas must have the grant within that time (1 s), or it is given back.
    fsync: this server, and as many replicas, must have it on disk (WAITAOF).
    """

    owner: str | None
    session: bool
    replicas: int
    replicas_within: Duration
    fsync: bool


class LeaderOptions(GrantOptions, total=False):
    """The options of `leader`. wait: how long one attempt waits before the next one (60 s)."""

    wait: Duration


class RecoverOptions(GrantOptions, total=False):
    """The options of `recover`.

    at_least: others cannot have the lock before that time, however soon it is released.
    max_hold: the lease is no longer renewed after that time.
    on_lost: called with the hold when it is lost.
    """

    at_least: Duration
    max_hold: Duration | None
    on_lost: Callable[[Any], object] | None


class AllOfOptions(RecoverOptions, total=False):
    """The options of `all_of`. wait: how long to wait in the queue. 0: not at all; math.inf: without an end."""

    wait: Duration


class LockOptions(AllOfOptions, total=False):
    """The options of `lock`, `shared` and `limit`, for wrappers that pass them on. details: fill `predecessor`."""

    details: bool
