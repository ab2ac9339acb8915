"""The connections of session locks. Those of one caller share one, so the server sees a client that holds one lock and
waits for another, and finds deadlocks.

One attempt at a time uses a session's connection. Meanwhile another attempt by the same caller gets a new connection. A
connection is closed with its last hold, and its end loses all of its locks.
"""

import threading
import weakref
from collections.abc import Hashable
from typing import Protocol

from .clock import Clock
from .debts import Debts
from .wire import Connection, ConnectionLost, Reply, ReplyError, Runtime, Wire, Words

# How long the background waits for the reply to an interrupted attempt before it does other work.
GLANCE = 0.02


class Losable(Protocol):
    """A hold."""

    def _lose(self, why: str, *, gone: bool = False) -> None: ...


class Session:
    """A connection and its holds. The attempt that has taken it may make calls, one at a time."""

    def __init__(self, now: Clock, connection: Connection, server: Hashable, taker: object) -> None:
        self._now, self.connection, self.server, self.taker = now, connection, server, taker
        self.holds: list[weakref.ref[Losable]] = []
        self._pending_until = 0.0

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    @property
    def is_pending(self) -> bool:
        """Whether a caller was interrupted before the reply came."""
        return self._pending_until > 0 and self.is_open

    async def call(self, words: Words, timeout: float) -> Reply:
        """One exchange. An interrupted caller leaves the connection open: `settle` reads the reply later."""
        self._pending_until = self._now() + timeout
        await self.connection.send(words)
        if not await self.connection.ready(timeout):
            await self.connection.close()
            raise ConnectionLost(TimeoutError(f"no reply within {timeout:g} s"))
        try:
            return await self.connection.receive()
        finally:
            self._pending_until = 0.0

    async def settle(self) -> None:
        """Reads the reply that an interrupted caller left. Raises ConnectionLost as long as there is none."""
        if not self.is_pending:
            return
        if await self.connection.ready(GLANCE):
            try:
                await self.connection.receive()  # LOCK.CANCEL has ended the wait, or the grant
            except ReplyError:
                pass
            self._pending_until = 0.0
        elif self._now() >= self._pending_until:
            await self.connection.close()
        else:
            raise ConnectionLost(TimeoutError("no reply yet"))

    async def close(self) -> None:
        await self.connection.close()


class Sessions:
    def __init__(self, runtime: Runtime, wire: Wire, debts: Debts, timeout: float) -> None:
        self._runtime, self._wire, self._debts, self._timeout = runtime, wire, debts, timeout
        self._mutex = threading.Lock()
        self._by_caller: dict[Hashable, list[Session]] = {}

    def __len__(self) -> int:
        return sum(len(sessions) for sessions in list(self._by_caller.values()))

    async def take(self, taker: object, key: bytes) -> Session:
        """The caller's session, or a new one. The taker must be given to `keep` or `give_back`."""
        caller, server = self._runtime.caller(), await self._wire.server_of(key)
        with self._mutex:
            for session in self._by_caller.get(caller, ()):
                if session.taker is None and session.server == server and session.is_open:
                    session.taker = taker
                    break
            else:
                session = None
        if session is not None:
            await self._runtime.unwatch(session.connection)
            if session.is_open:
                return session
            await self.give_back(taker)
        connection = await self._wire.connect(key, self._timeout)
        session = Session(self._runtime.now, connection, server, taker)
        with self._mutex:
            self._by_caller.setdefault(caller, []).append(session)
        return session

    def keep(self, session: Session, hold: Losable) -> None:
        """Adds the hold that the taker got."""
        with self._mutex:
            session.holds.append(weakref.ref(hold))
            session.taker = None
        self._watch(session)

    async def give_back(self, taker: object) -> None:
        """Ends the use of the session that this taker has, if it has one."""
        with self._mutex:
            session = next((it for them in self._by_caller.values() for it in them if it.taker is taker), None)
            if session is None:
                return
            if session.is_pending:
                session.taker = draining = object()
        if session.taker is taker:
            await self._end_use(session)
            return

        async def drain() -> None:
            await session.settle()
            if session.taker is draining:
                await self._end_use(session)

        # `settle` ends earlier than this, by closing the connection.
        self._debts.owe(float("inf"), drain)

    async def drop(self, session: Session, hold: Losable | None) -> None:
        """Removes a hold that has ended. None: one that nobody refers to any longer."""
        with self._mutex:
            session.holds = [ref for ref in session.holds if ref() not in (hold, None)]
            is_last = not session.holds and session.taker is None
            if is_last:
                self._forget(session)
        if is_last:
            await self._runtime.unwatch(session.connection)
            await session.close()

    async def close(self) -> None:
        """Ends the attempts that are waiting, and those whose reply is still to come: their connections are closed."""
        with self._mutex:
            used = [it for them in self._by_caller.values() for it in them if it.taker is not None]
        for session in used:
            await session.close()
            self._lose(session)

    async def _end_use(self, session: Session) -> None:
        with self._mutex:
            session.taker = None
            is_last = not session.holds or not session.is_open
            if is_last:
                self._forget(session)
        if not is_last:
            self._watch(session)
            return
        await session.close()
        self._lose(session)

    def _watch(self, session: Session) -> None:
        def ended() -> None:
            with self._mutex:
                self._forget(session)
            self._lose(session)

        self._runtime.watch(session.connection, ended)

    def _lose(self, session: Session) -> None:
        for ref in session.holds:
            held = ref()
            if held is not None:
                held._lose("the connection of its session has closed", gone=True)

    def _forget(self, session: Session) -> None:
        for caller, sessions in list(self._by_caller.items()):
            if session in sessions:
                sessions.remove(session)
                if not sessions:
                    del self._by_caller[caller]
