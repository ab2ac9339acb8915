"""Locks that a message takes from one process to another, with the module and with the script."""

import unittest

import redis

from served import Served
from serverlock import LockNoServer, LockRefused, Locks
from serverlock.core.handover import drop, grant, resume
from serverlock.core.hold import Grant
from serverlock.core.request import request_of
from serverlock.threads.held import Held
from serverlock.threads.runtime import run
from servers import Server, until

REQUEST = request_of(["a"], 30)


class Handover(Served):
    def pair(self) -> tuple[Locks, Locks]:
        """The managers of two processes."""
        return self.opened(), self.opened()

    def granted(self, locks: Locks) -> Grant:
        return run(lambda: grant(locks._engine(), REQUEST))

    def resumed(self, locks: Locks, token: int) -> Held | None:
        return run(lambda: resume(locks._engine(), locks, REQUEST, token, Held))

    def test_another_process_resumes_the_lock(self) -> None:
        sender, worker = self.pair()
        token = self.granted(sender).token
        with self.assertRaises(LockRefused):
            self.granted(worker)
        held = self.resumed(worker, token)
        assert held is not None
        self.assertEqual((held.token, held.is_held), (token, True))
        self.assertTrue(held.release())
        self.assertIsNone(self.resumed(worker, token))

    def test_a_resumed_lock_is_renewed(self) -> None:
        sender, worker = self.pair()
        short = request_of(["a"], 0.6)
        token = self.granted(sender).token
        held = run(lambda: resume(worker._engine(), worker, short, token, Held))
        assert held is not None
        left = held._lease.lost_at
        until("it is renewed", lambda: held._lease.lost_at > left)
        self.assertTrue(held.release())

    def test_a_dropped_grant_is_released(self) -> None:
        sender, worker = self.pair()
        granted = self.granted(sender)
        drop(sender._engine(), REQUEST, granted)
        until("it is free", lambda: worker.lock("a", lease=30, wait=10).acquire().release())

    def test_an_unreachable_server_is_an_error_of_this_package(self) -> None:
        sender, worker = self.pair()
        token = self.granted(sender).token
        self.server.kill()
        for call in (lambda: self.granted(sender), lambda: self.resumed(worker, token)):
            with self.assertRaises(LockNoServer):
                call()


class WithoutModule(Handover):
    def setUp(self) -> None:
        self.server = Server(module=False)
        self.addCleanup(self.server.end)

    def pair(self) -> tuple[Locks, Locks]:
        def opened() -> Locks:
            return self.opened(redis.Redis(port=self.server.port), warn_without_module=False)

        return opened(), opened()


if __name__ == "__main__":
    unittest.main()
