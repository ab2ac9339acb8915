"""One attempt to get a lock. If it fails or is interrupted, it leaves nothing behind.

It first asks without waiting, through the application's own client. If somebody else has the lock, it waits:

* as the manager's only wait: by blocking, in pieces, on one connection (`blocking`)
* while others are waiting too, and without the module: in the queue, with NOTIFY (`waiting`)
* where the server or the user cannot use NOTIFY: by blocking on one of a few connections (`connections`)

The module can be loaded and unloaded at any time, so each copy of the request asks in whichever way works (`way`).
"""

from ..errors import LockError
from .asking import Asker
from .hold import Grant
from .pieces import wait_alone, wait_in_pieces
from .replicas import confirm
from .request import Request
from .resources import Resources
from .waiting import Waiter
from .way import Way
from .wire import ConnectionLost


class Attempt:
    def __init__(self, resources: Resources, request: Request) -> None:
        self._resources, self._request = resources, request
        self._asker = Asker(resources, request)

    @property
    def began(self) -> float:
        return self._asker.began

    @property
    def way(self) -> Way:
        """The way in which the newest copy asked."""
        return self._asker.way

    async def run(self) -> Grant:
        """Returns the grant, or raises the typed error. A caller that cannot use the grant calls `abandon`."""
        asker, request = self._asker, self._request
        try:
            if request.needs_connection:
                await asker.take_connection()
            grant = await self._get()
            await asker.look_again()
            if request.replicas or request.fsync:
                await confirm(asker.own_connection, request, self._resources.timeout)
            if request.session:
                grant.session = asker.session
            elif asker.connection is not None:
                await asker.give_back_connection()
            return grant
        except BaseException as error:
            await self.abandon(error)
            raise

    async def _get(self) -> Grant:
        asker, resources, request = self._asker, self._resources, self._request
        if resources.blocking.is_ready and (grant := await wait_alone(asker)) is not None:
            return grant
        # A session attempt waits by blocking, so that the server sees the wait on the connection that holds the locks.
        # Once an attempt is in the queue, a copy without RESULT would miss the result.
        is_queued = request.result and asker.waited
        asks_first = not (request.session or is_queued or (resources.notifies and resources.subscription.is_up))
        if asks_first or not request.wait:
            answer = await asker.ask(resources.module.way(request))
            if isinstance(answer, Grant):
                return answer
            if asker.left() <= 0:
                raise asker.timed_out() if request.wait else await asker.refused()
        while True:
            if (grant := await wait_alone(asker)) is not None:
                return grant
            if not request.session and (grant := await Waiter(asker).wait()) is not None:
                return grant
            if (grant := await wait_in_pieces(asker)) is not None:
                return grant

    # Giving up

    async def abandon(self, error: BaseException) -> None:
        """Releases everything, even if the caller is cancelled again in the meantime."""
        await self._resources.runtime.finish(lambda: self._abandon(error))

    async def _abandon(self, error: BaseException) -> None:
        # The lock may have been granted without the caller knowing.
        asker = self._asker
        try:
            if self._request.session:
                await self._resources.sessions.give_back(asker)
            elif asker.connection is not None:
                # The next caller must not read a pending reply.
                if not isinstance(error, LockError):
                    await asker.connection.close()
                await asker.give_back_connection()
        finally:  # the caller may be interrupted again
            if asker.is_known:
                is_reachable = not isinstance(error.__cause__, (ConnectionLost, OSError))
                await asker.cancel(is_reachable)
