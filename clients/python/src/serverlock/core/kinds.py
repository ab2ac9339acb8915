"""Which type a server or connection error becomes, and whether it is retried. Pure."""

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

# The server or its role is changing, or it cannot grant now: the same command may succeed later.
RETRIED = {
    "UNBLOCKED",
    "MOVED",
    "ASK",
    "READONLY",
    "LOADING",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
    "BUSY",
    "MISCONF",
    "OOM",
    "NOREPLICAS",
    "GRACE",
    "BUSYLOCKS",
}
# Exceptions: these do not go away on their own.
LASTING = ("GRACE lease", "BUSYLOCKS 64 waits")


def is_retried(error: ConnectionLost | ReplyError) -> bool:
    """Whether to try again while wait time remains."""
    if isinstance(error, ConnectionLost):
        return not error.final
    return error.code in RETRIED and not str(error).startswith(LASTING)


def typed(error: ConnectionLost | ReplyError, name: str, waited: float | None = None) -> LockError:
    """The error that users get. `waited`: how long the attempt took, if it had a wait."""
    result: LockError
    if isinstance(error, ConnectionLost):
        result = (LockDenied if error.final else LockNoServer)(name, str(error))
    elif error.code in RETRIED and waited is not None and is_retried(error):
        result = LockTimeout(name, f"not granted within {waited:.3g} s: {error}")
    elif error.code == "DEADLOCK":
        result = LockDeadlock(name, str(error))
    elif error.code in RETRIED or error.code == "CLOCK" or error.is_unknown_command:
        result = LockUnavailable(name, str(error))
    elif error.code in ("NOPERM", "NOAUTH", "WRONGPASS"):
        result = LockDenied(name, str(error))
    else:
        result = LockBadArgument(name, str(error))
    result.__cause__ = error.__cause__ or error
    return result


def refused(name: str, *, is_free: bool = False) -> LockRefused:
    """is_free: the lock was to be recovered, but somebody has released it."""
    why = "there is nothing to recover: the lock is free" if is_free else "somebody else has it"
    return LockRefused(name, why)


def timed_out(name: str, waited: float) -> LockTimeout:
    return LockTimeout(name, f"somebody else still had it after {waited:.3g} s")
