"""What a manager does in one process (with asyncio: in one loop): acquire, renew, release.

After a fork, the child has its own engine.
"""

import math
import os
import weakref
from collections.abc import Callable, Hashable
from logging import Logger
from typing import TypeVar

from ..errors import LockError, LockMisuse
from . import kinds
from .asking import LATE_COPY
from .attempt import Attempt
from .commands import fields_of
from .debts import Debt
from .flights import Caller, Flights
from .hold import Grant, Hold
from .module import Module
from .options import Options
from .renewal import Timer
from .reports import Reports
from .request import Request
from .resources import Resources
from .results import Resolved, is_too_long, store
from .scopes import Scopes
from .script import MARGIN_MS
from .sessions import Session
from .way import Way
from .wire import ConnectionLost, Reply, ReplyError, Runtime, Wire, Words

PAUSE = 0.02
# An EXTEND's lease is counted from when the server runs it, so an EXTEND that takes longer than this is sent again.
LATE_EXTEND = 0.25
TAKEN_AWAY = "somebody else has taken it"


class Engine:
    def __init__(
        self,
        runtime: Runtime,
        wire: Wire,
        options: Options,
        renewer: Callable[[Module, float, Logger], Timer] | None = None,
    ) -> None:
        """renewer: builds the timer for locks with `max_hold`, if it is not the one for all others."""
        self.runtime, self.wire, self.now = runtime, wire, runtime.now
        self.timeout, self.log = options.timeout, options.log
        self._reports = None if options.hooks is None else Reports(options.hooks, options.log, runtime)
        self.pid = os.getpid()
        self.resources = Resources(runtime, wire, options)
        self._debts, self.module = self.resources.debts, self.resources.module
        self._timer = Timer(runtime, wire, self.module, self.timeout, self.log)
        self._renewals = self._timer if renewer is None else renewer(self.module, self.timeout, self.log)
        self.scopes = Scopes(runtime)
        self.flights = Flights(runtime)

    @property
    def is_closed(self) -> bool:
        return self.resources.is_closed

    async def close(self) -> None:
        self.resources.is_closed = True
        self._timer.close()
        self.close_renewals()
        await self.resources.close()

    def close_renewals(self) -> None:
        """Ends the thread that renews, if there is one. Call this if the engine's loop has ended."""
        if self._renewals is not self._timer:
            self._renewals.close()

    # Attempts

    async def turn(self, caller: Caller) -> bytes | None:
        """Waits until another caller has the value, or until this one has to get it."""
        return await caller.turn()

    async def acquire(self, manager: object, request: Request, kind: "type[H]") -> "H":
        if self.is_closed:
            raise LockMisuse(request.name, "its manager is closed")
        outer = self.reentered(request)
        if outer is not None and outer._enter_again():
            return outer  # type: ignore[return-value]
        attempt = Attempt(self.resources, request)
        try:
            grant = None
            grant = await attempt.run()
            hold = self._held(kind(self, manager, request, grant, attempt.began), grant, attempt.way)
            if request.reentrant:
                self._enter(hold)
            return hold
        except Resolved:
            self._ungranted(attempt, request, None)
            raise
        except LockError as error:
            self._ungranted(attempt, request, error)
            raise
        except (ReplyError, ConnectionLost) as error:
            typed = kinds.typed(error, request.name, self.now() - attempt.began)
            self._ungranted(attempt, request, typed)
            raise typed from error
        except BaseException as error:
            if grant is not None:  # the caller was interrupted before it got the hold
                await attempt.abandon(error)
            self._ungranted(attempt, request, error)
            raise

    def _ungranted(self, attempt: Attempt, request: Request, error: BaseException | None) -> None:
        if self._reports is not None:
            self._reports.ungranted(request, attempt.way, self.now() - attempt.began, error)

    def _held(self, hold: "H", grant: Grant, way: Way) -> "H":
        if grant.session is not None:
            self._keep_session(hold, grant.session)
        self._timer_of(hold).add(hold)
        if self._reports is not None:
            self._reports.granted(hold, way)
            expired = self._reports.expiring(hold)

            async def report() -> None:
                expired()

            hold._report_ref = self._when_dropped(hold, report)
        return hold

    def _keep_session(self, hold: Hold, session: Session) -> None:
        """Once nobody refers to the hold, its session drops it."""
        sessions = self.resources.sessions
        hold._session_ref = self._when_dropped(hold, lambda: sessions.drop(session, None))
        sessions.keep(session, hold)

    def reentered(self, request: Request) -> Hold | None:
        """The hold that this caller already has and gets again. Raises LockMisuse if it must not ask."""
        return self.scopes.held(request) if self.scopes else None

    def enter_scope(self, hold: Hold) -> Hashable:
        """Enters the scope of this hold. Returns the caller."""
        request, grant = hold._request, hold._grant
        until = self.now() + request.lease
        caller = self.scopes.enter(hold)

        async def owe() -> None:
            self.scopes.leave(None, caller)
            self._debts.owe(until, lambda: self._settle(request, grant))

        # If an exception is raised before the first statement of __exit__, the hold is dropped without a release.
        hold._dropped = self._when_dropped(hold, owe)
        return caller

    def _when_dropped(self, hold: Hold, work: Debt) -> object:
        """Does this work once nobody refers to the hold, unless the result is dropped first."""
        timer, debts, runtime = self._timer_of(hold), self._debts, self.runtime
        if timer is self._timer:
            return weakref.ref(hold, lambda _: timer.dropped.append(work))

        async def hand_over() -> None:  # from the thread that renews
            runtime.call_back(lambda: debts.owe(math.inf, work))

        return weakref.ref(hold, lambda _: timer.dropped.append(hand_over))

    def _enter(self, hold: Hold) -> None:
        """This caller may get the hold again, until it is released."""
        caller = hold._caller = self.scopes.enter(hold)

        async def leave() -> None:
            self.scopes.leave(None, caller)

        hold._dropped = self._when_dropped(hold, leave)

    # Holds

    def _timer_of(self, hold: Hold) -> Timer:
        return self._timer if math.isinf(hold._request.max_hold) else self._renewals

    async def extend(self, hold: Hold, lease: float | None) -> None:
        """Sets a new lease. Raises LockLost if the lock is no longer held."""
        hold.check()
        lease = hold._request.lease if lease is None else lease
        sent = self.now()
        lease_ms = max(1, round(lease * 1000))
        reply = None
        if not hold._extending(sent, lease):
            hold.check()
        try:
            reply = await self._ask(hold, lambda way: way.extend(hold._request, hold.token, lease_ms))
        finally:
            hold._extended(sent, lease, reply == 1)
            self._timer_of(hold).add(hold)
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
        """Runs one command on the server if this lock is held there at that moment."""
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
        """Sends a hold's command in whichever way works now."""
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

    async def release(self, hold: Hold, *, entirely: bool = False) -> bool:
        """Whether the lock was held to the end. If it cannot be released now, it is released in the background.

        entirely: even if the caller got it several times.
        """
        if not entirely and hold._leave_again():
            return hold.is_held
        if hold._pid != os.getpid():
            hold._end()
            return False
        if hold._caller is not None:
            self.scopes.leave(hold, hold._caller)
        if not hold._end():
            raise LockMisuse(hold.key, "it was released before")
        request, at, is_settled = hold._request, self.now(), False
        session, hold._session = hold._session, None
        was_lost = hold._lost is not None or at >= hold._lease.lost_at
        try:
            self._timer_of(hold).forget()
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
                self._owe_release(hold, 0.0 if was_lost else hold._granted + request.at_least)
            hold._dropped = None
            if session is not None:
                await self.runtime.finish(lambda: self.resources.sessions.drop(session, hold))
        self._released(hold, held)
        return held

    def _released(self, hold: Hold, held: bool) -> None:
        hold._report_ref = None
        if self._reports is not None:
            self._reports.released(hold, held)

    async def _release_now(self, hold: Hold) -> bool:
        """Tries for as long as a call may take. Then the release continues in the background until the lease ends."""
        request, tries = hold._request, 0
        end = self.now() + self.timeout
        while True:
            try:
                reply = await self._settle(request, hold._grant)
            except (ReplyError, ConnectionLost) as error:
                tries += 1
                if not kinds.is_retried(error):
                    raise kinds.typed(error, request.name) from error
                if self.now() >= min(end, hold._lease.lost_at):
                    self._owe_release(hold)
                    self.log.warning("the lock %s is released in the background: %s", hold.key, error)
                    return self.now() < hold._lease.lost_at
                await self.runtime.sleep(PAUSE * tries)
                continue
            if request.was_held(reply):
                return True
            # A 0 after a second try may mean that the first one released it.
            return reply == 0 and tries > 0 and self.now() < hold._lease.lost_at

    async def _settle(self, request: Request, grant: Grant) -> Reply:
        """Releases the lock, with its result if it has one."""
        while True:
            result = grant.result
            if result is not None and grant.portable and self.now() < grant.result_until:
                await store(self.wire, request, grant.token, result, self.timeout)
            try:
                return await self._send(request, grant, lambda way: way.release(request, grant.token, grant.result))
            except ReplyError as error:
                if result is None or not is_too_long(error):
                    raise
                grant.result = None

    def _owe_release(self, hold: Hold, at: float = 0.0) -> None:
        """at: when `at_least` has passed."""
        wait = at - self.now()
        if wait > 0:
            self._debts.owe(at, lambda: self._cut_lease(hold, at - self.now()))
            self._debts.owe(at + 1, self._settling(hold), after=wait)
        else:
            self._debts.owe(hold._lease.ends_at, self._settling(hold))

    def _settling(self, hold: Hold) -> Debt:
        return lambda: self._settle(hold._request, hold._grant)

    async def _release_later(self, hold: Hold, wait: float) -> bool:
        """Cuts the lease to what is left of `at_least`. The timer then releases the lock."""
        try:
            reply = await self._cut_lease(hold, wait)
        except (ReplyError, ConnectionLost) as error:
            raise kinds.typed(error, hold.key) from error
        at, settle = self.now() + wait, self._settling(hold)
        self._timer.later(at, lambda: self._debts.owe(at + 1, settle))
        return bool(reply == 1)

    async def _cut_lease(self, hold: Hold, wait: float) -> Reply:
        lease_ms = max(1, round(wait * 1000))
        return await self._send(hold._request, hold._grant, lambda way: way.extend(hold._request, hold.token, lease_ms))

    # Locks that outlive their holds

    async def keep(self, hold: Hold, until: float, *, is_long: bool) -> bool:
        """Ends a hold whose lock stays until then, by the lease clock, or releases it if that time has passed.

        is_long: the lease already lasts until then. Returns whether the lock was held to the end.
        """
        if hold._pid != os.getpid() or hold._ended is not None or hold.lost is not None or self.now() >= until:
            return await self.release(hold)
        try:
            self._end_kept(hold)
            held = is_long or await self._keep_now(hold, until)
        except LockError:
            raise
        except BaseException:  # the caller was interrupted
            self.owe_keep(hold, until)
            raise
        self._released(hold, held)
        return held

    async def _keep_now(self, hold: Hold, until: float) -> bool:
        """Tries for as long as a call may take. Then it continues in the background until `until`."""
        tries = 0
        end = self.now() + self.timeout
        # A renewal that the server runs after this EXTEND would shorten the lease.
        while hold._lease.is_changing and self.now() < end:
            await self.runtime.sleep(PAUSE / 4)
        is_unsure = hold._lease.is_changing or self.now() < hold._failed_at + LATE_COPY
        while True:
            try:
                reply = await self._extend_until(hold, until)
            except (ReplyError, ConnectionLost) as error:
                tries += 1
                if not kinds.is_retried(error):
                    raise kinds.typed(error, hold.key) from error
                if self.now() >= end:
                    self.owe_keep(hold, until)
                    self.log.warning("the lock %s is kept for its period in the background: %s", hold.key, error)
                    return True
                await self.runtime.sleep(PAUSE * tries)
                continue
            if reply == 1 and (tries or is_unsure):
                self.owe_keep(hold, until, after=LATE_COPY)
            return bool(reply == 1)

    async def _extend_until(self, hold: Hold, until: float) -> Reply:
        """A slow EXTEND is sent again, at most twice: its lease may have been counted from too late a moment."""
        request, grant = hold._request, hold._grant

        def words(way: Way) -> Words:
            return way.extend(request, grant.token, max(1, math.ceil((until - self.now()) * 1000)))

        for _ in range(3):
            sent = self.now()
            reply = await self._send(request, grant, words)
            if reply != 1 or self.now() <= sent + LATE_EXTEND:
                break
        return reply

    def owe_keep(self, hold: Hold, until: float, after: float = 0.0) -> None:
        """Keeps a hold's lock in the background, with a last copy, because one without a reply may run late."""

        async def settle() -> None:
            reply = await self._extend_until(hold, until)
            if reply == 1 and not after:
                self.owe_keep(hold, until, LATE_COPY)
            elif reply == 0:
                self.log.warning("the lock %s ended before it could be kept for its period", hold.key)

        self._end_kept(hold)
        if self.now() + after < until:
            self._debts.owe(until, settle, after)

    def _end_kept(self, hold: Hold) -> None:
        hold._end()
        hold._dropped = None
        self._timer_of(hold).forget()

    def give_up(self, hold: Hold) -> None:
        """Releases a hold's lock in the background."""
        hold._end()
        self._timer_of(hold).forget()
        self._owe_release(hold)
        self._released(hold, True)

    async def margin(self, hold: Hold) -> float:
        """What the server adds to each lease."""
        if hold._grant.portable:
            return MARGIN_MS / 1000
        return await self.resources.clock.read_margin(lambda: self._ask_margin(hold._request.key))

    async def _ask_margin(self, key: bytes) -> float | None:
        fields = fields_of(await self.wire.call(key, ("LOCK.INFO", key), self.timeout))
        lease, free = fields.get("lease-ms"), fields.get("free-in-ms")
        # Both are whole milliseconds, one rounded down and the other up.
        return max(0, free - lease - 1) / 1000 if lease and isinstance(free, int) else None

    def lost(self, hold: Hold) -> None:
        """Called once for each lost hold."""
        self.log.warning("%s", hold._lost)
        hold._report_ref = None
        if self._reports is not None:
            self._reports.lost(hold)
        hold._stop_work()
        on_lost = hold._request.on_lost
        if on_lost is not None:
            self.runtime.call_back(lambda: on_lost(hold))


class BoundHold(Hold):
    """A hold with the engine that extends, verifies and releases it."""

    def __init__(self, engine: Engine, manager: object, request: Request, grant: Grant, began: float) -> None:
        super().__init__(manager, request, grant, began=began, pid=engine.pid, now=engine.now, on_lost=engine.lost)
        self._engine = engine


H = TypeVar("H", bound=BoundHold)
