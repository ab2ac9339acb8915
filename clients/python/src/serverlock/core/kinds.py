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
from .wire import ConnectionLost, ReplyError

# The server, or its part in the group, is changing, or grants nothing now: the same call may succeed later.
PASSING = {
    "UNBLOCKED", "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
    "BUSY", "MISCONF", "OOM", "NOREPLICAS", "GRACE", "BUSYLOCKS",
}
# Of these, what will not change by itself.
LASTING = ("GRACE lease", "BUSYLOCKS 64 waits")


def is_retried(error: ConnectionLost | ReplyError) -> bool:
    """Whether to try again while wait time remains."""
    if isinstance(error, ConnectionLost):
        return not error.final
    return error.code in PASSING and not str(error).startswith(LASTING)


def typed(error: ConnectionLost | ReplyError, name: str, waited: float | None = None) -> LockError:
    """The error as users get it. `waited`: for how long it was tried, if the attempt had time to wait."""
    made: LockError
    if isinstance(error, ConnectionLost):
        made = (LockDenied if error.final else LockNoServer)(name, str(error))
    elif error.code in PASSING and waited is not None and is_retried(error):
        made = LockTimeout(name, f"not granted within {waited:.3g} s: {error}")
    elif error.code == "DEADLOCK":
        made = LockDeadlock(name, str(error))
    elif error.code in PASSING or error.code == "CLOCK" or error.is_unknown_command:
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
