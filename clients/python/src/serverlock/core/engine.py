"""What a manager does in one process (with asyncio: in one loop): acquire, renew, release.

After a fork, the child has its own engine.
"""

import os
import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar

from ..errors import LockError, LockMisuse
from . import kinds
from .attempt import Attempt
from .clock import now
from .debts import Debt
from .hold import Grant, Hold
from .options import Options
from .renewal import Timer
from .request import Request
from .resources import Resources
from .scopes import Scopes
from .way import Way
from .wire import Connection, ConnectionLost, Reply, ReplyError, Runtime, Wire, Words

PAUSE = 0.02
TAKEN_AWAY = "somebody has taken it away"


class Engine:
    def __init__(self, runtime: Runtime, wire: Wire, options: Options) -> None:
        self.runtime, self.wire = runtime, wire
        self.timeout, self.log, self._hooks = options.timeout, options.log, options.hooks
        self.pid = os.getpid()
        self.resources = Resources(runtime, wire, options)
        self._debts, self.module = self.resources.debts, self.resources.module
        self._timer = Timer(runtime, wire, self.module, self.timeout, self.log)
        self.scopes = Scopes(runtime)

    @property
    def is_closed(self) -> bool:
        return self.resources.is_closed

    async def close(self) -> None:
        self.resources.is_closed = True
        self._timer.close()
        await self.resources.close()

    # Attempts

    async def acquire(self, manager: object, request: Request, kind: "type[H]") -> "H":
        if self.is_closed:
            raise LockMisuse(request.name, "its manager is closed")
        if self.scopes:
            self.scopes.refuse_again(request)
        attempt = Attempt(self.resources, request)
        try:
            grant = None
            grant = await attempt.run()
            return self._held(kind(self, manager, request, grant, attempt.began), grant)
        except LockError as error:
            if self._hooks is not None:
                self._call_hook(self._hooks.refused, request.name, now() - attempt.began, error)
            raise
        except (ReplyError, ConnectionLost) as error:
            typed = kinds.typed(error, request.name, now() - attempt.began)
            if self._hooks is not None:
                self._call_hook(self._hooks.refused, request.name, now() - attempt.began, typed)
            raise typed from error
        except BaseException as error:
            if grant is not None:  # the caller was interrupted before it got the hold
                try:
                    await attempt.abandon(error)
                finally:
                    if grant.connection is not None:
                        await self._end_session(grant.connection)
            raise

    def _held(self, hold: "H", grant: Grant) -> "H":
        if grant.connection is not None:
            self._watch(hold, grant.connection)
        self._timer.add(hold)
        if self._hooks is not None:
            self._call_hook(self._hooks.granted, hold.key, hold.waited)
        return hold

    def _call_hook(self, hook: Callable[..., None], *args: object) -> None:
        """An error in the application's hook must not cost a lock."""
        try:
            hook(*args)
        except Exception:
            self.log.exception("a hook failed")

    def _watch(self, hold: Hold, connection: Connection) -> None:
        """Keeps only a weak reference to the hold. Once nobody refers to the hold, its connection is closed."""
        ref = weakref.ref(hold, lambda _: self._timer.dropped.append(lambda: self._end_session(connection)))

        def ended() -> None:
            held = ref()
            if held is not None:
                held._lose("the connection of its session has ended", gone=True)

        self.runtime.watch(connection, ended)

    async def _end_session(self, connection: Connection) -> None:
        await self.runtime.unwatch(connection)
        await connection.close()

    def enter_scope(self, hold: Hold) -> Hashable:
        """Enters the scope of this hold. Returns the caller."""
        request, grant = hold._request, hold._grant
        until = now() + request.lease

        async def owe() -> None:
            self._debts.owe(until, lambda: self._settle(request, grant))

        # If an exception comes before the first statement of __exit__, the hold is dropped without a release.
        hold._dropped = weakref.ref(hold, lambda _: self._timer.dropped.append(owe))
        return self.scopes.enter(hold)

    # Holds

    async def extend(self, hold: Hold, lease: float | None) -> None:
        """Sets a new lease. Raises LockLost if the lock is no longer held."""
        hold.check()
        lease = hold._request.lease if lease is None else lease
        sent = now()
        lease_ms = max(1, round(lease * 1000))
        reply = None
        hold._extending(sent, lease)
        try:
            reply = await self._ask(hold, lambda way: way.extend(hold._request, hold.token, lease_ms))
        finally:
            hold._extended(sent, lease, reply == 1)
            self._timer.add(hold)
        if reply != 1:
            hold._lose(TAKEN_AWAY, gone=True)
            hold.check()

    async def verify(self, hold: Hold) -> float:
        """Asks the server. Returns the seconds left, but no more than `left` returns."""
        hold.check()
        left = min([await self._check(hold, key) for key in hold._request.keys])
        if left <= 0:
            hold._lose(TAKEN_AWAY, gone=True)
            hold.check()
        return min(left / 1000, hold.left())

    async def _check(self, hold: Hold, key: bytes) -> float:
        return float(await self._ask(hold, lambda way: way.check(hold._request, hold.token, key)))

    async def fenced(self, hold: Hold, words: Words) -> Reply:
        """Runs one command on the server, only if this lock is held there at that moment."""
        hold.check()
        reply = await self._ask(hold, lambda way: way.fenced(hold._request, hold.token, words))
        if isinstance(reply, list) and reply and reply[0] in (b"LOCK.LOST", "LOCK.LOST"):
            hold._lose(TAKEN_AWAY, gone=True)
            hold.check()
        return reply[0] if isinstance(reply, list) and reply else None

    async def _ask(self, hold: Hold, words: Callable[[Way], Words]) -> Reply:
        try:
            return await self._send(hold._request, hold._grant, words)
        except (ReplyError, ConnectionLost) as error:
            raise kinds.typed(error, hold.key) from error

    async def _send(self, request: Request, grant: Grant, words: Callable[[Way], Words]) -> Reply:
        """Sends a hold's command in the way that works now."""
        way = self.module.way_of(request, grant)
        while True:
            try:
                reply = await self.wire.call(request.key, words(way), self.timeout)
            except ReplyError as error:
                instead = self.module.instead_of(request, grant, way, error)
                if instead is None:
                    raise
                way = instead
            else:
                self.module.worked(way)
                return reply

    async def release(self, hold: Hold) -> bool:
        """Whether the lock was held to the end. If it cannot be released now, it is released in the background."""
        if hold._pid != os.getpid():
            hold._end()
            return False
        if not hold._end():
            raise LockMisuse(hold.key, "it was released before")
        request, at, is_settled = hold._request, now(), False
        connection, hold._connection = hold._connection, None
        was_lost = hold._lost is not None or at >= hold._lease.lost_at
        try:
            self._timer.forget()
            wait = hold._granted + request.at_least - at
            if hold._gone:
                held = False
            elif wait > 0 and not was_lost:
                held = await self._release_later(hold, wait)
            else:
                held = await self._release_now(hold) and not was_lost
            is_settled = True
        except LockError:
            is_settled = True
            raise
        finally:
            if not is_settled:  # the caller was interrupted
                self._owe_release(hold)
            hold._dropped = None
            if connection is not None:
                await self.runtime.finish(lambda: self._end_session(connection))
        if self._hooks is not None:
            self._call_hook(self._hooks.released, request.name, now() - hold._granted, held)
        return held

    async def _release_now(self, hold: Hold) -> bool:
        """Tries for as long as a call may take. Then the release continues in the background until the lease ends."""
        request, tries = hold._request, 0
        end = now() + self.timeout
        while True:
            try:
                reply = await self._settle(request, hold._grant)
            except (ReplyError, ConnectionLost) as error:
                tries += 1
                if not kinds.is_retried(error):
                    raise kinds.typed(error, request.name) from error
                if now() >= min(end, hold._lease.lost_at):
                    self._owe_release(hold)
                    self.log.warning("the lock %s is released in the background: %s", hold.key, error)
                    return now() < hold._lease.lost_at
                await self.runtime.sleep(PAUSE * tries)
                continue
            if request.was_held(reply):
                return True
            # A 0 after a second try may mean that the first one released it.
            return reply == 0 and tries > 0 and now() < hold._lease.lost_at

    async def _settle(self, request: Request, grant: Grant) -> Reply:
        return await self._send(request, grant, lambda way: way.release(request, grant.token))

    def _owe_release(self, hold: Hold) -> None:
        self._debts.owe(hold._lease.ends_at, self._settling(hold))

    def _settling(self, hold: Hold) -> Debt:
        return lambda: self._settle(hold._request, hold._grant)

    async def _release_later(self, hold: Hold, wait: float) -> bool:
        """Cuts the lease to the rest of `at_least`. The timer then releases the lock."""
        lease_ms = max(1, round(wait * 1000))
        reply = await self._ask(hold, lambda way: way.extend(hold._request, hold.token, lease_ms))
        at, settle = now() + wait, self._settling(hold)
        self._timer.later(at, lambda: self._debts.owe(at + 1, settle))
        return bool(reply == 1)

    def lost(self, hold: Hold) -> None:
        """Called once for each lost hold."""
        self.log.warning("%s", hold._lost)
        if self._hooks is not None:
            hooks, held = self._hooks, now() - hold._granted
            self.runtime.call_back(lambda: hooks.lost(hold.key, held, hold._lost))
        hold._stop_work()
        on_lost = hold._request.on_lost
        if on_lost is not None:
            self.runtime.call_back(lambda: on_lost(hold))


class BoundHold(Hold):
    """A hold with the engine that extends, verifies and releases it."""

    def __init__(self, engine: Engine, manager: object, request: Request, grant: Grant, began: float) -> None:
        super().__init__(manager, request, grant, began=began, pid=engine.pid, on_lost=engine.lost)
        self._engine = engine


H = TypeVar("H", bound=BoundHold)
