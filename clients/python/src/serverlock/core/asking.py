"""Sends one attempt's ACQUIREs, and resends them with the same ID after errors that are retried.

Also cancels the attempt, at once or in the background.
"""

import random
import secrets
from collections.abc import Callable, Coroutine

from ..errors import LockMisuse, LockRefused, LockTimeout
from . import kinds
from .commands import fields_of, text_of
from .hold import Grant
from .request import TEN_YEARS, Request
from .resources import Resources
from .results import Resolved, Stored, stored
from .sessions import Session
from .way import RESEND_DOWN, No, Place, Result, Way
from .wire import Connection, ConnectionLost, Reply, ReplyError, Words

# How long the server may still run a copy after its connection has been closed.
LATE_COPY = 2.0


# A session leaves its connection after these replies, or closes it.
MOVED = ("MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN")
ROLE_CHANGED = ("READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED")


def _new_id() -> str:
    return str(secrets.randbits(59) + 1)


class Asker:
    def __init__(self, resources: Resources, request: Request) -> None:
        self.resources, self.request, self.now = resources, request, resources.runtime.now
        self.id = _new_id()
        self.began = self.now()
        self.deadline = self.began + request.wait
        self.connection: Connection | None = None
        self.session: Session | None = None
        self.uses_connection = request.needs_connection
        self.is_alone = False  # the manager's only waiting attempt
        self.is_known = False  # the server may know the attempt: it waits there, or has the lock
        self.waited = False
        self._has_place = False  # in the script's queue
        self.way: Way = resources.module.commands  # of the newest copy
        self._unanswered = 0  # copies whose connection was closed
        self._tries = 0
        self._is_pooled = False
        self._first: Stored | None = None  # the result that was there when the attempt began to wait
        self._has_looked = False

    @property
    def own_connection(self) -> Connection | Session | None:
        return self.session or self.connection

    @property
    def has_lost_copies(self) -> bool:
        """Whether a copy was never answered, so that the server may still run it."""
        return self._unanswered > 0

    def left(self) -> float:
        return self.deadline - self.now()

    def left_ms(self) -> int:
        return max(1, round(min(self.left(), TEN_YEARS) * 1000))

    def timed_out(self) -> LockTimeout:
        return kinds.timed_out(self.request.name, self.now() - self.began)

    async def refused(self) -> LockRefused:
        """The error of an attempt without a wait. After a RECOVER, it says whether the lock is free."""
        request, is_free = self.request, False
        if request.recover:
            try:
                reply = await self.resources.wire.call(request.key, self.way.info(request), self.resources.timeout)
                is_free = text_of(fields_of(reply).get("state")) == "free"
            except (ReplyError, ConnectionLost):
                pass  # this user may not ask
        return kinds.refused(request.name, is_free=is_free)

    def check_open(self) -> None:
        if self.resources.is_closed:
            raise LockMisuse(self.request.name, "its manager is closed")

    async def ask(
        self, way: Way, wait_ms: int = 0, channel: str | None = None, timeout: float = 0.0
    ) -> Grant | Place | No:
        """Asks in this way, or in another if this one turns out to be impossible. Raises Resolved after a result.

        channel: notifies the attempt while it is in the queue. A copy that may not join yet is sent without it.
        """
        module = self.resources.module
        while True:
            self.way = way
            try:
                await way.prepare(self.request.key)
                sent, is_early = self.now(), channel is not None and not self._may_join(way)
                words = way.acquire(self.request, self.id, wait_ms, None if is_early else channel)
                reply = await self._exchange(words, timeout or self.resources.timeout)
                answer = way.read(reply, sent, waits=wait_ms > 0)
            except (ReplyError, ConnectionLost) as error:
                instead = module.instead(self.request, way, error)
                if instead is not None:
                    if wait_ms and channel is None and way.is_module:
                        return No.NOT_BLOCKED
                    way = instead
                    continue
                if channel is not None and self._is_refusal(error):
                    self.resources.notifies = False
                    return No.NOT_NOTIFIED
                await self.pause_after(error)
                if wait_ms:
                    wait_ms = min(wait_ms, self.left_ms())
                continue
            module.worked(way)
            self._tries = 0
            if isinstance(answer, Result):
                self.is_known = False
                raise Resolved(answer.value)
            if isinstance(answer, Place) and answer.is_queued:
                self.waited, self._has_place = True, not way.is_module
                self.resources.notify_works = self.resources.notify_works or way.is_module
            elif isinstance(answer, (Place, No)):
                self.is_known = self.waited or self.has_lost_copies
            if self.request.result and not way.is_module and not isinstance(answer, Grant):
                await self._look()
            return Place(RESEND_DOWN, is_queued=False) if is_early and isinstance(answer, Place) else answer

    def _may_join(self, way: Way) -> bool:
        """Whether a copy may join the queue now.

        A release with the script removes attempts whose channel has no subscriber, so they join its queue only once the
        manager has subscribed.
        """
        if way.is_module or not way.queues(self.request):
            return True
        return self._has_place or self.resources.subscription.is_up

    async def _look(self) -> None:
        """Notes which result is there before the attempt waits."""
        if not self._has_looked:
            self._first = await stored(self.resources.wire, self.request, self.resources.timeout)
            self._has_looked = True

    async def look_again(self) -> None:
        """Call this with the grant. Raises Resolved if a result was stored while the attempt waited."""
        if self._first is not None:
            now = await stored(self.resources.wire, self.request, self.resources.timeout)
            if now is not None and now.token > self._first.token:
                raise Resolved(now.value)

    def _is_refusal(self, error: ReplyError | ConnectionLost) -> bool:
        """Whether the module refuses NOTIFY."""
        is_refusal = isinstance(error, ReplyError) and error.code in ("ERR", "NOPERM") and not error.is_unknown_command
        return is_refusal and self.way.is_module and not self.resources.notify_works

    async def _exchange(self, words: Words, timeout: float) -> Reply:
        self.check_open()
        if self.uses_connection and ((own := self.own_connection) is None or not own.is_open):
            await self.take_connection()
        self.is_known = True
        self._unanswered += 1
        try:
            if (own := self.own_connection) is not None:
                reply = await own.call(words, timeout)
            else:
                reply = await self.resources.wire.call(self.request.key, words, timeout)
        except ReplyError:
            self._unanswered -= 1
            raise
        self._unanswered -= 1
        return reply

    async def pause_after(self, error: ReplyError | ConnectionLost, *, is_own: bool = True) -> None:
        """Pauses before the next copy, or raises the typed error if there is none.

        is_own: whether the error came over the attempt's own connection, if it has one.
        """
        self.check_open()
        self._tries += 1
        name = self.request.name
        if isinstance(error, ReplyError) and error.is_unknown_command:
            raise error
        if is_own:
            await self._leave_connection(error)
        if self.resources.wire.is_cluster and (self.uses_connection or isinstance(error, ConnectionLost)):
            await self.resources.wire.refresh()
        if not kinds.is_retried(error):
            if isinstance(error, ReplyError) and not self.waited and self._tries == 1:
                self.is_known = False  # an error reply changes nothing on the server
            raise kinds.typed(error, name)
        if self.left() <= 0 and self._tries >= 2:
            raise kinds.typed(error, name, self.now() - self.began if self.request.wait else None)
        pause = min(0.5, 0.01 * 2 ** min(self._tries, 6)) * random.uniform(0.5, 1)
        await self.resources.runtime.sleep(max(0.0, min(pause, self.left())) if self.request.wait else 0.01)

    async def _leave_connection(self, error: ReplyError | ConnectionLost) -> None:
        """The key may have moved to another server. A session's connection may have other locks."""
        code = error.code if isinstance(error, ReplyError) else None
        if self.connection is not None:
            await self.connection.close()
        elif self.session is not None and code in ROLE_CHANGED:
            await self.session.close()
        elif self.session is not None and code in MOVED:
            await self.give_back_connection()

    async def take_connection(self) -> None:
        """Takes a connection for the whole attempt: a new one for a session, one of the few shared ones for WAIT."""
        key, resources = self.request.key, self.resources
        if self.own_connection is not None:
            await self.give_back_connection()
        if self.request.session:
            self.session = await resources.sessions.take(self, key)
            return
        if self.is_alone:
            self.connection = await resources.blocking.get(key)
            return
        self.connection = await resources.connections.take(
            self, key, self.left() if self.request.wait else resources.timeout
        )
        if self.connection is None:
            raise self.timed_out() if self.request.wait else ConnectionLost(TimeoutError("no connection came free"))
        self._is_pooled = True

    async def give_back_connection(self) -> None:
        connection, self.connection, self.session = self.connection, None, None
        if self.request.session:
            await self.resources.sessions.give_back(self)
        elif connection is not None and self._is_pooled:
            self._is_pooled = False
            await self.resources.connections.give_back(self, connection)
        elif connection is not None and not self.is_alone:
            await connection.close()

    async def cancel(self, is_reachable: bool) -> None:
        """Cancels the attempt on the server: at once if possible, otherwise in the background."""
        debts, settle, until = self.resources.debts, self._settle(), self._until()
        is_settled = False
        try:
            self._owe_once_more()
            if is_reachable:
                await settle()
                is_settled = True
        except (ReplyError, ConnectionLost):
            pass
        finally:  # the caller may be interrupted again
            if not is_settled:
                debts.owe(until, settle)

    def leave_queue(self) -> None:
        """Gives up the place in the script's queue, in the background.

        A late cancel must not release a lock that the attempt gets by polling, so the attempt continues with a new ID.
        """
        self._owe_once_more()
        self.resources.debts.owe(self._until(), self._settle())
        self.id, self._unanswered = _new_id(), 0
        self.is_known = self.waited = self._has_place = False

    def _owe_once_more(self) -> None:
        """Cancels again later: the script cannot block the ID, so a late copy may arrive after the first cancel."""
        if not self.way.is_module and self.has_lost_copies:
            self.resources.debts.owe(self._until(), self._settle(), after=LATE_COPY)

    def _until(self) -> float:
        return self.now() + max(self.request.lease + LATE_COPY, self.resources.timeout)

    def _settle(self) -> Callable[[], Coroutine[None, None, None]]:
        """Returns a function that cancels the attempt's current ID."""
        resources, request, id_, is_module = self.resources, self.request, self.id, self.way.is_module

        async def call(words: Words) -> Reply:
            return await resources.wire.call(request.key, words, resources.timeout)

        async def settle() -> None:
            module = resources.module
            way: Way = module.commands if is_module else module.script(request)
            while True:
                try:
                    return await way.cancel(request, id_, resources.subscription.channel, call)
                except ReplyError as error:
                    instead = module.instead(request, way, error)
                    if instead is None:
                        raise
                    way = instead

        return settle
