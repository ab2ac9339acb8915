"""Reports to the application's hooks. An error in a hook must not cost a lock."""

from collections.abc import Callable
from logging import Logger
from typing import Literal

from ..errors import LockError
from ..hooks import Attempt, Ended, Hooks
from .hold import Hold
from .request import Request
from .way import Way
from .wire import Runtime


class Reports:
    """Only built where there are hooks."""

    def __init__(self, hooks: Hooks, log: Logger, runtime: Runtime) -> None:
        self._hooks, self._log, self._runtime = hooks, log, runtime
        self._now = runtime.now

    def granted(self, hold: Hold, way: Way) -> None:
        request = hold._request
        self._call(self._hooks.granted, hold.key, hold.waited)
        self._call(self._hooks.attempted, Attempt(_keys(request), _operation(request, way), hold.waited, hold.token))

    def ungranted(self, request: Request, way: Way, waited: float, error: BaseException | None) -> None:
        """error: a LockError, or whatever interrupted the caller; None after another holder's result."""
        if isinstance(error, LockError):
            self._call(self._hooks.refused, request.name, waited, error)
        self._call(self._hooks.attempted, Attempt(_keys(request), _operation(request, way), waited, None, error))

    def lost(self, hold: Hold) -> None:
        held, error = self._now() - hold._granted, hold._lost
        ended = self._ended(hold, "lost")

        def report() -> None:
            self._call(self._hooks.lost, hold.key, held, error)
            self._call(self._hooks.ended, ended)

        self._runtime.call_back(report)

    def released(self, hold: Hold, in_time: bool) -> None:
        self._call(self._hooks.released, hold.key, self._now() - hold._granted, in_time)
        self._call(self._hooks.ended, self._ended(hold, "released" if in_time else "lost"))

    def expiring(self, hold: Hold) -> Callable[[], None]:
        """Call the result if nobody refers to the hold, and it has not ended."""
        keys, token, granted = _keys(hold._request), hold.token, hold._granted
        return lambda: self._call(self._hooks.ended, Ended(keys, token, self._now() - granted, "expired"))

    def _ended(self, hold: Hold, outcome: Literal["released", "lost"]) -> Ended:
        return Ended(_keys(hold._request), hold.token, self._now() - hold._granted, outcome)

    def _call(self, hook: Callable[..., None], *args: object) -> None:
        try:
            hook(*args)
        except Exception:
            self._log.exception("a hook failed")


def _keys(request: Request) -> tuple[str, ...]:
    return tuple(key.decode(errors="backslashreplace") for key in request.keys)


def _operation(request: Request, way: Way) -> str:
    if way.is_module:
        return request.command
    return "lock_acquire_all" if request.many else "lock_recover" if request.recover else "lock_acquire"
