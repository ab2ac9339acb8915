"""One result for many callers of a process: storms of cancellations, hooks, and interrupted callers."""

import asyncio
import random
import threading
import unittest
from typing import Any

import redis.asyncio

from resp import queue_of
from served import Served
from serverlock import Held, Hooks, LockBadArgument, LockMisuse, Locks, aio, testing
from serverlock.core.request import queue_of as queue
from serverlock.core.request import result_of
from serverlock.hooks import Attempt
from servers import until


class Names(unittest.TestCase):
    def test_the_result_is_named_like_the_queue(self) -> None:
        for key in (b"report", b"{42}:report", b"a:queue", b"a:queue:{b}"):
            self.assertEqual(str(queue(key), "ascii"), queue_of(key.decode()))
            self.assertEqual(len(result_of(key) or b""), len(queue(key) or b"") + 1)
        self.assertEqual(result_of(b"a:queue"), b"a:queue:result:{a:queue}")
        self.assertIsNone(result_of(b"a{b"))


class Counting(Hooks):
    def __init__(self) -> None:
        self.called: list[str] = []
        self.attempts: list[tuple[tuple[str, ...], str, int | None, BaseException | None]] = []

    def granted(self, key: str, waited: float) -> None:
        self.called.append("granted")

    def refused(self, key: str, waited: float, error: Any) -> None:
        self.called.append("refused")

    def released(self, key: str, held: float, in_time: bool) -> None:
        self.called.append("released")

    def attempted(self, attempt: Attempt) -> None:
        self.attempts.append((attempt.keys, attempt.operation, attempt.token, attempt.error))


class Flights(Served):
    def test_a_result_is_an_attempt_without_token_and_error(self) -> None:
        hooks = Counting()
        locks, other = self.opened(), self.opened(hooks=hooks)
        got: list[bytes] = []
        waiter = threading.Thread(target=lambda: got.append(other.single_flight("a", 30, lambda _: b"other")))

        def compute(_: Held) -> bytes:
            waiter.start()
            until("it waits", lambda: self.conn.info("a")["waiters"] == 1)
            return b"mine"

        self.assertEqual(locks.single_flight("a", 30, compute), b"mine")
        waiter.join()
        self.assertEqual((got, hooks.called), ([b"mine"], []))
        self.assertEqual(hooks.attempts, [(("a",), "LOCK.ACQUIRE", None, None)])

    def test_a_thousand_callers_are_cancelled_at_random(self) -> None:
        async def storm() -> None:
            client = redis.asyncio.Redis(port=self.server.port)
            locks, dice, computed = aio.Locks(client), random.Random(7), 0

            async def compute(_: Any) -> bytes:
                nonlocal computed
                computed += 1
                await asyncio.sleep(0.01)
                return b"value"

            async def call(key: str) -> bytes | None:
                try:
                    async with asyncio.timeout(dice.choice((0.0, 0.005, 0.02, 30))):
                        return await locks.single_flight(key, 30, compute)
                except TimeoutError:
                    return None

            made = await asyncio.gather(*(call(f"k{number % 3}") for number in range(1000)))
            self.assertLessEqual(set(made), {b"value", None})
            self.assertIn(b"value", made)
            self.assertLess(computed, 30)
            self.assertEqual(len(locks._engine().flights), 0)
            await locks.aclose()
            await client.aclose()

        asyncio.run(storm())
        for number in range(3):
            until("it is free", lambda number=number: self.conn.info(f"k{number}")["state"] == "free")


class Arguments(unittest.TestCase):
    def test_bad_arguments_and_values_are_refused(self) -> None:
        locks: Locks = testing.Server().locks()
        for wait in (0, -1):
            with self.assertRaisesRegex(LockBadArgument, "wait"):
                locks.single_flight("a", 30, lambda _: b"", wait=wait)
        with self.assertRaisesRegex(LockBadArgument, "str"):
            locks.single_flight("a", 30, lambda _: "text")  # type: ignore[arg-type, return-value]
        with self.assertRaises(LockMisuse):
            locks.single_flight("a", 30, lambda _: locks.single_flight("a", 30, lambda _: b""))
        self.assertEqual(locks.single_flight("a", 30, lambda _: b""), b"")


if __name__ == "__main__":
    unittest.main()
