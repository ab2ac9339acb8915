"""Events of a manager: subclass Hooks, and override the methods you need."""

from .errors import LockError, LockLost


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
