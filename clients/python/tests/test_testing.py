"""The in-memory server, for threads: what docs/CLIENT_SPEC.md says under M1 to M6."""

import datetime
import gc
import logging
import math
import os
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from typing import Any

import serverlock
from serverlock import Held, Locks, testing
from serverlock.core.hold import Hold
from serverlock.errors import (
    LockBadArgument,
    LockDenied,
    LockLost,
    LockMisuse,
    LockRefused,
    LockTimeout,
    LockUnavailable,
)
from serverlock.testing.thread_clock import Counted


class Call(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.made: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.made = self._call()
        except Exception as error:
            self.made = error

    def get(self) -> Any:
        self.join(60)
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


class InMemory(unittest.TestCase):
    def setUp(self) -> None:
        logger = logging.getLogger("serverlock")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        self.addCleanup(logger.setLevel, level)
        self.server = testing.Server()
        self.one, self.two = self.server.locks(), self.server.locks()

    def wait(self, locks: Locks, key: str = "a", waiters: int = 1, **options: Any) -> Call:
        """An attempt that waits in the queue."""
        call = Call(locks.lock(key, 30, **{"wait": 60, **options}).acquire)
        self.server.until_waiting(key, waiters)
        return call


class Managers(InMemory):
    def test_a_manager_is_the_production_one(self) -> None:
        self.assertIsInstance(self.one, Locks)
        with self.one.lock("a", 30) as held:
            self.assertIs(type(held), Held)
            with self.assertRaises(LockMisuse):
                self.one.lock("a", 30).acquire()
            with self.assertRaises(LockRefused):
                self.two.lock("a", 30).acquire()
        with self.one.lock("a", 30, reentrant=True) as held:
            self.assertIs(self.one.lock("a", 30, reentrant=True).acquire(), held)
        self.assertGreater(self.two.lock("a", 30).acquire().token, held.token)
        with self.assertRaises(LockBadArgument):
            self.one.lock("a", 0)
        with self.assertRaises(TypeError):
            self.server.locks(unknown=1)  # type: ignore[call-arg]

    def test_production_does_not_load_it(self) -> None:
        for name in ("serverlock", "serverlock.aio"):
            code = f"import sys, {name}; sys.exit('serverlock.testing' in sys.modules)"
            self.assertEqual(_python(code), 0, name)

    def test_hooks_and_callbacks_are_called(self) -> None:
        seen: list[str] = []

        class Seen(serverlock.Hooks):
            def granted(self, key: str, waited: float) -> None:
                seen.append(f"granted {key} {waited}")

            def lost(self, key: str, held: float, error: Exception) -> None:
                seen.append(f"lost {key} {held}")

        locks = self.server.locks(hooks=Seen())
        held = locks.lock("a", 30, on_lost=lambda held: seen.append("on_lost")).acquire()
        self.server.clock.advance(5)
        self.server.lose(held)
        self.assertEqual(seen[0], "granted 'a' 0.0")
        self.assertEqual(sorted(seen[1:]), ["lost 'a' 5.0", "on_lost"])

    def test_a_closed_manager_and_a_dropped_one_leave_no_thread(self) -> None:
        for ends in (self.two.close, lambda: setattr(self, "two", None)):
            self.two.lock("a", 30).acquire().release()
            held = self.one.lock("b", 30).acquire()
            waiting = self.wait(self.two, "b")
            held.release()
            waiting.get().release()
            del waiting
            ends()
            gc.collect()
            self.two = self.server.locks()
        self.one.close()
        self.server.clock.advance(3600)
        for thread in threading.enumerate():
            if isinstance(thread, Counted) and thread._clock is self.server.clock:
                thread.join(60)
                self.assertFalse(thread.is_alive(), thread)


class Rules(InMemory):
    def test_several_holders_share_a_lock(self) -> None:
        held = [self.one.limit("a", 2, 30).acquire(), self.two.limit("a", 2, 30).acquire()]
        with self.assertRaises(LockRefused):
            self.one.limit("a", 2, 30).acquire()
        self.assertEqual([it.release() for it in held], [True, True])
        shared = [locks.shared("a", 30).acquire() for locks in (self.one, self.two)]
        writer = self.wait(self.two)
        with self.assertRaises(LockRefused, msg="it would overtake the writer"):
            self.one.shared("a", 30).acquire()
        for it in shared:
            it.release()
        self.assertTrue(writer.get().release())

    def test_several_keys_are_taken_together(self) -> None:
        held = self.one.lock("b", 30).acquire()
        waiting = Call(self.two.all_of(["a", "b"], 30, wait=60).acquire)
        self.server.until_waiting("b")
        self.one.lock("a", 30).acquire().release()
        held.release()
        self.assertEqual(waiting.get().verify(), 27.0)
        self.assertTrue(waiting.get().release())

    def test_a_command_runs_only_while_the_lock_is_held(self) -> None:
        held = self.one.lock("a", 30).acquire()
        self.assertEqual(held.fenced("SET", "x", "1"), b"OK")
        self.assertEqual(held.fenced("INCR", "x"), 2)
        with self.assertRaisesRegex(LockBadArgument, "GET, SET, DEL and INCR"):
            held.fenced("LPUSH", "x", "1")
        self.server.expire("a")
        with self.assertRaises(LockLost):
            held.fenced("GET", "x")

    def test_what_the_server_lacks_is_unavailable(self) -> None:
        for options in ({"replicas": 1}, {"fsync": True}):
            with self.assertRaisesRegex(LockUnavailable, "in memory"):
                self.one.lock("a", 30, **options).acquire()  # type: ignore[arg-type]
            self.two.lock("a", 30).acquire().release()

    def test_a_session_lock_waits_and_ends_with_its_connection(self) -> None:
        first: Any = self.one.lock("a", 30, session=True).acquire()
        waiting = self.wait(self.two, session=True)
        self.server.clock.advance(20)
        self.assertIsNone(waiting.made)
        first._session.connection._commands.disconnect(first._session.connection)
        self.server.clock.advance(0.9)
        self.assertIsNone(waiting.made)
        self.server.clock.advance(0.1)
        self.assertGreater(waiting.get().token, first.token)

    def test_one_of_several_processes_runs_a_tick(self) -> None:
        day = 24 * 3600
        for _ in range(3):
            made = [locks.once("job", day).run(lambda held: held.tick) for locks in (self.one, self.two)]
            self.assertEqual([it.outcome for it in made], ["ran", "elsewhere"])
            self.assertEqual(made[0].value, int(self.server.clock.time() / day + 0.5))
            self.server.clock.advance(day)

    def test_leaders_take_turns(self) -> None:
        seen: list[str] = []
        first = self.one.leader("a", 30, on_elected=lambda _: seen.append("0 leads")).start()
        self.server.clock.advance(0)
        second = self.two.leader("a", 30, on_elected=lambda _: seen.append("1 leads")).start()
        self.server.until_waiting("a")
        leaders = (first, second)
        leaders[0].resign()
        self.server.clock.advance(0)
        self.assertEqual(seen, ["0 leads", "1 leads"])
        self.server.clock.advance(600)
        self.assertEqual(leaders[1].token, next(leaders[0].observe()).token)
        for leader in leaders:
            leader.stop()


class Time(InMemory):
    def test_time_stands_still_until_it_is_moved(self) -> None:
        held = self.one.lock("a", 30).acquire()
        begun = self.server.clock.time()
        self.assertEqual(held.left(), 27.0)
        self.server.clock.advance(datetime.timedelta(seconds=4))
        self.assertEqual((held.left(), self.server.clock.time() - begun), (23.0, 4.0))
        with self.assertRaises(LockBadArgument):
            self.server.clock.advance(-1)

    def test_a_lock_is_renewed_and_max_hold_ends_that(self) -> None:
        held, bounded = self.one.lock("a", 30).acquire(), self.one.lock("b", 30, max_hold=15).acquire()
        self.server.clock.advance(600)
        held.check()
        self.assertTrue(bounded.lost)
        self.assertTrue(self.two.lock("b", 30).acquire())

    def test_what_falls_due_is_done_in_order(self) -> None:
        self.one.lock("a", 30).acquire()
        seen: list[str] = []

        def wait(name: str, seconds: float) -> None:
            try:
                self.two.lock("a", 30, wait=seconds).acquire()
            except LockTimeout as error:
                seen.append(f"{name}: {error}")

        for number, seconds in enumerate((30.0, 10.0, 20.0)):
            Call(lambda number=number, seconds=seconds: wait(f"{number}", seconds))  # type: ignore[misc]
            self.server.until_waiting("a", number + 1)
        self.server.clock.advance(9.99)
        self.assertEqual(seen, [])
        self.server.clock.advance(3600)
        self.assertEqual([it[0] for it in seen], ["1", "2", "0"])
        self.assertIn("after 10 s", seen[0])
        self.assertEqual(self.server.waiters("a"), 0)

    def test_a_holder_that_is_not_renewed_keeps_others_out_for_its_lease_and_the_margin(self) -> None:
        before = self.one.lock("a", 30, max_hold=1, owner="alice").acquire()
        waiting = self.wait(self.two, wait=math.inf, details=True)
        self.server.clock.advance(30.9)
        self.assertIsNone(waiting.made)
        self.assertTrue(before.lost, "the holder must know before others work")
        self.server.clock.advance(0.1)
        predecessor = waiting.get().predecessor
        self.assertEqual((predecessor.token, predecessor.owner, predecessor.overdue), (before.token, "alice", 0.0))

    def test_at_least_holds_a_released_lock(self) -> None:
        self.assertTrue(self.one.lock("a", 30, at_least=10).acquire().release())
        self.server.clock.advance(9)
        with self.assertRaises(LockRefused):
            self.two.lock("a", 30).acquire()
        self.server.clock.advance(1)
        self.two.lock("a", 30).acquire()


class Interference(InMemory):
    def test_an_expired_lease_passes_the_lock_on_and_the_holder_finds_out_later(self) -> None:
        lost: list[Hold] = []
        held = self.one.lock("a", 30, on_lost=lost.append).acquire()
        waiting = self.wait(self.two, details=True)
        self.server.expire("a")
        self.assertEqual(waiting.get().predecessor.token, held.token)
        held.check()
        self.server.clock.advance(10)
        self.assertEqual(lost, [held])
        with self.assertRaises(LockLost):
            held.check()
        self.assertFalse(held.release())

    def test_an_expired_lock_can_be_recovered(self) -> None:
        with self.assertRaisesRegex(LockRefused, "the lock is free"):
            self.two.recover("a", 30).acquire()
        held = self.one.lock("a", 30).acquire()
        with self.assertRaises(LockRefused):
            self.two.recover("a", 30).acquire()
        self.server.expire("a")
        got: Any = self.two.recover("a", 30).acquire()
        self.assertEqual(got.predecessor.token, held.token)
        with self.assertRaises(LockLost):
            held.verify()

    def test_a_lost_hold_is_reported_at_once(self) -> None:
        lost: list[Hold] = []
        with self.assertRaises(LockLost), self.one.lock("a", 30, on_lost=lost.append) as held:
            waiting = self.wait(self.two)
            self.server.lose(held)
            self.assertEqual(lost, [held])
            self.assertIsNotNone(held.lost)
            self.assertTrue(waiting.get().verify())
        with self.assertRaisesRegex(LockBadArgument, "another server"):
            self.server.lose(testing.Server().locks().lock("a", 30).acquire())

    def test_a_refused_key_fails_until_it_is_allowed(self) -> None:
        held = self.one.lock("a", 30).acquire()
        waiting = self.wait(self.two)
        self.server.refuse("a")
        with self.assertRaises(LockUnavailable):
            waiting.get()
        for wait in (0, 60):
            with self.assertRaises(LockUnavailable):
                self.two.lock("a", 30, wait=wait).acquire()
        self.two.lock("b", 30).acquire()
        with self.assertRaises(LockUnavailable):
            held.extend()
        self.server.clock.advance(26.9)
        held.check()
        self.server.clock.advance(0.1)
        self.assertTrue(held.lost, "no renewal has succeeded")
        self.server.refuse("a", "denied")
        with self.assertRaises(LockDenied):
            self.two.lock("a", 30).acquire()
        with self.assertRaises(LockBadArgument):
            self.server.refuse("a", "tired")
        self.server.allow("a")
        self.server.clock.advance(10)
        self.assertTrue(self.two.lock("a", 30).acquire().release())

    def test_a_holder_of_a_refused_key_can_release_it(self) -> None:
        held = self.one.lock("a", 30).acquire()
        self.server.refuse("a")
        self.assertTrue(held.release())


def _python(code: str) -> int:
    return subprocess.run([sys.executable, "-c", code], env={**os.environ}).returncode


if __name__ == "__main__":
    unittest.main()
