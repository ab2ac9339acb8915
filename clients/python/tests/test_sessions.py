"""Signal handlers that raise while a session attempt waits: they end that attempt, and no other lock of the session."""

import random
import signal
import socket
import threading
import unittest
from types import FrameType, SimpleNamespace
from typing import Any

import redis

from served import Served
from serverlock import LockDeadlock, LockLost
from serverlock.core.library import Library
from serverlock.core.wire import ReplyError
from serverlock.threads.runtime import run
from serverlock.threads.wire import ThreadConnection
from servers import until


class Interrupted(Exception):
    pass


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


class Sessions(Served):
    def setUp(self) -> None:
        super().setUp()
        self.locks = self.opened()
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)

    def session(self, key: str) -> object:
        return self.conn.info(key)["session"]

    def test_an_interrupted_wait_keeps_the_other_locks_of_the_session(self) -> None:
        token = self.conn.call("LOCK.ACQUIRE", "b", "PX", 600_000)
        held = self.locks.lock("a", 60, session=True).acquire()
        session, dice = self.session("a"), random.Random(11)
        wanted = self.locks.lock("b", 60, session=True, wait=60)
        for _ in range(40):
            signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.03 * dice.random())
            with self.assertRaises(Interrupted):
                wanted.acquire()
        until("nobody waits", lambda: self.conn.info("b")["waiters"] == 0)
        held.check()
        self.assertEqual(self.session("a"), session)
        self.conn.call("LOCK.RELEASE", "b", token)
        until("the session is free again", lambda: self.shares(wanted, session))
        self.assertTrue(held.release())
        until("no session is left", lambda: not len(self.locks._engine().resources.sessions))

    def shares(self, lock: Any, session: object) -> bool:
        got = lock.acquire()
        shared = self.session("b") == session
        self.assertTrue(got.release())
        return shared

    def test_a_manager_that_is_closed_before_a_reply_is_read_loses_the_session(self) -> None:
        """The reply to an interrupted wait is still to come, and the server does not answer. Nobody will read it."""
        locks = self.opened(timeout=0.3)
        self.conn.call("LOCK.ACQUIRE", "b", "PX", 600_000)
        held = locks.lock("a", 600, session=True).acquire()
        wanted = locks.lock("b", 60, session=True, wait=60)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        self.addCleanup(self.server.resume)
        threading.Timer(0.1, self.server.pause).start()
        with self.assertRaises(Interrupted):
            wanted.acquire()
        locks.close()
        with self.assertRaises(LockLost):
            held.check()

    def test_a_grant_whose_extend_meets_an_error_keeps_its_session(self) -> None:
        token = self.conn.call("LOCK.ACQUIRE", "a", "PX", 600_000)
        wire, refused = self.locks._engine().resources.wire, []
        call = wire.call

        async def refuse_once(key: bytes, words: Any, timeout: float) -> Any:
            if words[0] == "LOCK.EXTEND" and not refused:
                refused.append(words)
                raise ReplyError("TRYAGAIN", "TRYAGAIN")
            return await call(key, words, timeout)

        wire.call = refuse_once  # type: ignore[method-assign]

        def release() -> None:
            # Until more than a third of the lease has passed.
            until("it has waited", lambda: (self.conn.info("a")["oldest-wait-ms"] or 0) > 400)
            self.conn.call("LOCK.RELEASE", "a", token)

        releasing = threading.Thread(target=release)
        releasing.start()
        held = self.locks.lock("a", 1, session=True, wait=60).acquire()
        releasing.join()
        self.assertEqual(len(refused), 1)
        self.assertIsNotNone(self.session("a"))
        sessions = self.locks._engine().resources.sessions
        self.assertEqual(len(sessions), 1)
        held.check()
        self.assertTrue(held.release())

    def test_a_reading_that_ends_within_tls_is_not_a_reply(self) -> None:
        """Session tickets and key updates make the socket readable, but there is nothing to read."""
        sock: Any = type("Tls", (socket.socket,), {"pending": lambda _: 0})()
        self.addCleanup(sock.close)
        sender = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(sender.close)
        sock.connect(sender.getsockname())
        other, _ = sender.accept()
        self.addCleanup(other.close)
        other.sendall(b"a ticket")
        replies = iter([False, True])

        def can_read(timeout: float) -> bool:
            sock.recv(100)
            other.sendall(b"a reply")
            return next(replies)

        connection = ThreadConnection(
            Library(redis.Redis(), is_async=False), SimpleNamespace(_sock=sock, can_read=can_read)
        )
        self.assertTrue(run(lambda: connection.ready(60)))
        self.assertEqual(next(replies, None), None)

    def test_the_connection_of_a_dropped_hold_is_closed_with_the_last_one(self) -> None:
        held = self.locks.lock("a", 60, session=True).acquire()
        other = self.locks.lock("b", 60, session=True).acquire()
        session = self.session("a")
        del held
        other.check()
        self.assertEqual(self.session("b"), session)
        self.assertTrue(other.release())
        until("the dropped lock ends with its connection", lambda: self.conn.info("a")["state"] != "held")

    def test_one_caller_cannot_wait_for_itself(self) -> None:
        """In a scope the package refuses it. This hold has none, so the server finds the cycle."""
        kept = self.locks.lock("b", 60, session=True).acquire()
        with self.assertRaises(LockDeadlock):
            self.locks.lock("b", 60, session=True, wait=60).acquire()
        self.assertTrue(kept.release())


if __name__ == "__main__":
    unittest.main()
