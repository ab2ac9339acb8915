"""Decides, by the holder's own clock, how long a hold lasts. Pure: the caller passes the time. Times are in seconds."""

import math


class Lease:
    """For its holder, a lease ends a tenth (`margin`) early, whatever the network does."""

    def __init__(self, sent: float, seconds: float, renewed_until: float = math.inf, margin: float = 0.1) -> None:
        """sent: when the granted request was sent."""
        self.sent, self.seconds = sent, seconds
        self._margin = margin
        self._renewed_until = renewed_until
        self._in_flight = 0  # EXTENDs
        self._earliest = math.inf  # the earliest end of the leases in flight

    @property
    def ends_at(self) -> float:
        """When the server may grant the lock to others."""
        return self.sent + self.seconds

    @property
    def lost_at(self) -> float:
        return self.sent + self.seconds * (1 - self._margin)

    @property
    def renew_at(self) -> float:
        return self.sent + self.seconds / 3

    @property
    def is_changing(self) -> bool:
        """Whether an EXTEND is in flight."""
        return self._in_flight > 0

    def may_renew(self, now: float) -> bool:
        return now < self._renewed_until

    def extending(self, sent: float, seconds: float) -> None:
        """Call this when an EXTEND is sent. Its reply may be lost, so an earlier end takes effect at once.

        The order in which the server runs several in flight is unknown, so the earliest end applies.
        """
        self._earliest = min(sent + seconds, self._earliest if self._in_flight else math.inf)
        self._in_flight += 1
        if sent + seconds < self.ends_at:
            self.sent, self.seconds = sent, seconds

    def extended(self, sent: float, seconds: float, *, counts: bool) -> None:
        """Call this when that EXTEND is answered, or fails. counts: it was confirmed, and the lock is not lost."""
        self._in_flight -= 1
        if counts:
            self.sent, self.seconds = sent, min(sent + seconds, self._earliest) - sent
