"""Endless waits, in each way of waiting."""

import asyncio
import gc
import math
import threading
import unittest
from typing import Any

import redis
import redis.asyncio

import serverlock.aio
from served import Served
from serverlock import Locks
from servers import until


class Registration(unittest.TestCase):
    def test_an_attempt_that_ends_without_unregistering_leaves_nothing(self) -> None:
        """A signal handler may end an attempt at the beginning of `unregister`."""
        locks = Locks(redis.Redis(port=1))
        self.addCleanup(locks.close)
        subscription = locks._engine().resources.subscription
        news = subscription.register("1", b"report")
        self.assertIs(subscription._by_id.get("1"), news)
        del news
        gc.collect()
        self.assertEqual(len(subscription._by_id), 0)


class Waiting(Served):
    def setUp(self) -> None:
        super().setUp()
        self.token = self.conn.call("LOCK.ACQUIRE", "a", "PX", 60_000)

    def test_threads_wait_forever(self) -> None:
        locks = Locks(redis.Redis(port=self.server.port))
        for count in (1, 3):  # a single waiter blocks, several wait with NOTIFY
            got: list[bool] = []
            waits = [
                threading.Thread(
                    target=lambda got=got: got.append(locks.lock("a", 30, wait=math.inf).acquire().release())
                )
                for _ in range(count)
            ]
            for wait in waits:
                wait.start()
            self.give_way(count)
            for wait in waits:
                wait.join(120)
            self.assertEqual(got, [True] * count)
            self.token = self.conn.call("LOCK.ACQUIRE", "a", "PX", 60_000)

    def test_tasks_wait_forever(self) -> None:
        async def play(count: int) -> list[bool]:
            client: Any = redis.asyncio.Redis(port=self.server.port)
            locks = serverlock.aio.Locks(client)

            async def wait() -> bool:
                return await (await locks.lock("a", 30, wait=math.inf).acquire()).release()

            tasks = [asyncio.create_task(wait()) for _ in range(count)]
            await asyncio.to_thread(self.give_way, count)
            got = await asyncio.gather(*tasks)
            await locks.aclose()
            await client.aclose()
            return got

        for count in (1, 3):
            self.assertEqual(asyncio.run(play(count)), [True] * count)
            self.token = self.conn.call("LOCK.ACQUIRE", "a", "PX", 60_000)

    def give_way(self, count: int) -> None:
        until("all wait", lambda: self.conn.info("a")["waiters"] == count)
        self.conn.call("LOCK.RELEASE", "a", self.token)


if __name__ == "__main__":
    unittest.main()
