"""One attempt at a lock: sent, waited for, and given up without leaving anything behind.

It asks for the lock without waiting first, over the application's own client. Only if somebody else has it, the attempt
waits in the queue: alone by blocking in pieces on one connection, beside others by NOTIFY, else by blocking on one of a few connections,
else by polling with the portable script.
"""

import random
import secrets
from typing import TYPE_CHECKING, Any

from ..errors import LockError, LockMisuse, LockTimeout, LockUnavailable
from . import kinds
from .clock import now
from .hold import Grant, Predecessor
from .request import TEN_YEARS, Request
from .wire import ConnectionLost, Connection, ReplyError, Word

if TYPE_CHECKING:
    from .engine import Engine

PIECE = 5.0
LONE_PIECE = 2.0
SHORT_PIECE = 1.0
RESEND = 5.0
RESEND_DOWN = 1.0
# A server whose clock runs a little ahead ends a wait a little early.
SLACK = 0.1


class NoNotify(Exception):
    """This server or this user cannot wait by NOTIFY."""


class Attempt:
    def __init__(self, engine: "Engine", request: Request) -> None:
        self._engine, self._request = engine, request
        self.id = str(secrets.randbits(59) + 1)
        self.began = now()
        self._deadline = self.began + request.wait
        self._tries = 0
        self._connection: Connection | None = None
        self._is_pooled = self._is_alone = False
        self._uses_connection = request.needs_connection
        self._may_stand = False  # the server may know of it
        self._stood = False
        self._is_portable = False

    async def run(self) -> Grant:
        """The grant, or the typed error. Whoever cannot use the grant then calls `abandon`."""
        try:
            if self._request.needs_connection:
                await self._take_connection()
            grant = await self._get()
            if self._request.replicas or self._request.fsync:
                await self._confirm(grant)
            if self._request.session:
                grant.connection, self._connection = self._connection, None
            elif self._connection is not None:
                await self._give_back_connection()
            return grant
        except BaseException as error:
            await self.abandon(error)
            raise

    async def _get(self) -> Grant:
        """By the commands of the module, or by script where that is not loaded: what the server has can change."""
        asks = self._engine.asks_for_module()
        while True:
            if asks:
                try:
                    self._is_portable = False
                    return await self._by_commands()
                except ReplyError as error:
                    if not error.is_unknown_command:
                        raise
                    self._engine.miss_module(error)
            grant = await self._poll()
            if grant is not None:
                return grant
            asks = True

    async def _by_commands(self) -> Grant:
        engine, request = self._engine, self._request
        if engine.blocking.is_ready and (grant := await self._alone()) is not None:
            return grant
        if request.wait and engine.notifies and engine.subscription.is_up:
            try:
                return await self._by_notify()
            except NoNotify:
                pass
        grant = await self._ask(0, None)
        if grant is not None:
            return grant
        if self._left() <= 0:
            self._may_stand = False  # its place holds nobody up
            raise self._timed_out() if request.wait else kinds.refused(request.name)
        if (grant := await self._alone()) is not None:
            return grant
        if engine.notifies:
            try:
                return await self._by_notify()
            except NoNotify:
                pass
        grant = await self._by_blocking()
        if grant is not None:
            return grant
        raise self._timed_out()

    def _check_open(self) -> None:
        if self._engine.is_closed:
            raise LockMisuse(self._request.name, "its manager is closed")

    def _left(self) -> float:
        return self._deadline - now()

    def _left_ms(self) -> int:
        return max(1, round(min(self._left(), TEN_YEARS) * 1000))

    # Asking

    async def _ask(self, wait_ms: int, channel: str | None, timeout: float = 0.0) -> Grant | None:
        """Sends it, and again after errors that may pass. None: nil. Raises `Standing` for WAITING."""
        while True:
            sent = now()
            words = self._request.acquire(self.id, wait_ms, channel)
            try:
                reply = await self._exchange(words, timeout or self._engine.timeout)
            except (ReplyError, ConnectionLost) as error:
                if channel is not None and not self._engine.notify_works and _is_refusal(error):
                    self._engine.notifies = False
                    raise NoNotify from error
                await self._pause_after(error)
                if wait_ms:
                    wait_ms = min(wait_ms, self._left_ms())
                continue
            self._tries = 0
            return self._granted(reply, sent)

    def _granted(self, reply: Any, sent: float) -> Grant | None:
        if not self._is_portable:
            self._engine.find_module()
        if reply is None:
            return None
        if isinstance(reply, (bytes, str)) and reply in (b"WAITING", "WAITING"):
            self._stood = self._engine.notify_works = True
            raise Standing
        if isinstance(reply, int) and reply > 0:
            return Grant(reply, sent, None, self._is_portable)
        if isinstance(reply, list) and len(reply) == 4 and isinstance(reply[0], int):
            return Grant(reply[0], sent, _predecessor(reply), self._is_portable)
        raise kinds.typed(ReplyError("ERR", f"the server answered {reply!r}"), self._request.name)

    async def _exchange(self, words: tuple[Word, ...], timeout: float) -> Any:
        self._check_open()
        if self._uses_connection and (self._connection is None or not self._connection.is_open):
            await self._take_connection()
        self._may_stand = True
        if self._connection is not None:
            return await self._connection.call(words, timeout)
        return await self._engine.wire.call(self._request.key, words, timeout)

    async def _pause_after(self, error: ReplyError | ConnectionLost) -> None:
        """Waits a little before the next copy; raises the typed error if there is to be none."""
        self._check_open()
        self._tries += 1
        name = self._request.name
        if isinstance(error, ReplyError) and error.is_unknown_command:
            raise error
        if self._connection is not None:  # it may lead to a server that does not have the key any more
            await self._connection.close()
        if self._engine.wire.is_cluster and (self._uses_connection or isinstance(error, ConnectionLost)):
            await self._engine.wire.refresh()
        if not kinds.is_retried(error):
            if isinstance(error, ReplyError) and not self._stood and self._tries == 1:
                self._may_stand = False  # after an error nothing has changed
            raise kinds.typed(error, name)
        if self._left() <= 0 and self._tries >= 2:
            raise kinds.typed(error, name, now() - self.began if self._request.wait else None)
        pause = min(0.5, 0.01 * 2 ** min(self._tries, 6)) * random.uniform(0.5, 1)
        await self._engine.runtime.sleep(max(0.0, min(pause, self._left())) if self._request.wait else 0.01)

    # Waiting by NOTIFY

    async def _by_notify(self) -> Grant:
        subscription, heard = self._engine.subscription, None
        await self._engine.blocking.end()
        try:
            news = subscription.register(self.id, self._request.key)
            if not await subscription.ready(news, min(RESEND_DOWN, self._left())) and subscription.refusal is not None:
                self._engine.notifies = False
                raise NoNotify
            while self._left() > 0:
                news.forget()
                news.again_at = float("inf")
                try:
                    grant = await self._ask(self._left_ms(), subscription.channel)
                except Standing:
                    if heard == "granted":
                        subscription.send_again()  # too late: the server passes this process over until it hears from it
                    heard = await self._hear(news)
                    continue
                if grant is not None:
                    return grant
                self._may_stand = False
                if self._left() > SLACK:
                    raise kinds.refused(self._request.name)
            raise self._timed_out()
        finally:
            subscription.unregister(self.id)

    async def _hear(self, news: Any) -> str | None:
        """Returns when it is time to send it again: the message that says so, if one does."""
        subscription = self._engine.subscription
        asked = now()
        while True:
            self._check_open()
            again = min(asked + (RESEND if subscription.is_up else RESEND_DOWN), news.again_at, self._deadline)
            if (left := again - now()) <= 0:
                return None
            kind: str | None = await news.wait(left)
            if kind == "cancelled":
                self._may_stand = False
                raise kinds.refused(self._request.name)
            if kind == "timeout" and self._left() <= SLACK:
                self._may_stand = False
                raise self._timed_out()
            if kind is not None:
                return kind

    def _timed_out(self) -> LockTimeout:
        return kinds.timed_out(self._request.name, now() - self.began)

    # Waiting by blocking

    async def _alone(self) -> Grant | None:
        """As the only wait of the manager. None: it is not, or no longer."""
        engine, request = self._engine, self._request
        if not request.wait or request.needs_connection or not engine.notifies or not engine.blocking.enter(self):
            return None
        try:
            self._is_alone = True
            return await self._by_blocking()
        finally:
            self._is_alone = False
            await engine.blocking.leave(self)

    async def _by_blocking(self) -> Grant | None:
        """In pieces: connections are few, and a reply that is lost is noticed after one. None: it is not alone any more."""
        engine = self._engine
        while self._left() > 0 and not (self._is_alone and engine.blocking.is_over):
            self._uses_connection = True
            try:
                if self._connection is None:
                    await self._take_connection()
                piece = max(0.001, min(self._left(), self._piece()))
                began = now()
                grant = await self._ask(round(piece * 1000), None, piece + engine.timeout)
            except ConnectionLost as error:
                await self._pause_after(error)
                continue
            finally:
                self._uses_connection = self._request.needs_connection
                if not self._uses_connection:
                    await self._give_back_connection()
            self._stood = True
            if grant is not None:
                if await self._count_anew(grant):
                    return grant
            elif now() < began + piece - SLACK and self._left() > SLACK:
                self._may_stand = False  # LOCK.CANCEL, or CLIENT UNBLOCK
                raise kinds.refused(self._request.name)
        if self._left() <= 0:
            raise self._timed_out()
        return None

    def _piece(self) -> float:
        if self._is_alone:
            return LONE_PIECE
        return SHORT_PIECE if self._engine.connections.has_waiters else PIECE

    async def _count_anew(self, grant: Grant) -> bool:
        """The grant may be as old as the call. If that is long, its lease counts from an EXTEND."""
        while now() >= grant.sent + self._request.lease / 3:
            sent = now()
            try:
                words = self._request.extend(grant.token, self._request.lease_ms)
                reply = await self._engine.wire.call(self._request.key, words, self._engine.timeout)
            except (ReplyError, ConnectionLost) as error:
                await self._pause_after(error)
                continue
            grant.sent = sent
            return bool(reply)
        return True

    # Polling, where the module is not loaded

    async def _poll(self) -> Grant | None:
        """None: the module may have been loaded meanwhile. The same ID asks on, so that a place in a queue is its own."""
        request, engine = self._request, self._engine
        if request.needs_module is not None:
            raise LockUnavailable(request.name, f"{request.needs_module} needs the module, which is not loaded")
        self._is_portable = True
        while True:
            sent = now()
            try:
                self._may_stand = True
                reply = await engine.portable.acquire(request, self.id)
            except (ReplyError, ConnectionLost) as error:
                await self._pause_after(error)
                continue
            self._tries = 0
            grant = self._granted(reply, sent)
            if grant is not None:
                return grant
            self._may_stand = False
            if self._left() <= 0:
                raise self._timed_out() if request.wait else kinds.refused(request.name)
            self._check_open()
            await engine.runtime.sleep(min(random.uniform(0.05, 0.15), max(0.0, self._left())))
            if engine.asks_for_module():
                return None

    # Replicas

    async def _confirm(self, grant: Grant) -> None:
        """Raises unless enough replicas have the grant."""
        request, within = self._request, round(self._request.replicas_within * 1000)
        connection = self._connection
        if connection is None:
            raise kinds.typed(ConnectionLost(ConnectionError("the connection of the grant is gone")), request.name)
        try:
            timeout = request.replicas_within + self._engine.timeout
            if request.replicas:
                have = await connection.call(("WAIT", request.replicas, within), timeout)
                _demand(request, "replicas", have, request.replicas)
            if request.fsync:
                local, remote = await connection.call(("WAITAOF", 1, request.replicas, within), timeout)
                _demand(request, "servers that wrote it to disk", local + remote, 1 + request.replicas)
        except (ReplyError, ConnectionLost) as error:
            raise kinds.typed(error, request.name) from error

    # Giving up

    async def _take_connection(self) -> None:
        """A connection for the whole attempt: its own for a session, one of the few for WAIT."""
        key, engine = self._request.key, self._engine
        if self._connection is not None:
            await self._give_back_connection()
        if self._request.session:
            self._connection = await engine.wire.connect(key, engine.timeout)
            return
        if self._is_alone:
            self._connection = await engine.blocking.get(key)
            return
        self._connection = await engine.connections.take(self, key, self._left() if self._request.wait else engine.timeout)
        if self._connection is None:
            raise self._timed_out() if self._request.wait else ConnectionLost(TimeoutError("no connection came free"))
        self._is_pooled = True

    async def _give_back_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._is_pooled:
            self._is_pooled = False
            await self._engine.connections.give_back(self, connection)
        elif connection is not None and not self._is_alone:
            await connection.close()

    async def abandon(self, error: BaseException) -> None:
        """Gives up, also what was granted; to the end, if the caller is cancelled again meanwhile."""
        await self._engine.runtime.finish(self._abandon(error))

    async def _abandon(self, error: BaseException) -> None:
        """Leaves the connection, and gives back what was granted without its being known."""
        if self._connection is not None:
            # A reply that is on its way must not be read as that to another call.
            if not isinstance(error, LockError):
                await self._connection.close()
            await self._give_back_connection()
        if self._may_stand:
            is_reachable = not isinstance(getattr(error, "__cause__", None), (ConnectionLost, OSError)) 
            await self._engine.cancel(self._request, self.id, self._is_portable, is_reachable)


class Standing(Exception):
    """The attempt waits in the queue."""


def _demand(request: Request, what: str, have: Any, want: int) -> None:
    if not isinstance(have, int) or have < want:
        raise LockUnavailable(request.name, f"{have} of {want} {what} have the grant; it was given back")


def _is_refusal(error: ReplyError | ConnectionLost) -> bool:
    return isinstance(error, ReplyError) and error.code in ("ERR", "NOPERM") and not error.is_unknown_command


def _predecessor(details: list[Any]) -> Predecessor | None:
    """Of token, overdue-ms, previous token, previous owner. None: it was free."""
    if details[1] is None:
        return None
    owner = details[3].decode("ascii", "replace") if isinstance(details[3], bytes) else details[3]
    return Predecessor(details[1] / 1000, details[2], owner)
