"""What a manager tells its application, besides errors: subclass Hooks, and override what you want to know."""

from .errors import LockError, LockLost


class Hooks:
    """Called from the thread or task that did it, and must not block; `lost` is called from a thread of its own."""

    def granted(self, key: str, waited: float) -> None:
        """A lock was granted after so many seconds."""

    def refused(self, key: str, waited: float, error: LockError) -> None:
        """An attempt ended without the lock."""

    def lost(self, key: str, held: float, error: LockLost | None) -> None:
        """A lock was lost after so many seconds."""

    def released(self, key: str, held: float, in_time: bool) -> None:
        """A lock was released after so many seconds; in_time: it was held to the end."""
