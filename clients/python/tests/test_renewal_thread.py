"""A loop that is blocked for longer than a lease keeps its locks if a thread renews them."""

import asyncio
import gc
import threading
import time
import unittest
from collections.abc import Callable, Coroutine
from typing import Any

import redis
import redis.asyncio

from served import Served
from serverlock import LockBadArgument, LockLost, aio
from servers import until
from stage import calls

LEASE = 1.0


class RenewalThread(Served):
    def play(self, work: Callable[[aio.Locks], Coroutine[None, None, None]], renewal: Any = "thread") -> None:
        async def main() -> None:
            client = redis.asyncio.Redis(port=self.server.port)
            async with aio.Locks(client, renewal=renewal) as locks:
                await work(locks)
            await client.aclose()

        asyncio.run(main())

    def block(self, count: int = 8) -> None:
        """Blocks the loop until the lock has been renewed this many times: for several leases."""
        before = calls(self.conn, "lock.extend")
        until("it is renewed", lambda: calls(self.conn, "lock.extend") >= before + count)

    def test_a_blocked_loop_keeps_its_locks(self) -> None:
        for renewal in ("thread", redis.Redis(port=self.server.port)):

            async def work(locks: aio.Locks) -> None:
                async with locks.lock("a", LEASE, max_hold=300) as held:
                    began = time.monotonic()
                    self.block()
                    self.assertGreater(time.monotonic() - began, LEASE)
                    held.check()
                    self.assertEqual(self.conn.info("a")["token"], held.token)
                self.assertEqual(self.conn.info("a")["state"], "free")

            self.play(work, renewal)

    def test_a_loss_is_reported_on_the_loop(self) -> None:
        threads: list[threading.Thread] = []

        async def work(locks: aio.Locks) -> None:
            lost = asyncio.Event()

            def on_lost(_: object) -> None:
                threads.append(threading.current_thread())
                lost.set()

            with self.assertRaises(LockLost):
                async with locks.lock("a", LEASE, max_hold=300, on_lost=on_lost) as held:
                    self.conn.call("DEL", "a")
                    until("the thread notices it", lambda: held.lost is not None)
                    with self.assertRaises(LockLost):
                        held.check()
                    await asyncio.sleep(60)  # the loss stops the body
            await lost.wait()

        self.play(work)
        self.assertEqual(threads, [threading.main_thread()])

    def test_a_hung_loop_loses_its_lock_after_max_hold(self) -> None:
        async def work(locks: aio.Locks) -> None:
            held = await locks.lock("a", LEASE, max_hold=2 * LEASE).acquire()
            until("it has expired", lambda: self.conn.info("a")["state"] == "expired")
            with self.assertRaises(LockLost):
                held.check()

        self.play(work)

    def test_its_thread_ends_with_the_manager(self) -> None:
        async def work(locks: aio.Locks) -> None:
            held = await locks.lock("a", LEASE, max_hold=300).acquire()
            self.block(1)
            held.check()

        before = threading.active_count()
        self.play(work)
        until("its threads have ended", lambda: threading.active_count() <= before)

    def test_threads_end_with_their_loops(self) -> None:
        """A task queue that runs each task in a new loop, with one manager."""
        locks = aio.Locks(redis.asyncio.Redis(port=self.server.port), renewal="thread")

        async def work(locks: aio.Locks) -> None:
            held = await locks.lock("a", LEASE, max_hold=300).acquire()
            self.block(1)
            await held.release()
            await locks._client.connection_pool.disconnect()

        before = threading.active_count()
        for _ in range(4):
            asyncio.run(work(locks))
        until("only the last loop's threads are left", lambda: threading.active_count() <= before + 2, 20)
        del locks
        gc.collect()
        until("its threads have ended", lambda: threading.active_count() <= before, 20)

    def test_a_dropped_hold_leaves_no_session(self) -> None:
        async def work(locks: aio.Locks) -> None:
            held = await locks.lock("a", 300, max_hold=900, session=True).acquire()
            sessions = locks._engine().resources.sessions
            self.assertEqual(len(sessions), 1)
            del held
            gc.collect()
            until_at = time.monotonic() + 20
            while len(sessions) and time.monotonic() < until_at:
                await asyncio.sleep(0.05)
            self.assertEqual(len(sessions), 0)

        self.play(work)

    def test_arguments_are_checked(self) -> None:
        async def work(locks: aio.Locks) -> None:
            for wrong in (lambda: locks.lock("a", 5), lambda: locks.once("a", 60)):
                with self.assertRaisesRegex(LockBadArgument, "'a': max_hold is missing"):
                    wrong()
            locks.once("a", 60, rerun=False)
            locks.leader("a", 5)

        self.play(work)
        cluster = redis.asyncio.RedisCluster(host="127.0.0.1", port=self.server.port)
        for client, renewal in ((cluster, "thread"), (redis.asyncio.Redis(), redis.asyncio.Redis())):
            with self.assertRaises(LockBadArgument):
                aio.Locks(client, renewal=renewal)


if __name__ == "__main__":
    unittest.main()
