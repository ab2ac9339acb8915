"""Whether the server has the module, and the commands for a hold: LOCK.* with the module, scripts without it."""

import threading

from .clock import now
from .hold import Hold
from .options import Options
from .portable import Portable
from .request import Request
from .wire import ConnectionLost, ReplyError, Words

ASK_AGAIN = 5.0

FENCED = (
    "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end "
    "return {redis.call(unpack(ARGV, 2))}"
)


class Module:
    def __init__(self, portable: Portable, options: Options) -> None:
        self.portable = portable
        self._options = options
        self._mutex = threading.Lock()
        self._missing_until = 0.0

    @property
    def is_missing(self) -> bool:
        """Whether the server did not know LOCK.* a moment ago."""
        return now() < self._missing_until

    def asks(self) -> bool:
        """Whether an attempt should try LOCK.*. Where they were missing, one attempt does so every five seconds."""
        if self._missing_until:
            with self._mutex:
                if now() < self._missing_until:
                    return False
                self._missing_until = now() + ASK_AGAIN
        return True

    def found(self) -> None:
        """The server replied to LOCK.*, so polling attempts move over."""
        if self._missing_until:
            self._missing_until = 0.0

    def missed(self, error: ReplyError) -> None:
        """The server does not know LOCK.*. Raises the error if scripts are not allowed."""
        if not self._options.portable:
            raise error
        with self._mutex:
            warns, self._options.warn_without_module = self._options.warn_without_module, False
            self._missing_until = now() + ASK_AGAIN
        if warns:
            self._options.log.warning(
                "the server has no LOCK.*; locks work by script, without order among waiters: %s", error
            )

    def falls_back(self, hold: Hold, error: ReplyError | ConnectionLost) -> bool:
        """Whether to send the command of a hold again as a script: the module, or the script, was unloaded.

        The value of the key is the same for both.
        """
        if not isinstance(error, ReplyError):
            return False
        if error.code == "NOSCRIPT" and hold._portable:
            self.portable.missed()
            return True
        if error.is_unknown_command and not hold._portable:
            hold._portable = hold._request.needs_module is None and self._options.portable
            return hold._portable
        return False

    def extend(self, hold: Hold, lease_ms: int) -> Words:
        if hold._portable:
            return self.portable.extend(hold._request, hold.token, lease_ms)
        return hold._request.extend(hold.token, lease_ms)

    def check(self, hold: Hold, key: bytes) -> Words:
        return self.portable.check(hold._request, hold.token) if hold._portable else ("LOCK.CHECK", key, hold.token)

    def release(self, request: Request, token: int, portable: bool) -> Words:
        return self.portable.release(request, token) if portable else request.release(token)

    def fenced(self, hold: Hold, words: Words) -> Words:
        keys = (*hold._request.keys[:1], *words[1:2])
        script = self.portable.fenced if hold._portable else FENCED
        return ("EVAL", script, len(keys), *keys, hold.token, *words)
