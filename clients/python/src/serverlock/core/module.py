"""Whether the server has the module, and so how locks are requested: with LOCK.*, or with the script."""

import threading

from ..errors import LockUnavailable
from .clock import Clock
from .commands import Commands
from .hold import Grant
from .options import Options
from .request import Request
from .script import Lua, Script
from .way import Way
from .wire import ConnectionLost, ReplyError, Wire

ASK_AGAIN = 5.0
# For this long after a denial, queues are not tried again for a user without permission to use them.
DENIAL_VALID_FOR = 60.0


class Module:
    def __init__(self, now: Clock, wire: Wire, options: Options) -> None:
        self._now, self._options = now, options
        self._lua = Lua(now, wire, options.timeout)
        self.commands = Commands()
        self._script, self._alone = Script(self._lua), Script(self._lua, alone=True)
        self._mutex = threading.Lock()
        self._missing_until = self._denied_until = 0.0

    @property
    def is_missing(self) -> bool:
        """Whether LOCK.* was unknown to the server when last tried."""
        return self._missing_until > 0

    def way(self, request: Request) -> Way:
        """How the next copy of an attempt asks. Raises LockUnavailable if only the module can do it."""
        if self._asks():
            return self.commands
        if request.needs_module is not None:
            raise LockUnavailable(request.name, request.needs_module)
        return self.script(request)

    def script(self, request: Request) -> Script:
        return self._alone if request.is_plain and self._now() < self._denied_until else self._script

    def polling(self, request: Request) -> Script:
        """For an attempt that cannot be notified. An attempt that does not queue never overtakes those that do."""
        return self._alone if request.is_plain else self._script

    def worked(self, way: Way) -> None:
        """Call this after a reply. If it was to LOCK.*, attempts that wait with the script switch to the module."""
        if not way.is_module:
            self._lua.is_loaded = True
        elif self._missing_until:
            self._missing_until = 0.0

    def instead(self, request: Request, way: Way, error: ReplyError | ConnectionLost) -> Way | None:
        """How to send a command again after this error: the module or the script is gone, or a queue cannot be used.

        None: there is no other way. The key's value is the same for all ways.
        """
        if not isinstance(error, ReplyError):
            return None
        if way.is_module:
            if not error.is_unknown_command:
                self.worked(way)  # an error from the module
                return None
            if not self._options.portable:
                return None
            self._missed(error)
            return self.script(request) if request.needs_module is None else None
        if error.code == "NOSCRIPT":
            self._lua.is_loaded = False
            return way
        if error.code in ("NOPERM", "TRYAGAIN") and way is self._script and way.queues(request) and request.is_plain:
            if error.code == "NOPERM":
                self._denied_until = self._now() + DENIAL_VALID_FOR
            return self._alone
        if error.code == "NOPERM" and way is self._alone:
            self._denied_until = 0.0  # the queue was not the cause
        return None

    def way_of(self, request: Request, grant: Grant) -> Way:
        """How to send a hold's command."""
        return self.script(request) if grant.portable else self.commands

    def instead_of(self, request: Request, grant: Grant, way: Way, error: ReplyError | ConnectionLost) -> Way | None:
        """Like `instead`, for a hold's command. The hold's next commands go the same way."""
        instead = self.instead(request, way, error)
        if instead is not None:
            grant.portable = not instead.is_module
        return instead

    def _asks(self) -> bool:
        """Whether to try LOCK.*. If the module was missing, one attempt tries again every five seconds."""
        if self._missing_until:
            with self._mutex:
                if self._now() < self._missing_until:
                    return False
                self._missing_until = self._now() + ASK_AGAIN
        return True

    def _missed(self, error: ReplyError) -> None:
        with self._mutex:
            warns, self._options.warn_without_module = self._options.warn_without_module, False
            self._missing_until = self._now() + ASK_AGAIN
        if warns:
            self._options.log.warning(
                "the server has no LOCK.*: locks work through a script, in order of arrival; session, blocking waits "
                "and deadlock detection need the module: %s",
                error,
            )
