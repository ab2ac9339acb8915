"""Events of a manager: subclass Hooks, and override the methods you need."""

from dataclasses import dataclass
from typing import Literal

from .errors import LockError, LockLost


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that has ended. operation: the command that was sent last, or the script's function.

    token: None without a grant. error: a LockError, or the exception that interrupted the caller. Both are None if a
    `single_flight` got another holder's result.
    """

    keys: tuple[str, ...]
    operation: str
    waited: float
    token: int | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A hold that has ended. "expired": nobody refers to it, so nobody renews or releases its lock.

    A hold that was lost, and is released later, is reported twice.
    """

    keys: tuple[str, ...]
    token: int
    held: float
    outcome: Literal["released", "lost", "expired"]


class Hooks:
    """Called from the thread or task that caused the event, so they must not block; `lost` runs in its own."""

    def granted(self, key: str, waited: float) -> None:
        """A lock was granted. waited: seconds."""

    def refused(self, key: str, waited: float, error: LockError) -> None:
        """An attempt ended without the lock."""

    def lost(self, key: str, held: float, error: LockLost | None) -> None:
        """A lock was lost. held: seconds."""

    def released(self, key: str, held: float, in_time: bool) -> None:
        """A lock was released. held: seconds; in_time: it was held to the end."""

    # For instrumentation, which needs to know more than most applications.

    def attempted(self, attempt: Attempt) -> None:
        """An attempt ended: with the lock, without it, or with a result. Called in the caller's thread or task."""

    def ended(self, hold: Ended) -> None:
        """A hold ended. Called anywhere."""
