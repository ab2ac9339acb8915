"""What an error of the server or the connection means for a lock: which type it becomes, and what may pass. Pure."""

from ..errors import (
    LockBadArgument,
    LockDeadlock,
    LockDenied,
    LockError,
    LockNoServer,
    LockRefused,
    LockTimeout,
    LockUnavailable,
)
from .wire import Broken, Said

# The server, or its part in the group, is changing: the same call may succeed later.
PASSING = {"UNBLOCKED", "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN"}
# The server grants nothing now.
GUARDED = {"GRACE", "NOREPLICAS"}
UNAVAILABLE = GUARDED | {"BUSYLOCKS", "CLOCK", "OOM"}


def may_pass(error: Broken | Said, stood_in_line: bool) -> bool:
    """Whether to try again while wait time remains."""
    if isinstance(error, Broken):
        return not error.final
    return error.code in PASSING or stood_in_line and error.code in GUARDED


def typed(error: Broken | Said, name: str, waited: float = 0.0) -> LockError:
    """The error as users get it."""
    made: LockError
    if isinstance(error, Broken):
        made = (LockDenied if error.final else LockNoServer)(name, str(error))
    elif error.code in PASSING:
        made = LockTimeout(name, f"not granted within {waited:.3g} s: {error}")
    elif error.code == "DEADLOCK":
        made = LockDeadlock(name, str(error))
    elif error.code in UNAVAILABLE or error.is_unknown_command:
        made = LockUnavailable(name, str(error))
    elif error.code in ("NOPERM", "NOAUTH", "WRONGPASS"):
        made = LockDenied(name, str(error))
    else:
        made = LockBadArgument(name, str(error))
    made.__cause__ = error.__cause__ or error
    return made


def refused(name: str) -> LockRefused:
    return LockRefused(name, "somebody else has it")


def timed_out(name: str, waited: float) -> LockTimeout:
    return LockTimeout(name, f"somebody else still had it after {waited:.3g} s")
