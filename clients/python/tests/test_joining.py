"""When an attempt joins the script's queue, and what it sends once it is in the module's queue."""

import asyncio
import threading
import unittest
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import redis
import redis.asyncio

import serverlock.aio
from served import Served
from serverlock import Locks
from serverlock.core import module
from servers import Server, until

QUEUE = "a:queue:{a}"


def delay(engine: Any, ready: Callable[[], Awaitable[None]]) -> None:
    """Makes the manager send SUBSCRIBE only once `ready` returns."""
    subscription = engine.resources.subscription
    subscribe = subscription._subscribe

    async def later() -> None:
        await ready()
        await subscribe()

    subscription._subscribe = later


class WithoutTheModule(unittest.TestCase):
    """A release would find nobody subscribed, and pass over an attempt that is in the queue already."""

    def setUp(self) -> None:
        self.server = Server(module=False)
        self.addCleanup(self.server.end)
        self.conn: Any = self.server.connect()
        self.addCleanup(self.conn.close)
        self.holder = Locks(redis.Redis(port=self.server.port), warn_without_module=False)
        self.addCleanup(self.holder.close)
        self.may_subscribe = threading.Event()

    def asked(self) -> int:
        """The number of copies that have found the lock held."""
        text: str = self.conn.call("INFO", "commandstats")
        lines = (line for line in text.splitlines() if line.startswith(("cmdstat_eval:", "cmdstat_evalsha:")))
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines)

    def hold(self, engine: Any) -> Any:
        """Returns a hold, which another manager's attempt then waits for without being subscribed."""
        held = self.holder.lock("a", 3600).acquire()
        self.before = self.asked()

        async def ready() -> None:
            while not self.may_subscribe.is_set():
                await engine.runtime.sleep(0.01)

        delay(engine, ready)
        return held

    def check(self, held: Any) -> None:
        until("it asks again and again", lambda: self.asked() >= self.before + 3)
        self.assertEqual(self.conn.call("ZCARD", QUEUE), 0)
        self.may_subscribe.set()
        until("it is in the queue", lambda: self.conn.call("ZCARD", QUEUE) == 1)
        self.assertTrue(held.release())

    def play_threads(self) -> None:
        locks = Locks(redis.Redis(port=self.server.port), warn_without_module=False)
        self.addCleanup(locks.close)
        held, got = self.hold(locks._engine()), []
        waiter = threading.Thread(target=lambda: got.append(locks.lock("a", 30, wait=600).acquire().release()))
        waiter.start()
        self.check(held)
        waiter.join(120)
        self.assertEqual(got, [True])

    def test_a_thread_joins_the_queue_once_its_manager_has_subscribed(self) -> None:
        self.play_threads()

    def test_a_copy_that_looks_for_the_module_does_not_join_either(self) -> None:
        with mock.patch.object(module, "ASK_AGAIN", 0.0):  # each copy does
            self.play_threads()

    def test_a_task_joins_the_queue_once_its_manager_has_subscribed(self) -> None:
        async def play() -> bool:
            client: Any = redis.asyncio.Redis(port=self.server.port)
            locks = serverlock.aio.Locks(client, warn_without_module=False)
            held = self.hold(locks._engine())
            waiter = asyncio.create_task(locks.lock("a", 30, wait=600).acquire())
            await asyncio.to_thread(self.check, held)
            released = await (await waiter).release()
            await locks.aclose()
            await client.aclose()
            return released

        self.assertTrue(asyncio.run(play()))


class WithTheModule(Served):
    def test_a_queued_attempt_keeps_asking_for_the_result(self) -> None:
        """Its first piece has ended, and it is not subscribed yet, when the holder releases the lock with a result."""
        locks = self.opened()
        engine = locks._engine()
        token = self.conn.call("LOCK.ACQUIRE", "a", "PX", 60_000)

        async def release() -> None:
            self.conn.call("LOCK.RELEASE", "a", token, "RESULT", "theirs")

        delay(engine, release)
        with self.assertRaises(serverlock.LockTimeout):
            locks.lock("a", 30, wait=0.1).acquire()  # opens the connection on which the manager's only wait blocks
        got: list[bytes] = []
        waiter = threading.Thread(target=lambda: got.append(locks.single_flight("a", 30, lambda _: b"own")))
        waiter.start()
        until("it waits", lambda: self.conn.info("a")["waiters"] == 1)
        engine.resources.blocking.is_over = True  # as when others wait too
        waiter.join(120)
        self.assertEqual(got, [b"theirs"])


if __name__ == "__main__":
    unittest.main()
