"""The callers that are known to hold locks: in scopes, and with the `reentrant` option."""

import threading
import weakref
from collections.abc import Hashable, Sequence
from types import FrameType
from typing import TypeAlias, TypeVar

from ..errors import LockMisuse
from .hold import Hold
from .request import Request
from .weak import FEW
from .wire import Runtime

# None: a scope without a hold.
H = TypeVar("H", bound=Hold | None)
Entered: TypeAlias = tuple[FrameType, Hashable, H]


class Scopes:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._by_caller: dict[Hashable, list[weakref.ref[Hold]]] = {}
        self._sweep_at = FEW

    def __len__(self) -> int:
        return len(self._living())

    def __bool__(self) -> bool:
        """False if no caller is known: each acquisition asks, so this looks at no hold."""
        return bool(self._by_caller)

    def _living(self) -> dict[Hashable, list[weakref.ref[Hold]]]:
        """Without callers whose holds are gone: a signal handler can end a caller before it leaves."""
        return {caller: refs for caller, refs in tuple(self._by_caller.items()) if _living(refs)}

    def held(self, request: Request) -> Hold | None:
        """The hold that this caller gets again. Raises LockMisuse if it holds the lock, but must not get it again."""
        for ref in self._by_caller.get(self._runtime.caller(), ()):
            hold = ref()
            if hold is None or not hold.is_held or not set(hold._request.keys) & set(request.keys):
                continue
            if request.reentrant and hold._is_reentrant and request.is_same_lock(hold._request):
                return hold
            if hold._request.is_exclusive or request.is_exclusive:
                raise LockMisuse(request.name, "this caller already holds it, in a scope around this call")
        return None

    def enter(self, hold: Hold) -> Hashable:
        """This caller holds the lock until `leave`. Returns the caller."""
        caller = self._runtime.caller()
        with self._mutex:
            if len(self._by_caller) >= self._sweep_at:
                self._by_caller = self._living()
                self._sweep_at = max(FEW, 2 * len(self._by_caller))
            self._by_caller[caller] = [*_living(self._by_caller.get(caller, ())), weakref.ref(hold)]
        return caller

    def leave(self, hold: Hold | None, caller: Hashable) -> None:
        """None: a hold that was dropped."""
        with self._mutex:
            rest = [ref for ref in self._by_caller.get(caller, ()) if ref() not in (hold, None)]
            if rest:
                self._by_caller[caller] = rest
            else:
                self._by_caller.pop(caller, None)


def _living(refs: Sequence[weakref.ref[Hold]]) -> list[weakref.ref[Hold]]:
    return [ref for ref in refs if ref() is not None]


def left_by(entered: Sequence[Entered[H]], frame: FrameType, caller: Hashable) -> Entered[H] | None:
    """The scope that is ending: this `with`'s, else this caller's last one, else the only one there is.

    Frameworks may leave a scope in a different thread or task than they entered it in, while others use the same Lock.
    """
    mine = [entry for entry in entered if entry[0] is frame] or [entry for entry in entered if entry[1] is caller]
    return mine[-1] if mine else entered[0] if len(entered) == 1 else None
