"""Base classes for tasks that run once at a time, or once per period.

A task that is dropped, because another one runs instead, ends in Celery's state REVOKED: its result raises
TaskRevokedError rather than keeping its reader waiting, and its callbacks do not run.
"""

import hashlib
import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeAlias

from celery import Task, uuid
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_task_logger
from kombu.utils import json

from ..core.handover import drop, grant, resume
from ..core.once import schedule_of
from ..core.request import Duration, Request, request_of, seconds_of
from ..errors import LockBadArgument, LockError, LockRefused
from ..threads.held import Held
from ..threads.locks import Locks
from ..threads.runtime import run

KeyOf: TypeAlias = Callable[..., str]
HEADER = "serverlock"  # of a message that has a lock: its token and its key
DAY = 86_400.0
RETRY_WAIT = 10.0

log = get_task_logger("serverlock.celery")


def unique(
    locks: Locks,
    until: Literal["until_executed", "while_executing"],
    *,
    key: KeyOf | None = None,
    lease: Duration = 30.0,
    queued: Duration = DAY,
    wait: Duration = 0.0,
    conflict: Literal["again", "drop"] = "again",
    again_in: Duration = 5.0,
    base: type[Any] = Task,
) -> type[Any]:
    """A base class for tasks of which one runs at a time: `@app.task(base=unique(locks, "while_executing"))`.

    until: "until_executed": while such a task is queued, retried or running, others with its arguments are not queued.
    key: called with the task's arguments, returns what must be unique. By default this is all of them.
    lease: how soon another one may run if the worker dies.
    queued: with "until_executed", how long a queued or retried task keeps others out: from its ETA on, and not after it
    has expired.
    wait: with "while_executing", how long a worker waits for its turn.
    conflict: with "while_executing", whether a task that finds another one running is queued again, in `again_in`
    seconds, or dropped.
    base: the task class that this one extends.
    """
    if until not in ("until_executed", "while_executing"):
        raise LockBadArgument("", f"until is {until!r}, not 'until_executed' or 'while_executing'")
    if conflict not in ("again", "drop"):
        raise LockBadArgument("", f"conflict is {conflict!r}, not 'again' or 'drop'")
    request_of(["unique"], lease, wait=wait)  # checks them
    names: dict[str, Any] = {
        "abstract": True,
        "serverlock_locks": locks,
        "serverlock_key_of": None if key is None else staticmethod(key),
        "serverlock_lease": lease,
    }
    if until == "until_executed":
        names["serverlock_queued"] = seconds_of(queued, "queued", "", 0.001)
        return type("UntilExecuted", (UntilExecuted, base), names)
    again = seconds_of(again_in, "again_in", "", 0.0) if conflict == "again" else None
    return type("WhileExecuting", (WhileExecuting, base), {**names, "serverlock_wait": wait, "serverlock_again": again})


def once(
    locks: Locks,
    period: Duration,
    *,
    key: KeyOf | None = None,
    lease: Duration | None = None,
    rerun: bool = True,
    base: type[Any] = Task,
) -> type[Any]:
    """A base class for tasks that run once per period, however many beats or callers send them.

    period, lease, rerun: as for `Locks.once`. key: as for `unique`.
    """
    schedule_of("once", period, lease, rerun, {})  # checks them
    names = {
        "abstract": True,
        "serverlock_locks": locks,
        "serverlock_key_of": None if key is None else staticmethod(key),
        "serverlock_once": {"period": period, "lease": lease, "rerun": rerun},
    }
    return type("OncePerPeriod", (OncePerPeriod, base), names)


class Locked(Task):
    """A task with a lock. Its body may ask `self.held` for the token, and whether the lock is still held."""

    abstract = True
    serverlock_locks: ClassVar[Locks]
    serverlock_key_of: ClassVar[KeyOf | None]

    @property
    def held(self) -> Held | None:
        """The lock of the running task; None if it was called directly."""
        held: Held | None = self.request.get("serverlock_held")
        return held

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Celery calls this for each message. A direct call of the function takes no lock."""
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        return self._serverlock_run(args, kwargs)

    def _serverlock_run(self, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def _serverlock_body(self, held: Held, args: Any, kwargs: Any) -> Any:
        self.request.serverlock_held = held
        return super().__call__(*args, **kwargs)  # an application's base class may do something there

    def _serverlock_key(self, args: Any, kwargs: Any) -> str:
        """The same for the same arguments, whether they are passed by position or by name."""
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        if self.serverlock_key_of is not None:
            return f"serverlock:celery:{self.name}:{self.serverlock_key_of(*args, **kwargs)}"
        try:
            bound = inspect.signature(self.run).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        except (TypeError, ValueError):
            pass  # Celery reports wrong arguments
        try:
            text = json.dumps([args, kwargs], sort_keys=True)
        except TypeError as error:
            raise LockBadArgument(self.name, f"pass key=: its arguments have no JSON ({error})") from error
        return f"serverlock:celery:{self.name}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def _serverlock_drop(self, why: str) -> Exception:
        log.info("%s[%s] is dropped: %s", self.name, self.request.id, why)
        stores = not self.ignore_result and not self.request.ignore_result
        self.backend.mark_as_revoked(self.request.id, why, request=self.request, store_result=stores)
        dropped: Exception = Ignore(why)
        return dropped


class WhileExecuting(Locked):
    """One at a time."""

    abstract = True
    serverlock_lease: ClassVar[Duration]
    serverlock_wait: ClassVar[Duration]
    serverlock_again: ClassVar[float | None]

    def _serverlock_run(self, args: Any, kwargs: Any) -> Any:
        key = self._serverlock_key(args, kwargs)
        try:
            held = self.serverlock_locks.lock(key, self.serverlock_lease, wait=self.serverlock_wait).acquire()
        except LockRefused as error:
            raise self._serverlock_conflict(error) from error
        with held:
            return self._serverlock_body(held, args, kwargs)

    def _serverlock_conflict(self, error: LockRefused) -> Exception:
        if self.serverlock_again is None:
            return self._serverlock_drop("another one is running")
        if self.request.is_eager:
            return error
        # Not `retry`: this is not one of its `max_retries`.
        signature = self.signature_from_request(self.request, countdown=self.serverlock_again)
        signature.apply_async()
        again: Exception = Retry("another one is running", error, when=self.serverlock_again)
        return again


class UntilExecuted(Locked):
    """One is queued or running.

    There are two locks. One belongs to the message: it keeps others from being queued. The other is held by the worker:
    it keeps a broker's second copy of the message from running beside the first.
    """

    abstract = True
    serverlock_lease: ClassVar[Duration]
    serverlock_queued: ClassVar[float]

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: Any = None, **options: Any) -> Any:
        """Queues the task, unless one is queued already. The result of a dropped one has the state REVOKED."""
        task_id = task_id or uuid()
        headers = dict(options.pop("headers", None) or {})
        if self.app.conf.task_always_eager or self._serverlock_is_retry(task_id):
            return super().apply_async(args, kwargs, task_id=task_id, headers=headers, **options)
        key, locks = self._serverlock_key(args, kwargs), self.serverlock_locks
        request = _queued(key, self._serverlock_lasts(options), task_id)
        try:
            granted = run(lambda: grant(locks._engine(), request))
        except LockRefused:
            log.info("%s is not queued: another one has these arguments", self.name)
            self.backend.mark_as_revoked(task_id, "another one is queued", store_result=not self.ignore_result)
            return self.AsyncResult(task_id)
        is_sent = False
        try:
            headers[HEADER] = {"token": granted.token, "key": key}
            result = super().apply_async(args, kwargs, task_id=task_id, headers=headers, **options)
            is_sent = True
            return result
        finally:
            if not is_sent:
                drop(locks._engine(), request, granted)

    def _serverlock_lasts(self, options: dict[str, Any]) -> float:
        """How long the message's lock lasts: a message that has expired is not executed."""
        lasts = self.serverlock_queued + _delay(options.get("countdown"), options.get("eta"))
        expires = options.get("expires") or self.expires
        return lasts if expires is None else max(0.001, min(lasts, _delay(expires)))

    def _serverlock_is_retry(self, task_id: str) -> bool:
        """Whether a task queues itself again: its message keeps the lock."""
        return not self.request.called_directly and bool(task_id == self.request.id)

    def _serverlock_run(self, args: Any, kwargs: Any) -> Any:
        header = (self.request.headers or {}).get(HEADER) or self.request.get(HEADER) or {}
        key = header.get("key") or self._serverlock_key(args, kwargs)
        try:
            # A retry may arrive before the worker that sent it has released the lock, or has died.
            lease = seconds_of(self.serverlock_lease, "lease", key, 0.001)
            wait = lease + RETRY_WAIT if self.request.retries else 0.0
            held = self.serverlock_locks.lock(key, lease, wait=wait).acquire()
        except LockRefused as error:
            raise self._serverlock_drop("another one is running") from error
        with held:
            queued = self._serverlock_take(key, header.get("token"))
            if queued is None:
                raise self._serverlock_drop("another one has these arguments")
            # A retry's message gets these headers.
            self.request.headers = {**(self.request.headers or {}), HEADER: {"token": queued.token, "key": key}}
            return self._serverlock_execute(queued, held, args, kwargs)

    def _serverlock_take(self, key: str, token: int | None) -> Held | None:
        """The message's lock. If its lease has ended, nobody else may have it."""
        locks = self.serverlock_locks
        request = _queued(key, self.serverlock_lease, self.request.id)
        if token is not None:
            held = run(lambda: resume(locks._engine(), locks, request, token, Held))
            if held is not None:
                return held
        try:
            return run(lambda: locks._engine().acquire(locks, request, Held))
        except LockRefused:
            return None

    def _serverlock_execute(self, queued: Held, held: Held, args: Any, kwargs: Any) -> Any:
        try:
            value = self._serverlock_body(held, args, kwargs)
        except Retry as error:
            self._serverlock_keep(queued, _delay(error.when))
            raise
        except Reject as error:
            if error.requeue:
                self._serverlock_keep(queued, 0.0)
            raise
        finally:
            if queued._ended is None:
                queued.release()
        return value

    def _serverlock_keep(self, queued: Held, delay: float) -> None:
        """The lock goes with the next message."""
        engine = queued._engine
        try:
            run(lambda: engine.keep(queued, engine.now() + self.serverlock_queued + delay, is_long=False))
        except LockError as error:
            log.warning("%s: others may be queued before it is retried: %s", self.name, error)


class OncePerPeriod(Locked):
    """Once per period."""

    abstract = True
    serverlock_once: ClassVar[dict[str, Any]]

    def _serverlock_run(self, args: Any, kwargs: Any) -> Any:
        ticks = self.serverlock_locks.once(self._serverlock_key(args, kwargs), **self.serverlock_once)
        outcome = ticks.run(lambda held: self._serverlock_body(held, args, kwargs))
        if outcome.outcome == "elsewhere":
            raise self._serverlock_drop("it runs once per period, and has run or is running")
        return outcome.value


def _queued(key: str, lease: Duration, task_id: str) -> Request:
    """The lock of a message. Its owner tells operators which one."""
    return request_of([f"{key}:queued"], lease, owner=re.sub("[^!-~]", "?", f"celery:{task_id}")[:128])


def _delay(countdown: Any = None, eta: Any = None) -> float:
    """The seconds until then: Celery gives a number of seconds or a time."""
    if isinstance(countdown, datetime):
        countdown, eta = None, countdown
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    if eta is not None:
        countdown = (eta - datetime.now(eta.tzinfo or UTC).replace(tzinfo=eta.tzinfo)).total_seconds()
    return max(0.0, float(countdown or 0.0))
