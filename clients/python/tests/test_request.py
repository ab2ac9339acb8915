"""Command words, and arguments that are refused before anything is sent: no server is needed."""

import math
import os
import socket
import unittest
from datetime import timedelta

import redis

from serverlock import LockBadArgument, LockDeadlock, LockDenied, Locks, LockTimeout, LockUnavailable
from serverlock.core import kinds
from serverlock.core.owner import _label
from serverlock.core.request import Request
from serverlock.core.wire import ConnectionLost, ReplyError, reply_error


def request(lock: object) -> Request:
    made = lock._request  # type: ignore[attr-defined]
    assert isinstance(made, Request)
    return made


class Words(unittest.TestCase):
    def setUp(self) -> None:
        self.locks = Locks(redis.Redis())

    def test_options_become_words(self) -> None:
        lock = self.locks.lock("a", timedelta(seconds=1.5), owner="bob", session=True, details=True)
        words = ("LOCK.ACQUIRE", b"a", b"PX", 1500, b"ID", "7", b"OWNER", "bob", b"SESSION", b"DETAILS")
        self.assertEqual(request(lock).acquire("7"), words)
        waiting = request(self.locks.limit(b"a", 3, 2, owner=None)).acquire("7", 500, "channel")
        self.assertEqual(
            waiting, ("LOCK.ACQUIRE", b"a", b"PX", 2000, b"WAIT", 500, b"ID", "7", b"NOTIFY", "channel", b"LIMIT", 3)
        )
        many = request(self.locks.all_of(["a", "b"], 2, owner=None))
        self.assertEqual(many.acquire("7", 9), ("LOCK.MACQUIRE", 2, b"a", b"b", b"PX", 2000, b"WAIT", 9, b"ID", "7"))
        self.assertEqual(many.extend(5, 10), ("LOCK.MEXTEND", 2, b"a", b"b", 5, b"PX", 10))
        self.assertEqual(many.release(5), ("LOCK.MRELEASE", 2, b"a", b"b", 5))
        self.assertFalse(many.was_held(1))

    def test_the_owner_is_this_host_and_process(self) -> None:
        lock = request(self.locks.lock("a", 2))
        words = lock.acquire("7")
        self.assertEqual(words[words.index(b"OWNER") + 1], f"{socket.gethostname()}:{os.getpid()}")
        child = os.fork()
        if child == 0:
            words = lock.acquire("7")
            os._exit(words[words.index(b"OWNER") + 1] != f"{socket.gethostname()}:{os.getpid()}")
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertNotIn(b"OWNER", request(self.locks.lock("a", 2, owner=None)).acquire("7"))

    def test_a_host_name_becomes_a_valid_owner(self) -> None:
        self.assertEqual(_label("web 1.ex\u00e4mple", 12), "web?1.ex?mple:12")
        self.assertEqual(_label("h" * 300, 12), "h" * 125 + ":12")

    def test_a_notify_wait_is_at_most_an_hour(self) -> None:
        self.assertIn(3_600_000, request(self.locks.lock("a", 2, wait=math.inf)).acquire("7", 10**9, "channel"))

    def test_invalid_numbers_are_refused(self) -> None:
        for lease in (True, math.nan, 0, -1, "5", None, 10**10, timedelta(0)):
            with self.assertRaisesRegex(LockBadArgument, "the lock 'a': lease is"):
                self.locks.lock("a", lease)  # type: ignore[arg-type]
        for limit in (0, 4097, 2.0, True):
            with self.assertRaisesRegex(LockBadArgument, "the lock 'a': n is"):
                self.locks.limit("a", limit, 5)  # type: ignore[arg-type]

    def test_clients_of_the_other_kind_are_refused(self) -> None:
        for client in (redis.asyncio.Redis(), redis.Redis().pipeline(), object()):
            with self.assertRaisesRegex(LockBadArgument, "client is"):
                Locks(client)


class Errors(unittest.TestCase):
    def test_error_codes_survive_the_library(self) -> None:
        for error, code in (
            (redis.exceptions.ReadOnlyError("You can't write"), "READONLY"),
            (redis.exceptions.ResponseError("GRACE this server"), "GRACE"),
            (redis.exceptions.ResponseError("syntax error"), "ERR"),
            (redis.exceptions.NoPermissionError("this user"), "NOPERM"),
        ):
            self.assertEqual(reply_error(error).code, code)
            self.assertTrue(str(reply_error(error)).startswith(code))

    def test_which_errors_are_retried_and_what_they_become(self) -> None:
        waited = 1.0
        for text, passes, kind in (
            ("MOVED 1 x", True, LockTimeout),
            ("BUSY Redis is busy running a script", True, LockTimeout),
            ("MISCONF Redis is configured to save", True, LockTimeout),
            ("OOM command not allowed", True, LockTimeout),
            ("NOREPLICAS not enough", True, LockTimeout),
            ("GRACE this server has just started", True, LockTimeout),
            ("BUSYLOCKS lock.max-waiters clients already wait", True, LockTimeout),
            ("GRACE lease is longer than 5 ms", False, LockUnavailable),
            ("BUSYLOCKS 64 waits for several keys", False, LockUnavailable),
            ("CLOCK went back", False, LockUnavailable),
            ("DEADLOCK", False, LockDeadlock),
            ("NOPERM no", False, LockDenied),
            ("WRONGTYPE no", False, LockBadArgument),
            ("ERR keys 1 to 65 total more than 262144 bytes", False, LockBadArgument),
        ):
            error = ReplyError(text.split()[0], text)
            self.assertEqual(kinds.is_retried(error), passes, text)
            self.assertIs(type(kinds.typed(error, "a", waited)), kind, text)
            without_wait = LockUnavailable if kind is LockTimeout else kind
            self.assertIs(type(kinds.typed(error, "a")), without_wait, text)
        self.assertTrue(kinds.is_retried(ConnectionLost(OSError("gone"))))
        self.assertFalse(kinds.is_retried(ConnectionLost(OSError("wrong password"), final=True)))


if __name__ == "__main__":
    unittest.main()
