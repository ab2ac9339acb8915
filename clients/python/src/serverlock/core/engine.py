"""What a manager does in one process (with asyncio: in one loop): attempts, renewal, release, and what is left to do.

After a fork, the child has an engine of its own.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import LockError, LockMisuse
from . import kinds
from .attempt import Attempt
from .clock import now
from .hold import Grant, Hold
from .connections import Connections
from .portable import Portable
from .request import Request
from .blocking import Blocking
from .subscription import Subscription
from .timer import Timer
from .wire import ConnectionLost, Connection, Runtime, ReplyError, Wire, Words

if TYPE_CHECKING:
    from ..hooks import Hooks

ASK_FOR_MODULE = 5.0


class Options:
    """What a manager was made with."""

    def __init__(
        self, timeout: float, portable: bool, warn_without_module: bool, hooks: "Hooks | None", log: logging.Logger
    ) -> None:
        self.timeout, self.portable, self.hooks, self.log = timeout, portable, hooks, log
        self.warn_without_module = warn_without_module  # until that has been done


class MakesHold(Protocol):
    def __call__(self, engine: "Engine", manager: object, request: Request, grant: Grant, began: float) -> Any: ...


H = TypeVar("H", bound=Hold)


class Engine:
    def __init__(self, runtime: Runtime, wire: Wire, options: Options) -> None:
        self.runtime, self.wire = runtime, wire
        self.timeout, self.log, self._hooks = options.timeout, options.log, options.hooks
        self._options = options
        self.pid = os.getpid()
        self.is_closed = False
        self.timer = Timer(self)
        self.subscription = Subscription(self)
        self.connections = Connections(self)
        self.blocking = Blocking(self)
        self.portable = Portable(self)
        self.notifies = True  # until the server says otherwise
        self.notify_works = False
        self._module_missed_until = 0.0
        self._scopes: dict[Hashable, list[weakref.ref[Hold]]] = {}
        self._mutex = threading.Lock()

    # Attempts

    async def acquire(self, manager: object, request: Request, kind: type[H]) -> H:
        if self.is_closed:
            raise LockMisuse(request.name, "its manager is closed")
        if self._scopes:
            self._refuse_again(request)
        attempt = Attempt(self, request)
        try:
            grant = None
            grant = await attempt.run()
            return self._held(kind(self, manager, request, grant, attempt.began), grant)
        except LockError as error:
            if self._hooks is not None:
                self._hooked(self._hooks.refused, request.name, now() - attempt.began, error)
            raise
        except (ReplyError, ConnectionLost) as error:
            made = kinds.typed(error, request.name, now() - attempt.began)
            if self._hooks is not None:
                self._hooked(self._hooks.refused, request.name, now() - attempt.began, made)
            raise made from error
        except BaseException as error:
            if grant is not None:  # the caller is interrupted with a grant that nobody has seen
                await attempt.abandon(error)
                if grant.connection is not None:
                    await self.end_session(grant.connection)
            raise

    def _held(self, hold: H, grant: Grant) -> H:
        if grant.connection is not None:
            self._watch(hold, grant.connection)
        self.timer.add(hold)
        if self._hooks is not None:
            self._hooked(self._hooks.granted, hold.key, hold.waited)
        return hold

    def _hooked(self, hook: Callable[..., None], *args: object) -> None:
        """An error of the application's own must not cost a lock."""
        try:
            hook(*args)
        except Exception:
            self.log.exception("a hook failed")

    def _watch(self, hold: Hold, connection: Connection) -> None:
        """Neither the watcher nor the connection keeps a hold that nobody refers to; the connection of such a hold is closed."""
        ref = weakref.ref(hold, lambda _: self.timer.dropped.append(lambda: self.end_session(connection)))

        def ended() -> None:
            held = ref()
            if held is not None:
                held._lose("the connection of its session has ended", gone=True)

        self.runtime.watch(connection, ended)

    async def end_session(self, connection: Connection) -> None:
        await self.runtime.unwatch(connection)
        await connection.close()

    def _refuse_again(self, request: Request) -> None:
        for ref in self._scopes.get(self.runtime.caller(), ()):
            hold = ref()
            if hold is None or not hold.is_held or not set(hold._request.keys) & set(request.keys):
                continue
            if hold._request.is_exclusive or request.is_exclusive:
                raise LockMisuse(request.name, "this caller already holds it, in a scope around this call")

    def enter_scope(self, hold: Hold) -> Hashable:
        """The caller that is in the scope of this hold from now on."""
        caller = self.runtime.caller()
        request, token, portable = hold._request, hold.token, hold._portable
        until = now() + request.lease

        def cut_short() -> Coroutine[Any, Any, None]:
            return self._settle_grant(request, token, portable, until)

        # An exception can come before the first statement of __exit__: then the hold is dropped, and nobody released it.
        hold._dropped = weakref.ref(hold, lambda _: self.timer.dropped.append(cut_short))
        with self._mutex:
            self._scopes.setdefault(caller, []).append(weakref.ref(hold))
        return caller

    def leave_scope(self, hold: Hold, caller: Hashable) -> None:
        with self._mutex:
            rest = [ref for ref in self._scopes.get(caller, ()) if ref() not in (hold, None)]
            if rest:
                self._scopes[caller] = rest
            else:
                self._scopes.pop(caller, None)

    async def _settle_grant(self, request: Request, token: int, portable: bool, until: float) -> None:
        async def settle() -> None:
            words = self.portable.release(request, token) if portable else request.release(token)
            await self.wire.call(request.key, words, self.timeout)

        self.timer.owe(until, settle)

    async def cancel(self, request: Request, id_: str, portable: bool, is_reachable: bool) -> None:
        """Ends an attempt: at once if that can be done, else in the background."""

        async def settle() -> None:
            if portable:
                await self.portable.cancel(request, id_, self.timeout)
                return
            for key in request.keys:
                await self.wire.call(key, ("LOCK.CANCEL", key, id_), self.timeout)

        if is_reachable:
            try:
                await settle()
                return
            except (ReplyError, ConnectionLost):
                pass
        self.timer.owe(now() + max(request.lease + 2, self.timeout), settle)

    # Holds

    def extend_words(self, hold: Hold, lease_ms: int) -> Words:
        if hold._portable:
            return self.portable.extend(hold._request, hold.token, lease_ms)
        return hold._request.extend(hold.token, lease_ms)

    async def extend(self, hold: Hold, lease: float | None) -> None:
        """Sets a new lease; raises LockLost if the lock is not held any more."""
        hold.check()
        lease = hold._request.lease if lease is None else lease
        sent = now()
        lease_ms = max(1, round(lease * 1000))
        reply = None
        hold._extending(sent, lease)
        try:
            reply = await self._ask(hold, lambda: self.extend_words(hold, lease_ms))
        finally:
            hold._extended(sent, lease, reply == 1)
            self.timer.add(hold)
        if reply != 1:
            hold._lose("somebody has taken it away", gone=True)
            hold.check()

    async def verify(self, hold: Hold) -> float:
        """Asks the server; the seconds that are left, at most what this side believes."""
        hold.check()
        left = min([await self._ask(hold, partial(self._check_words, hold, key)) for key in hold._request.keys])
        if left <= 0:
            hold._lose("somebody has taken it away", gone=True)
            hold.check()
        return min(float(left) / 1000, hold.left())

    def _check_words(self, hold: Hold, key: bytes) -> Words:
        return self.portable.check(hold._request, hold.token) if hold._portable else ("LOCK.CHECK", key, hold.token)

    async def fenced(self, hold: Hold, words: Words) -> Any:
        """Runs one command on the server, only if this lock is still held there."""
        hold.check()
        keys = (*hold._request.keys[:1], *words[1:2])

        def fenced() -> Words:
            script = self.portable.fenced if hold._portable else FENCED
            return ("EVAL", script, len(keys), *keys, hold.token, *words)

        reply = await self._ask(hold, fenced)
        if isinstance(reply, list) and reply and reply[0] in (b"LOCK.LOST", "LOCK.LOST"):
            hold._lose("somebody has taken it away", gone=True)
            hold.check()
        return reply[0] if isinstance(reply, list) and reply else None

    async def _ask(self, hold: Hold, words: Callable[[], Words]) -> Any:
        while True:
            try:
                return await self.wire.call(hold._request.key, words(), self.timeout)
            except (ReplyError, ConnectionLost) as error:
                if not self.missed(hold, error):
                    raise kinds.typed(error, hold.key) from error

    async def release(self, hold: Hold) -> bool:
        """Whether the lock was held to the end. What cannot be given back now is given back in the background."""
        if hold._pid != os.getpid():
            hold._end()
            return False
        if not hold._end():
            raise LockMisuse(hold.key, "it was released before")
        request, at, is_settled = hold._request, now(), False
        connection, hold._connection = hold._connection, None
        was_lost = hold._lost is not None or at >= hold._lost_at
        try:
            self.timer.forget()
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
            if not is_settled:  # the caller is interrupted
                self._owe_release(hold)
            if connection is not None:
                await self.runtime.finish(self.end_session(connection))
        if self._hooks is not None:
            self._hooked(self._hooks.released, request.name, now() - hold._granted, held)
        return held

    async def _release_now(self, hold: Hold) -> bool:
        """Sent until it is answered, for as long as a call may take; then by the worker, until the lease ends."""
        request, tries = hold._request, 0
        end = now() + self.timeout
        while True:
            try:
                reply = await self.wire.call(request.key, self._release_words(hold), self.timeout)
            except (ReplyError, ConnectionLost) as error:
                if self.missed(hold, error):
                    continue
                tries += 1
                if not kinds.is_retried(error):
                    raise kinds.typed(error, request.name) from error
                if now() >= min(end, hold._lost_at):
                    self._owe_release(hold)
                    self.log.warning("the lock %s is released in the background: %s", hold.key, error)
                    return now() < hold._lost_at
                await self.runtime.sleep(0.02 * tries)
                continue
            if request.was_held(reply):
                return True
            # Sent twice, it may find its own work done.
            return reply == 0 and tries > 0 and now() < hold._lost_at

    def _release_words(self, hold: Hold) -> Words:
        if hold._portable:
            return self.portable.release(hold._request, hold.token)
        return hold._request.release(hold.token)

    def _owe_release(self, hold: Hold) -> None:
        self.timer.owe(hold._sent + hold._lease, self._settling(hold))

    def _settling(self, hold: Hold) -> Callable[[], Coroutine[Any, Any, None]]:
        async def settle() -> None:
            try:
                await self.wire.call(hold._request.key, self._release_words(hold), self.timeout)
            except ReplyError as error:
                self.missed(hold, error)
                raise

        return settle

    async def _release_later(self, hold: Hold, wait: float) -> bool:
        """Cuts the lease to what is left of `at_least`; the timer releases when it is over."""
        reply = await self._ask(hold, lambda: self.extend_words(hold, max(1, round(wait * 1000))))
        at, settle = now() + wait, self._settling(hold)
        self.timer.later(at, lambda: self.timer.owe(at + 1, settle))
        return bool(reply == 1)

    def lost(self, hold: Hold) -> None:
        """Called once for each hold that is lost."""
        self.log.warning("%s", hold._lost)
        if self._hooks is not None:
            hooks, held = self._hooks, now() - hold._granted
            self.runtime.tell(lambda: hooks.lost(hold.key, held, hold._lost))
        hold._tell()

    # The module

    def is_portable(self) -> bool:
        """Whether to ask with the scripts, because the server did not know LOCK.* a moment ago."""
        return now() < self._module_missed_until

    def asks_for_module(self) -> bool:
        """Whether an attempt is to try LOCK.*: where they were missing, one does so every five seconds."""
        if self._module_missed_until:
            with self._mutex:
                if now() < self._module_missed_until:
                    return False
                self._module_missed_until = now() + ASK_FOR_MODULE
        return True

    def find_module(self) -> None:
        """It has replied: attempts that poll move over."""
        if self._module_missed_until:
            self._module_missed_until = 0.0

    def miss_module(self, error: ReplyError) -> None:
        if not self._options.portable:
            raise error
        with self._mutex:
            warns, self._options.warn_without_module = self._options.warn_without_module, False
            self._module_missed_until = now() + ASK_FOR_MODULE
        if warns:
            self.log.warning("the server has no LOCK.*; locks work by script, without order among waiters: %s", error)

    def missed(self, hold: Hold, error: ReplyError | ConnectionLost) -> bool:
        """The module, or the script, is gone: whether to send the same by script, for the value is the same."""
        if not isinstance(error, ReplyError):
            return False
        if error.code == "NOSCRIPT" and hold._portable:
            self.portable.missed()
            return True
        if error.is_unknown_command and not hold._portable:
            hold._portable = hold._request.needs_module is None and self._options.portable
            return hold._portable
        return False

    async def close(self) -> None:
        self.is_closed = True
        self.timer.close()
        await self.subscription.close()
        await self.connections.close()
        await self.runtime.close()
        # Last: attempts that wait end now, and what they give back must not end with the runtime.
        self.subscription.stir()
        await self.blocking.close()


FENCED = (
    "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end "
    "return {redis.call(unpack(ARGV, 2))}"
)
