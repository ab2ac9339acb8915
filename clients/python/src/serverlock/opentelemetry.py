"""Traces and metrics of locks with OpenTelemetry: `Locks(client, hooks=Telemetry())`. Needs opentelemetry-api.

| span | kind | from, to | attributes besides the key |
|---|---|---|---|
| `lock.wait` | client | the call, its result | `db.system.name`, `db.operation.name`, `serverlock.outcome` |
| `lock.hold` | internal | the grant, its end | `serverlock.token`, `serverlock.outcome` |

The key is `serverlock.key`, or `serverlock.keys` if there are several. A failure sets `error.type` and the status; that
somebody else has the lock is not a failure. A loss sets the status, and is an event `lock.lost`.

| metric | kind, unit | attributes |
|---|---|---|
| `serverlock.wait.duration` | histogram, s | `serverlock.outcome` |
| `serverlock.hold.duration` | histogram, s | `serverlock.outcome` |
| `serverlock.losses` | counter, {loss} | |
| `serverlock.held` | up-down counter, {lock} | |
"""

import threading
import time
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, StatusCode

from . import __version__
from .errors import LockError, LockRefused
from .hooks import Attempt, Ended, Hooks

NAME = "serverlock"
# Seconds: the default ones suit milliseconds.
BOUNDARIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Telemetry(Hooks):
    """Hooks that export spans and metrics. Any number of managers may share them."""

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None, *, key_attribute: bool = False) -> None:
        """The default providers are the global ones.

        key_attribute: metrics have the key as an attribute. Leave it off if there can be any number of keys.
        """
        self._tracer: Any = trace.get_tracer(NAME, __version__, tracer_provider)
        meter: Any = metrics.get_meter(NAME, __version__, meter_provider)
        self._waited: Any = meter.create_histogram(
            "serverlock.wait.duration",
            "s",
            "How long attempts took",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._held_for: Any = meter.create_histogram(
            "serverlock.hold.duration",
            "s",
            "How long locks were held",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._losses: Any = meter.create_counter("serverlock.losses", "{loss}", "Locks that were lost while held")
        self._held: Any = meter.create_up_down_counter("serverlock.held", "{lock}", "Locks that are held")
        self._has_key = key_attribute
        self._mutex = threading.Lock()
        self._holds: dict[tuple[tuple[str, ...], int], Any] = {}  # the spans

    def attempted(self, attempt: Attempt) -> None:
        end, error = time.time_ns(), attempt.error
        if isinstance(error, LockError):
            outcome = error.code
        elif error is None:
            outcome = "result" if attempt.token is None else "granted"
        else:
            outcome = "cancelled"
        attributes = {
            **_key(attempt.keys),
            "db.system.name": "redis",
            "db.operation.name": attempt.operation,
            "serverlock.outcome": outcome,
        }
        start = end - round(attempt.waited * 1e9)
        span = self._tracer.start_span("lock.wait", kind=SpanKind.CLIENT, attributes=attributes, start_time=start)
        if isinstance(error, LockError) and not isinstance(error, LockRefused):
            span.set_attribute("error.type", outcome)
            span.set_status(StatusCode.ERROR, str(error))
        span.end(end)
        self._waited.record(attempt.waited, self._measured(attempt.keys, outcome))
        if attempt.token is not None:
            self._begin(attempt.keys, attempt.token, end)

    def ended(self, hold: Ended) -> None:
        with self._mutex:
            span = self._holds.pop((hold.keys, hold.token), None)
        if span is None:  # a lost hold that is released
            return
        span.set_attribute("serverlock.outcome", hold.outcome)
        if hold.outcome == "lost":
            span.add_event("lock.lost")
            span.set_attribute("error.type", hold.outcome)
            span.set_status(StatusCode.ERROR, "the lock was lost")
            self._losses.add(1, self._measured(hold.keys))
        self._held_for.record(hold.held, self._measured(hold.keys, hold.outcome))
        self._held.add(-1, self._measured(hold.keys))
        span.end()  # last: what waits for the span finds the metrics

    def _begin(self, keys: tuple[str, ...], token: int, start: int) -> None:
        """The span's parent is the caller's, which is current here."""
        attributes = {**_key(keys), "serverlock.token": token}
        span = self._tracer.start_span("lock.hold", kind=SpanKind.INTERNAL, attributes=attributes, start_time=start)
        with self._mutex:
            self._holds[keys, token] = span
        self._held.add(1, self._measured(keys))

    def _measured(self, keys: tuple[str, ...], outcome: str | None = None) -> dict[str, Any]:
        attributes: dict[str, Any] = _key(keys) if self._has_key else {}
        if outcome is not None:
            attributes["serverlock.outcome"] = outcome
        return attributes


def _key(keys: tuple[str, ...]) -> dict[str, Any]:
    return {"serverlock.key": keys[0]} if len(keys) == 1 else {"serverlock.keys": keys}
