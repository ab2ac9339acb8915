"""One attempt at a lock: what is sent, and what the answers mean. Knows no connection."""

import secrets
import warnings

import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

OURS = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('{}', KEYS[1]{}) end "
PLAIN = {
    "ACQUIRE": "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end "
    + OURS.format("PEXPIRE", ", ARGV[2]"),
    "EXTEND": OURS.format("PEXPIRE", ", ARGV[2]") + "return 0",
    "RELEASE": OURS.format("DEL", "") + "return 0",
    "CANCEL": OURS.format("DEL", "") + "return 0",
}


class LockError(Exception):
    """What is raised here. Where the server cannot be reached, it is what redis-py raises."""


class LockRefused(LockError):
    """Somebody else has the lock, after the wait if any; or the wait was cancelled."""


class LockLost(LockError):
    """The lock is not held any more, or not for certain."""


class LockUnsupported(LockError):
    """The server does not know LOCK.*, and the fallback is off."""


class LockReply(LockError):
    """The server answered what no LOCK.* command answers."""


def is_broken(error):
    """Whether to connect anew, perhaps to a new master."""
    return isinstance(error, (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError))


def may_pass(error):
    """Whether the same command may succeed later: the server, or its part as master, is changing."""
    if isinstance(error, redis.AuthenticationError):
        return False
    return is_broken(error) or str(error).startswith(("UNBLOCKED", "NOREPLICAS"))


def own_connection(client, timeout):
    """A connection outside the pool of the client, made as those in it are, Sentinel included; it tries once."""
    pool = client.connection_pool
    retry = (AsyncRetry if isinstance(client, AsyncRedis) else Retry)(NoBackoff(), 0)
    own = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry}
    return pool.connection_class(**{**pool.connection_kwargs, **own})


class Attempt:
    """The ID is chosen when it begins, once, and sent with each of its commands."""

    def __init__(self, key, lease, owner, session, fallback):
        self.key, self._lease_ms, self._fallback = key, round(lease * 1000), fallback
        self._options = (["OWNER", owner] if owner else []) + (["SESSION"] if session else [])
        self.begin()

    def begin(self):
        """Begins anew."""
        self.token, self.is_plain, self._id = None, False, str(secrets.randbelow(10**18) + 1)

    def command(self, name, piece=0):
        """The words of LOCK.<name>, or of the script that stands for it."""
        if self.is_plain:  # letters in the value: to the module this is no timestamp, so never expired
            return ["EVAL", PLAIN[name], 1, self.key, f"id:{self._id}", self._lease_ms]
        return [f"LOCK.{name}", self.key] + {
            "ACQUIRE": ["PX", self._lease_ms, "WAIT", round(piece * 1000), "ID", self._id, *self._options],
            "EXTEND": [self.token, "PX", self._lease_ms],
            "RELEASE": [self.token],
            "CANCEL": [self._id],
        }[name]

    def read(self, name, reply):
        """The reply if it is one of this command: nil or an integer; keeps the token."""
        if name == "ACQUIRE":
            if reply is None or type(reply) is int and reply > 0:
                self.token = None if self.is_plain else reply
                return reply
        elif type(reply) is int and reply in (-1, 0, 1):
            return reply
        raise LockReply(f"LOCK.{name} of the lock {self.key!r} was answered {reply!r}")

    def fall_back(self, name, error):
        """Raises unless the command can be sent again, as its fallback."""
        if self.is_plain or "unknown command" not in str(error):
            raise error
        if name != "ACQUIRE" or not self._fallback:
            raise LockUnsupported(f"the lock {self.key!r}: the server does not know LOCK.*: {error}") from error
        warnings.warn(f"the lock {self.key!r} is held by SET NX PX, without order and token: {error}", stacklevel=2)
        self.is_plain = True

    def lost(self, why, cause=None):
        """The error that says so."""
        error = LockLost(f"the lock {self.key!r} is lost: {why}" + (f": {cause}" if cause else ""))
        error.__cause__ = cause
        return error

    def refused(self):
        """The error that says so."""
        return LockRefused(f"somebody else has the lock {self.key!r}")
