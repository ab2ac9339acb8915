"""Managers that are closed or dropped while one of their threads is reading: nothing is left, nothing is reported."""

import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import redis

from serverlock import Hooks, LockLost, LockMisuse, LockRefused, Locks, LockTimeout

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suite"))

from servers import Server, until

SESSION = """
import redis, serverlock
locks = serverlock.Locks(redis.Redis(port=PORT))
locks.lock("a", 60, session=True).acquire().release()
locks.close()
locks.close()
"""


class Closing(unittest.TestCase):
    def test_a_process_that_closed_its_manager_ends_quietly(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        for _ in range(5):
            done = subprocess.run(
                [sys.executable, "-c", SESSION.replace("PORT", str(server.port))],
                capture_output=True,
                text=True,
                env={"PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")},
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_threads_end_quietly(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        complaints: list[Any] = []
        before, threading.excepthook = threading.excepthook, lambda args: complaints.append(args.exc_value)
        self.addCleanup(setattr, threading, "excepthook", before)
        theirs = Locks(redis.Redis(port=server.port)).lock("a", 60).acquire()
        for turn in range(20):
            locks = Locks(redis.Redis(port=server.port))
            waits = [threading.Thread(target=self.times_out, args=(locks,)) for _ in range(2)]  # one alone blocks
            for wait in waits:
                wait.start()
            for wait in waits:
                wait.join()
            del waits
            if turn % 2:
                locks.close()
            del locks
        until("the threads have ended", lambda: _threads("serverlock subscription") == 0)
        time.sleep(0.1)
        self.assertEqual(complaints, [])
        self.assertTrue(theirs.release())

    def times_out(self, locks: Locks) -> None:
        with self.assertRaises(LockTimeout):
            locks.lock("a", 30, wait=0.03).acquire()

    def test_a_lone_wait_ends_with_its_manager(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        theirs = Locks(redis.Redis(port=server.port)).lock("a", 60).acquire()
        locks = Locks(redis.Redis(port=server.port))
        wait = threading.Thread(target=lambda: self.assertRaises(LockMisuse, locks.lock("a", 30, wait=600).acquire))
        wait.start()
        conn = redis.Redis(port=server.port)
        until("it blocks", lambda: conn.info("clients")["blocked_clients"] == 1)
        locks.close()
        wait.join(60)
        self.assertFalse(wait.is_alive())
        until("its connection is closed", lambda: conn.info("clients")["connected_clients"] == 3)  # ours, theirs, its
        self.assertTrue(theirs.release())

    def test_no_thread_outlives_a_manager(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        before = set(threading.enumerate())
        for _ in range(5):
            locks = Locks(redis.Redis(port=server.port))
            locks.lock("a", 60).acquire().release()  # its timer would check it after 20 s
            locks.close()
        until("the threads have ended", lambda: set(threading.enumerate()) <= before)

    def test_a_loss_is_reported_after_the_manager_was_closed(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        told = threading.Event()
        locks = Locks(redis.Redis(port=server.port))
        held = locks.lock("a", 0.5, on_lost=lambda _: told.set()).acquire()
        locks.close()
        self.assertTrue(told.wait(60))
        with self.assertRaises(LockLost):
            held.check()

    def test_a_hook_that_fails_costs_no_lock(self) -> None:
        class Failing(Hooks):
            def granted(self, *_: object) -> None:
                raise ValueError("of the application")

            refused = released = granted

        server = Server()
        self.addCleanup(server.end)
        locks = Locks(redis.Redis(port=server.port), hooks=Failing())
        with self.assertLogs("serverlock", "ERROR") as logged:
            held = locks.lock("a", 60).acquire()
            with self.assertRaises(LockRefused):
                locks.lock("a", 60).acquire()
            self.assertTrue(held.release())
        self.assertEqual(len(logged.records), 3)


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


if __name__ == "__main__":
    unittest.main()
