"""Locks as OpenTelemetry metrics: Locks(client, hooks=Telemetry()). Needs opentelemetry-api."""

from opentelemetry import metrics
from serverlock import Hooks, LockError, LockLost


class Telemetry(Hooks):
    """Keys are not among the attributes, because there can be any number of them."""

    def __init__(self) -> None:
        meter = metrics.get_meter("serverlock")
        self._waited = meter.create_histogram("lock.wait.duration", "s", "How long attempts took")
        self._held = meter.create_histogram("lock.hold.duration", "s", "How long locks were held, until their release")
        self._lost = meter.create_counter("lock.lost", description="Locks that were lost while they were held")

    def granted(self, key: str, waited: float) -> None:
        self._waited.record(waited, {"lock.outcome": "granted"})

    def refused(self, key: str, waited: float, error: LockError) -> None:
        self._waited.record(waited, {"lock.outcome": type(error).__name__})

    def lost(self, key: str, held: float, error: LockLost | None) -> None:
        self._lost.add(1)

    def released(self, key: str, held: float, in_time: bool) -> None:
        self._held.record(held, {"lock.outcome": "in_time" if in_time else "too_late"})
