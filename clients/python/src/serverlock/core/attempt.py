"""One attempt to get a lock. If it fails or is interrupted, it leaves nothing behind.

It first asks without a wait, over the application's own client. If somebody else has the lock, it waits in the queue:

* as the only wait of the manager: by blocking, in pieces, on one connection (`blocking`)
* while others wait too: by NOTIFY (`subscription`)
* where the server or the user cannot NOTIFY: by blocking on one of a few connections (`connections`)
* without the module: by polling with the portable script
"""

import random
import secrets

from ..errors import LockError, LockMisuse, LockTimeout, LockUnavailable
from . import kinds
from .clock import now
from .hold import Grant, Predecessor
from .replicas import confirm
from .request import TEN_YEARS, Request
from .resources import Resources
from .subscription import News
from .wire import Connection, ConnectionLost, Reply, ReplyError, Words

PIECE = 5.0
LONE_PIECE = 2.0
SHORT_PIECE = 1.0
RESEND = 5.0
RESEND_DOWN = 1.0
# A server whose clock runs a little ahead ends a wait a little early.
SLACK = 0.1


class NoNotify(Exception):
    """This server does not know NOTIFY, or this user is not allowed to use it."""


class Attempt:
    def __init__(self, resources: Resources, request: Request) -> None:
        self._resources, self._request = resources, request
        self.id = str(secrets.randbits(59) + 1)
        self.began = now()
        self._deadline = self.began + request.wait
        self._tries = 0
        self._connection: Connection | None = None
        self._is_pooled = self._is_alone = False
        self._uses_connection = request.needs_connection
        self._may_wait = False  # the server may know of it
        self._waited = False
        self._is_portable = False

    async def run(self) -> Grant:
        """Returns the grant, or raises the typed error. A caller that cannot use the grant calls `abandon`."""
        try:
            if self._request.needs_connection:
                await self._take_connection()
            grant = await self._get()
            if self._request.replicas or self._request.fsync:
                await confirm(self._connection, self._request, self._resources.timeout)
            if self._request.session:
                grant.connection, self._connection = self._connection, None
            elif self._connection is not None:
                await self._give_back_connection()
            return grant
        except BaseException as error:
            await self.abandon(error)
            raise

    async def _get(self) -> Grant:
        """By LOCK.*, or by script while the module is not loaded. That can change at any time."""
        asks = self._resources.module.asks()
        while True:
            if asks:
                try:
                    self._is_portable = False
                    return await self._by_commands()
                except ReplyError as error:
                    if not error.is_unknown_command:
                        raise
                    self._resources.module.missed(error)
            grant = await self._poll()
            if grant is not None:
                return grant
            asks = True

    async def _by_commands(self) -> Grant:
        resources, request = self._resources, self._request
        if resources.blocking.is_ready and (grant := await self._alone()) is not None:
            return grant
        if request.wait and resources.notifies and resources.subscription.is_up:
            try:
                return await self._by_notify()
            except NoNotify:
                pass
        grant = await self._ask(0, None)
        if grant is not None:
            return grant
        if self._left() <= 0:
            self._may_wait = False  # it has no place in the queue
            raise self._timed_out() if request.wait else kinds.refused(request.name)
        if (grant := await self._alone()) is not None:
            return grant
        if resources.notifies:
            try:
                return await self._by_notify()
            except NoNotify:
                pass
        grant = await self._by_blocking()
        if grant is not None:
            return grant
        raise self._timed_out()

    def _check_open(self) -> None:
        if self._resources.is_closed:
            raise LockMisuse(self._request.name, "its manager is closed")

    def _left(self) -> float:
        return self._deadline - now()

    def _left_ms(self) -> int:
        return max(1, round(min(self._left(), TEN_YEARS) * 1000))

    # Asking

    async def _ask(self, wait_ms: int, channel: str | None, timeout: float = 0.0) -> Grant | None:
        """Sends the ACQUIRE, and again after errors that are retried. None: nil. Raises `Waiting` for WAITING."""
        while True:
            sent = now()
            words = self._request.acquire(self.id, wait_ms, channel)
            try:
                reply = await self._exchange(words, timeout or self._resources.timeout)
            except (ReplyError, ConnectionLost) as error:
                if channel is not None and not self._resources.notify_works and _is_refusal(error):
                    self._resources.notifies = False
                    raise NoNotify from error
                await self._pause_after(error)
                if wait_ms:
                    wait_ms = min(wait_ms, self._left_ms())
                continue
            self._tries = 0
            return self._granted(reply, sent)

    def _granted(self, reply: Reply, sent: float) -> Grant | None:
        if not self._is_portable:
            self._resources.module.found()
        if reply is None:
            return None
        if isinstance(reply, (bytes, str)) and reply in (b"WAITING", "WAITING"):
            self._waited = self._resources.notify_works = True
            raise Waiting
        if isinstance(reply, int) and reply > 0:
            return Grant(reply, sent, None, self._is_portable)
        if isinstance(reply, list) and len(reply) == 4 and isinstance(reply[0], int):
            return Grant(reply[0], sent, _predecessor(reply), self._is_portable)
        raise kinds.typed(ReplyError("ERR", f"unexpected reply {reply!r}"), self._request.name)

    async def _exchange(self, words: Words, timeout: float) -> Reply:
        self._check_open()
        if self._uses_connection and (self._connection is None or not self._connection.is_open):
            await self._take_connection()
        self._may_wait = True
        if self._connection is not None:
            return await self._connection.call(words, timeout)
        return await self._resources.wire.call(self._request.key, words, timeout)

    async def _pause_after(self, error: ReplyError | ConnectionLost) -> None:
        """Pauses before the next copy, or raises the typed error if there is none."""
        self._check_open()
        self._tries += 1
        name = self._request.name
        if isinstance(error, ReplyError) and error.is_unknown_command:
            raise error
        if self._connection is not None:  # the key may have moved to another server
            await self._connection.close()
        if self._resources.wire.is_cluster and (self._uses_connection or isinstance(error, ConnectionLost)):
            await self._resources.wire.refresh()
        if not kinds.is_retried(error):
            if isinstance(error, ReplyError) and not self._waited and self._tries == 1:
                self._may_wait = False  # an error reply changes nothing on the server
            raise kinds.typed(error, name)
        if self._left() <= 0 and self._tries >= 2:
            raise kinds.typed(error, name, now() - self.began if self._request.wait else None)
        pause = min(0.5, 0.01 * 2 ** min(self._tries, 6)) * random.uniform(0.5, 1)
        await self._resources.runtime.sleep(max(0.0, min(pause, self._left())) if self._request.wait else 0.01)

    # Waiting by NOTIFY

    async def _by_notify(self) -> Grant:
        subscription, message = self._resources.subscription, None
        await self._resources.blocking.end()
        try:
            news = subscription.register(self.id, self._request.key)
            if not await subscription.ready(news, min(RESEND_DOWN, self._left())) and subscription.refusal is not None:
                self._resources.notifies = False
                raise NoNotify
            while self._left() > 0:
                news.forget()
                news.again_at = float("inf")
                try:
                    grant = await self._ask(self._left_ms(), subscription.channel)
                except Waiting:
                    if message == "granted":
                        subscription.send_again()  # too late: the server skips this channel until it asks again
                    message = await self._message(news)
                    continue
                if grant is not None:
                    return grant
                self._may_wait = False
                if self._left() > SLACK:
                    raise kinds.refused(self._request.name)
            raise self._timed_out()
        finally:
            subscription.unregister(self.id)

    async def _message(self, news: News) -> str | None:
        """Returns when it is time to send the ACQUIRE again; the message that says so, if one does."""
        subscription = self._resources.subscription
        asked = now()
        while True:
            self._check_open()
            again = min(asked + (RESEND if subscription.is_up else RESEND_DOWN), news.again_at, self._deadline)
            if (left := again - now()) <= 0:
                return None
            kind = await news.wait(left)
            if kind == "cancelled":
                self._may_wait = False
                raise kinds.refused(self._request.name)
            if kind == "timeout" and self._left() <= SLACK:
                self._may_wait = False
                raise self._timed_out()
            if kind is not None:
                return kind

    def _timed_out(self) -> LockTimeout:
        return kinds.timed_out(self._request.name, now() - self.began)

    # Waiting by blocking

    async def _alone(self) -> Grant | None:
        """Waits as the only wait of the manager. None: there are others."""
        resources, request = self._resources, self._request
        if not request.wait or request.needs_connection or not resources.notifies or not resources.blocking.enter(self):
            return None
        try:
            self._is_alone = True
            return await self._by_blocking()
        finally:
            self._is_alone = False
            await resources.blocking.leave(self)

    async def _by_blocking(self) -> Grant | None:
        """In pieces: connections are few, and a lost reply is noticed after one piece. None: others wait too."""
        resources = self._resources
        while self._left() > 0 and not (self._is_alone and resources.blocking.is_over):
            self._uses_connection = True
            try:
                if self._connection is None:
                    await self._take_connection()
                piece = max(0.001, min(self._left(), self._piece()))
                began = now()
                grant = await self._ask(round(piece * 1000), None, piece + resources.timeout)
            except ConnectionLost as error:
                await self._pause_after(error)
                continue
            finally:
                self._uses_connection = self._request.needs_connection
                if not self._uses_connection:
                    await self._give_back_connection()
            self._waited = True
            if grant is not None:
                if await self._count_anew(grant):
                    return grant
            elif now() < began + piece - SLACK and self._left() > SLACK:
                self._may_wait = False  # LOCK.CANCEL, or CLIENT UNBLOCK
                raise kinds.refused(self._request.name)
        if self._left() <= 0:
            raise self._timed_out()
        return None

    def _piece(self) -> float:
        if self._is_alone:
            return LONE_PIECE
        return SHORT_PIECE if self._resources.connections.has_waiters else PIECE

    async def _count_anew(self, grant: Grant) -> bool:
        """The grant may be as old as the call. If the call took long, the lease counts from an EXTEND."""
        while now() >= grant.sent + self._request.lease / 3:
            sent = now()
            try:
                words = self._request.extend(grant.token, self._request.lease_ms)
                reply = await self._resources.wire.call(self._request.key, words, self._resources.timeout)
            except (ReplyError, ConnectionLost) as error:
                await self._pause_after(error)
                continue
            grant.sent = sent
            return bool(reply)
        return True

    # Polling, where the module is not loaded

    async def _poll(self) -> Grant | None:
        """None: the module may be loaded by now. The attempt goes on with the same ID."""
        request, resources = self._request, self._resources
        if request.needs_module is not None:
            raise LockUnavailable(request.name, f"{request.needs_module} needs the module, which is not loaded")
        self._is_portable = True
        while True:
            sent = now()
            try:
                self._may_wait = True
                reply = await resources.module.portable.acquire(request, self.id)
            except (ReplyError, ConnectionLost) as error:
                await self._pause_after(error)
                continue
            self._tries = 0
            grant = self._granted(reply, sent)
            if grant is not None:
                return grant
            self._may_wait = False
            if self._left() <= 0:
                raise self._timed_out() if request.wait else kinds.refused(request.name)
            self._check_open()
            await resources.runtime.sleep(min(random.uniform(0.05, 0.15), max(0.0, self._left())))
            if resources.module.asks():
                return None

    # Giving up

    async def _take_connection(self) -> None:
        """Takes a connection for the whole attempt: its own for a session, one of the few for WAIT."""
        key, resources = self._request.key, self._resources
        if self._connection is not None:
            await self._give_back_connection()
        if self._request.session:
            self._connection = await resources.wire.connect(key, resources.timeout)
            return
        if self._is_alone:
            self._connection = await resources.blocking.get(key)
            return
        self._connection = await resources.connections.take(
            self, key, self._left() if self._request.wait else resources.timeout
        )
        if self._connection is None:
            raise self._timed_out() if self._request.wait else ConnectionLost(TimeoutError("no connection came free"))
        self._is_pooled = True

    async def _give_back_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._is_pooled:
            self._is_pooled = False
            await self._resources.connections.give_back(self, connection)
        elif connection is not None and not self._is_alone:
            await connection.close()

    async def abandon(self, error: BaseException) -> None:
        """Gives everything back, even if the caller is cancelled again meanwhile."""
        await self._resources.runtime.finish(lambda: self._abandon(error))

    async def _abandon(self, error: BaseException) -> None:
        # The lock may have been granted without the caller knowing.
        try:
            if self._connection is not None:
                # The next caller must not read a reply that is still to come.
                if not isinstance(error, LockError):
                    await self._connection.close()
                await self._give_back_connection()
        finally:  # the caller may be interrupted again
            if self._may_wait:
                is_reachable = not isinstance(error.__cause__, (ConnectionLost, OSError))
                await self._cancel(is_reachable)

    async def _cancel(self, is_reachable: bool) -> None:
        """Cancels the attempt on the server: at once if possible, else in the background."""
        resources, request, id_, is_portable = self._resources, self._request, self.id, self._is_portable

        async def settle() -> None:
            if is_portable:
                await resources.module.portable.cancel(request, id_)
                return
            for key in request.keys:
                await resources.wire.call(key, ("LOCK.CANCEL", key, id_), resources.timeout)

        is_settled = False
        try:
            if is_reachable:
                await settle()
                is_settled = True
        except (ReplyError, ConnectionLost):
            pass
        finally:  # the caller may be interrupted again
            if not is_settled:
                resources.debts.owe(now() + max(request.lease + 2, resources.timeout), settle)


class Waiting(Exception):
    """The attempt waits in the queue."""


def _is_refusal(error: ReplyError | ConnectionLost) -> bool:
    return isinstance(error, ReplyError) and error.code in ("ERR", "NOPERM") and not error.is_unknown_command


def _predecessor(details: list[Reply]) -> Predecessor | None:
    """From token, overdue-ms, previous token, previous owner. None: the lock was free."""
    if details[1] is None:
        return None
    owner = details[3].decode("ascii", "replace") if isinstance(details[3], bytes) else details[3]
    return Predecessor(details[1] / 1000, details[2], owner)
