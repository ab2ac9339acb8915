"""The errors of this package: one type for each kind, with the lock's key in the text and in `key`."""


class LockError(Exception):
    """Whatever goes wrong with a lock. The cause, if a library raised one, is `__cause__`."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"the lock {key}: {text}" if key else text)
        self.key = key


class LockRefused(LockError):
    """Somebody else has the lock; or an operator cancelled the wait."""


class LockTimeout(LockRefused):
    """Somebody else still had the lock when the wait ended."""


class LockLost(LockError):
    """The lock is not held any more, or not for certain."""


class LockDeadlock(LockError):
    """The wait would close a circle of clients that wait for each other's session locks."""


class LockUnavailable(LockError):
    """The server grants nothing now, or not this: GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM; or it lacks the module."""


class LockDenied(LockError):
    """The server does not allow this user the command or the key."""


class LockNoServer(LockError):
    """No connection to a server, or no reply in time."""


class LockBadArgument(LockError, ValueError):
    """An argument is wrong; or the key holds something that is no lock."""


class LockMisuse(LockError, RuntimeError):
    """The same lock again within its own scope, a closed manager, a lock released twice."""
