"""The timer and the worker that renews are two threads: a hold stays renewed however they take turns."""

import sys
import time
import unittest
from pathlib import Path

import redis

from serverlock import Locks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suite"))

from servers import Server, until


class Turns(unittest.TestCase):
    def test_a_renewal_that_ends_before_the_timer_continues_is_followed_by_others(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        locks = Locks(redis.Redis(port=server.port))
        self.addCleanup(locks.close)
        renewals = locks._engine()._timer._renewals
        hand_over = renewals.set

        def slowly() -> None:
            hand_over()
            time.sleep(0.2)

        renewals.set = slowly  # type: ignore[method-assign]
        held = locks.lock("a", 3).acquire()
        first = held._lease.sent
        until("it is renewed", lambda: held._lease.sent > first)
        second = held._lease.sent
        until("it is renewed again, or lost", lambda: held._lease.sent > second or not held.is_held)
        self.assertTrue(held.is_held)


if __name__ == "__main__":
    unittest.main()
