"""A caller that is interrupted, then again while giving up: nothing is left behind on the server."""

import time
import unittest
from typing import Any

from served import Served
from servers import until


class Interrupt(BaseException):
    """Like gevent's GreenletExit, or an exception from a signal handler."""


class Interrupts(Served):
    def setUp(self) -> None:
        super().setUp()
        self.locks = self.opened()
        self.locks.lock("warm", 30).acquire().release()

    def interrupt(self, *commands: str) -> list[str]:
        """Interrupts the caller once in each of these commands: the server gets only the first of them."""
        wire: Any = self.locks._engine().wire
        self.call = call = wire.call
        left = list(commands)

        async def interrupted(key: bytes, words: Any, timeout: float) -> Any:
            if words[0] not in left:
                return await call(key, words, timeout)
            if words[0] == commands[0]:
                await call(key, words, timeout)
            left.remove(words[0])
            raise Interrupt

        wire.call = interrupted
        return left

    def test_an_attempt_that_is_interrupted_twice_leaves_no_lock(self) -> None:
        left = self.interrupt("LOCK.ACQUIRE", "LOCK.CANCEL")
        with self.assertRaises(Interrupt):
            self.locks.lock("a", 30).acquire()
        self.assertEqual(left, [])
        until("the lock is free", lambda: self.conn.info("a")["state"] == "free")

    def test_an_interrupted_release_continues_in_the_background(self) -> None:
        held = self.locks.lock("a", 30).acquire()
        left = self.interrupt("LOCK.CHECK", "LOCK.RELEASE")
        with self.assertRaises(Interrupt):
            held.release()
        self.assertEqual(left, ["LOCK.CHECK"])
        until("the lock is free", lambda: self.conn.info("a")["state"] == "free")

    def test_an_interrupted_release_holds_the_lock_for_at_least_its_time(self) -> None:
        for runs_first in (True, False):
            key = f"job {runs_first}"
            began = time.monotonic()
            held = self.locks.lock(key, 30, at_least=2).acquire()
            left = self.interrupt("LOCK.EXTEND") if runs_first else self.interrupt("", "LOCK.EXTEND")
            with self.assertRaises(Interrupt):
                held.release()
            self.assertNotIn("LOCK.EXTEND", left)
            self.locks._engine().wire.call = self.call
            until("the lock is free", lambda key=key: self.conn.info(key)["state"] == "free")
            self.assertGreater(time.monotonic() - began, 1.9)


if __name__ == "__main__":
    unittest.main()
