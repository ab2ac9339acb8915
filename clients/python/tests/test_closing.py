"""Managers that are closed, or dropped, while a thread of theirs reads: nothing is left, and nobody complains."""

import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import redis

from serverlock import Locks, LockTimeout

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suite"))

from servers import Server, until  # noqa: E402


class Closing(unittest.TestCase):
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
        until("the threads have ended", lambda: _threads("serverlock subscription") == 0, 10)
        time.sleep(0.1)
        self.assertEqual(complaints, [])
        self.assertTrue(theirs.release())

    def times_out(self, locks: Locks) -> None:
        with self.assertRaises(LockTimeout):
            locks.lock("a", 30, wait=0.03).acquire()

    def test_a_lone_wait_ends_when_it_should_after_its_manager_was_closed(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        theirs = Locks(redis.Redis(port=server.port)).lock("a", 60).acquire()
        locks = Locks(redis.Redis(port=server.port))
        wait = threading.Thread(target=lambda: self.assertRaises(LockTimeout, locks.lock("a", 30, wait=3).acquire))
        wait.start()
        conn = redis.Redis(port=server.port)
        until("it blocks", lambda: conn.info("clients")["blocked_clients"] == 1)
        locks.close()
        wait.join(10)
        self.assertFalse(wait.is_alive())
        until("its line is closed", lambda: conn.info("clients")["connected_clients"] == 3, 10)  # ours, theirs, its own
        self.assertTrue(theirs.release())


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


if __name__ == "__main__":
    unittest.main()
