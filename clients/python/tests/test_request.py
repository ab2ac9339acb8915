"""What is sent, and what is refused before anything is sent: no server is needed."""

import math
import unittest
from datetime import timedelta

import redis

from serverlock import LockBadArgument, Locks
from serverlock.core import judge
from serverlock.core.request import Request
from serverlock.core.wire import Broken, Said, said


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
        waiting = request(self.locks.limit(b"a", 3, 2)).acquire("7", 500, "channel")
        self.assertEqual(waiting, ("LOCK.ACQUIRE", b"a", b"PX", 2000, b"WAIT", 500, b"ID", "7", b"NOTIFY", "channel",
                                   b"LIMIT", 3))
        many = request(self.locks.all_of(["a", "b"], 2))
        self.assertEqual(many.acquire("7", 9), ("LOCK.MACQUIRE", 2, b"a", b"b", b"PX", 2000, b"WAIT", 9, b"ID", "7"))
        self.assertEqual(many.extend(5, 10), ("LOCK.MEXTEND", 2, b"a", b"b", 5, b"PX", 10))
        self.assertEqual(many.release(5), ("LOCK.MRELEASE", 2, b"a", b"b", 5))
        self.assertFalse(many.was_held(1))

    def test_a_notify_wait_is_at_most_an_hour(self) -> None:
        self.assertIn(3_600_000, request(self.locks.lock("a", 2, wait=math.inf)).acquire("7", 10**9, "channel"))

    def test_numbers_that_are_none_are_refused(self) -> None:
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
    def test_code_words_survive_the_library(self) -> None:
        for error, code in (
            (redis.exceptions.ReadOnlyError("You can't write"), "READONLY"),
            (redis.exceptions.ResponseError("GRACE this server"), "GRACE"),
            (redis.exceptions.ResponseError("syntax error"), "ERR"),
            (redis.exceptions.NoPermissionError("this user"), "NOPERM"),
        ):
            self.assertEqual(said(error).code, code)
            self.assertTrue(str(said(error)).startswith(code))

    def test_what_may_pass(self) -> None:
        self.assertTrue(judge.may_pass(Said("MOVED", "MOVED 1 x"), False))
        self.assertTrue(judge.may_pass(Broken(OSError("gone")), False))
        self.assertFalse(judge.may_pass(Broken(OSError("wrong password"), final=True), True))
        self.assertFalse(judge.may_pass(Said("GRACE", "GRACE"), False))
        self.assertTrue(judge.may_pass(Said("GRACE", "GRACE"), True))
        self.assertFalse(judge.may_pass(Said("DEADLOCK", "DEADLOCK"), True))


if __name__ == "__main__":
    unittest.main()
