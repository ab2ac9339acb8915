"""The errors of this package: one type per kind, with the lock's key in the text and in `key`."""


class LockError(Exception):
    """Base class of all lock errors. `__cause__` is the library's error, if it raised one."""

    code = "error"  # the kind, as docs/CLIENT_SPEC.md names it; it is never renamed

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"the lock {key}: {text}" if key else text)
        self.key, self._text = key, text

    def __reduce__(self) -> "tuple[type[LockError], tuple[str, str]]":
        # By default, an exception is copied and pickled with its text alone, which loses the key.
        return type(self), (self.key, self._text)


class LockRefused(LockError):
    """Somebody else has the lock, or an operator cancelled the wait."""

    code = "refused"


class LockTimeout(LockRefused, TimeoutError):
    """Somebody else still had the lock when the wait ended."""

    code = "timeout"


class LockLost(LockError):
    """The lock is no longer held, or no longer certain to be held."""

    code = "lost"


class LockDeadlock(LockError):
    """This wait would deadlock: clients would wait for each other's session locks in a cycle."""

    code = "deadlock"


class LockUnavailable(LockError):
    """The server cannot grant this now (GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM), or lacks the module."""

    code = "unavailable"


class LockDenied(LockError):
    """This user is not allowed to use the command or the key."""

    code = "denied"


class LockNoServer(LockError):
    """No connection to a server, or no reply in time."""

    code = "no_server"


class LockBadArgument(LockError, ValueError):
    """An argument is wrong, or the key holds something that is not a lock."""

    code = "argument"


class LockMisuse(LockError, RuntimeError):
    """A lock acquired again within its own scope, a closed manager, or a lock released twice."""

    code = "misuse"
