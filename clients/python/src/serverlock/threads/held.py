"""A held lock, for threads."""

import os
from types import TracebackType

from ..core.engine import BoundHold
from ..core.request import Duration, Key, seconds_of
from ..core.wire import Reply
from .runtime import run


class Held(BoundHold):
    """A held lock. Any thread may check, extend or release it."""

    def release(self) -> bool:
        """Releases the lock. Returns whether it was held to the end."""
        return run(lambda: self._engine.release(self))

    def extend(self, lease: Duration | None = None) -> None:
        """Sets a new lease, counted from now. Renewal does this automatically, with the lock's lease."""
        seconds = None if lease is None else seconds_of(lease, "lease", self.key, 0.001)
        run(lambda: self._engine.extend(self, seconds))

    def verify(self) -> float:
        """Asks the server whether the lock is held. Returns the seconds left, or raises LockLost."""
        return run(lambda: self._engine.verify(self))

    def fenced(self, command: str, key: Key, *args: str | bytes | int) -> Reply:
        """Runs one command on the lock's server if the lock is held there at that moment; otherwise raises LockLost.

        In a cluster, `key` must be in the lock's slot.
        """
        return run(lambda: self._engine.fenced(self, (command, key, *args)))

    def __enter__(self) -> "Held":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self, error)

    def _finish(self, error: BaseException | None) -> bool:
        """Ends the hold at the end of its scope. Returns whether it was held to the end."""
        return run(lambda: self._engine.release(self, entirely=True))


def leave(held: Held, error: BaseException | None) -> None:
    """Ends a scope. The body's exception takes precedence over a loss."""
    if held._pid != os.getpid() or held._ended is not None:
        return
    try:
        in_time = held._finish(error)
    except Exception:
        if error is None:
            raise
        return
    if not in_time and error is None:
        raise held._lost or held._released_late()
