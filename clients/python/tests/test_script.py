"""The words that the package sends where the module is not loaded, and the meaning of replies. No server is needed."""

import unittest
from typing import Any

import redis

from serverlock import Locks, LockUnavailable
from serverlock.core.hold import Grant
from serverlock.core.module import Module
from serverlock.core.request import Request, queue_of
from serverlock.core.way import No, Place, Way
from serverlock.core.wire import ReplyError

UNKNOWN = ReplyError("ERR", "ERR unknown command 'LOCK.ACQUIRE'")


class WithoutTheModule(unittest.TestCase):
    def setUp(self) -> None:
        self.locks = Locks(redis.Redis(port=1), warn_without_module=False)
        self.addCleanup(self.locks.close)
        self.module: Module = self.locks._engine().resources.module

    def request(self, lock: Any) -> Request:
        made: Request = lock._request
        return made

    def after(self, request: Request, way: Way, *codes: str) -> Way | None:
        """The way after these errors."""
        for code in codes:
            instead = self.module.instead(request, way, ReplyError(code, f"{code} no"))
            if instead is None:
                return None
            way = instead
        return way

    def script(self, request: Request) -> Way:
        way = self.module.instead(request, self.module.commands, UNKNOWN)
        assert way is not None
        return way

    def words(self, request: Request, way: Way, wait_ms: int = 0, channel: str | None = None) -> tuple[Any, ...]:
        """Without the script, margin and retention, which are the same in all calls."""
        words = tuple(way.acquire(request, "7", wait_ms, channel))
        self.assertEqual(words[0], "EVAL")
        count = 3 + words[2]
        self.assertEqual(words[count + 1 : count + 3], (1000, -1))
        return words[2 : count + 1] + words[count + 3 :]

    def test_the_queue_has_the_slot_of_its_lock(self) -> None:
        for key, queue in (
            (b"report", b"report:queue:{report}"),
            (b"\xff\n", b"\xff\n:queue:{\xff\n}"),
            (b"", b":queue:{}"),
            (b"{42}:report", b"{42}:report:queue"),
            (b"a\n{b}c{d", b"a\n{b}c{d:queue"),
            (b"a{{b}", b"a{{b}:queue"),
            (b"a{b", None),
            (b"a}b", None),
            (b"{}a", None),
            (b"a{}{b}", None),
        ):
            self.assertEqual(queue_of(key), queue, key)

    def test_calls_name_the_lock_and_its_queue(self) -> None:
        lock = self.request(self.locks.lock("a", 1, owner="bob", wait=5))
        way, queue = self.script(lock), b"a:queue:{a}"
        options = (b"PX", 1000, b"ID", "7", b"OWNER", "bob")
        self.assertEqual(self.words(lock, way), (2, b"a", queue, "lock_acquire", *options))
        self.assertEqual(self.words(lock, way, 5000), (2, b"a", queue, "lock_acquire", *options))
        waits = (b"PX", 1000, b"WAIT", 5000, b"ID", "7", b"NOTIFY", "channel", b"OWNER", "bob")
        self.assertEqual(self.words(lock, way, 5000, "channel"), (2, b"a", queue, "lock_acquire", *waits))
        limit = self.request(self.locks.limit("a", 3, 1, owner=None))
        self.assertEqual(self.words(limit, way)[-2:], (b"LIMIT", 3))
        many = self.request(self.locks.all_of(["a", "{b}"], 1, owner=None))
        self.assertEqual(
            self.words(many, way, 5000, "channel"),
            (4, b"a", b"{b}", queue, b"{b}:queue", "lock_acquire_all", b"PX", 1000, b"ID", "7"),
        )
        self.assertEqual(tuple(way.check(many, 5, b"{b}"))[2:6], (2, b"{b}", b"{b}:queue", "lock_check"))
        self.assertEqual(tuple(way.release(many, 5))[7], "lock_release_all")

    def test_a_place_is_not_taken_for_details(self) -> None:
        way = self.script(self.request(self.locks.lock("a", 1)))
        self.assertEqual(way.read([b"WAITING", 1500], 0, waits=True), Place(1.5))
        self.assertEqual(way.read(["WAITING", 0], 0, waits=True), Place(0))
        self.assertEqual(way.read(b"WAITING", 0, waits=True), Place(5))
        self.assertIs(way.read(None, 0, waits=False), No.REFUSED)
        polls = way.read(None, 0, waits=True)
        assert isinstance(polls, Place)
        self.assertFalse(polls.is_queued)
        granted = way.read([12, 1000, 11, b"bob"], 3.0, waits=True)
        assert isinstance(granted, Grant) and granted.predecessor is not None
        self.assertEqual((granted.token, granted.predecessor.owner, granted.portable), (12, "bob", True))
        with self.assertRaisesRegex(ReplyError, "unexpected"):
            way.read([b"WAITING"], 0, waits=True)

    def test_only_the_lock_is_named_where_two_keys_cannot_be_used(self) -> None:
        lock, shared = self.request(self.locks.lock("a", 1)), self.request(self.locks.shared("a", 1))
        script = self.script(lock)
        self.assertIs(self.after(lock, script, "NOSCRIPT"), script)
        for code in ("TRYAGAIN", "NOPERM"):
            alone = self.after(lock, script, code)
            assert alone is not None
            self.assertEqual(self.words(lock, alone, 5000, "channel")[:3], (1, b"a", "lock_acquire"))
            self.assertFalse(alone.queues(lock))
            self.assertIsNone(self.after(shared, script, code))
        self.assertIs(self.module.script(lock), alone, "the denial is remembered")
        self.assertIs(self.module.script(shared), script)
        self.assertIsNone(self.after(lock, alone, "NOPERM"), "it is about the lock")
        self.assertIs(self.module.script(lock), script)

    def test_a_name_without_a_queue_is_locked_alone_or_not_at_all(self) -> None:
        lock = self.request(self.locks.lock("a{b", 1))
        way = self.script(lock)
        self.assertEqual(self.words(lock, way, 5000, "channel")[:3], (1, b"a{b", "lock_acquire"))
        for kind in (self.locks.shared("a{b", 1), self.locks.limit("a{b", 2, 1), self.locks.all_of(["c", "a{b"], 1)):
            with self.assertRaisesRegex(LockUnavailable, "needs? the module.*brace but no hash tag"):
                self.module.way(self.request(kind))


if __name__ == "__main__":
    unittest.main()
