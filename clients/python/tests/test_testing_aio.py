"""The in-memory server, for asyncio: what docs/CLIENT_SPEC.md says under M1 to M6."""

import asyncio
import logging
import unittest
from collections.abc import Coroutine
from typing import Any

from serverlock.aio import Held, Locks
from serverlock.errors import LockLost, LockMisuse, LockRefused, LockTimeout, LockUnavailable
from serverlock.testing.aio import Server


class InMemory(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        logger = logging.getLogger("serverlock")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        self.addCleanup(logger.setLevel, level)
        self.server = Server()
        self.one, self.two = self.server.locks(), self.server.locks()

    async def begin(self, work: Coroutine[None, None, Any]) -> "asyncio.Task[Any]":
        """A task that has done what it can without the clock."""
        task = asyncio.create_task(work)
        await self.server.clock.settle()
        return task

    async def test_a_manager_is_the_production_one(self) -> None:
        self.assertIsInstance(self.one, Locks)
        async with self.one.lock("a", 30) as held:
            self.assertIs(type(held), Held)
            with self.assertRaises(LockMisuse):
                await self.one.lock("a", 30).acquire()
            with self.assertRaises(LockRefused):
                await self.two.lock("a", 30).acquire()
        self.assertGreater((await self.two.lock("a", 30).acquire()).token, held.token)
        await self.one.aclose()
        with self.assertRaises(LockMisuse):
            await self.one.lock("a", 30).acquire()

    async def test_waiters_are_served_in_order(self) -> None:
        held = await self.one.lock("a", 30).acquire()
        tasks = [await self.begin(self.two.lock("a", 30, wait=60).acquire()) for _ in range(3)]
        self.assertEqual(self.server.waiters("a"), 3)
        for task in tasks:
            self.assertFalse(task.done())
            self.assertTrue(await held.release())
            held = await asyncio.wait_for(task, 60)
        self.assertTrue(await held.release())

    async def test_time_stands_still_until_it_is_moved(self) -> None:
        held = await self.one.lock("a", 30).acquire()
        waiting = await self.begin(self.two.lock("a", 30, wait=60).acquire())
        self.assertEqual(held.left(), 27.0)
        await self.server.clock.advance(59)
        self.assertFalse(waiting.done())
        held.check()
        await self.server.clock.advance(1)
        with self.assertRaises(LockTimeout):
            waiting.result()

    async def test_a_cancelled_wait_leaves_nothing(self) -> None:
        await self.one.lock("a", 30).acquire()
        for session in (False, True):
            waiting = await self.begin(self.two.lock("a", 30, wait=60, session=session).acquire())
            self.assertEqual(self.server.waiters("a"), 1)
            waiting.cancel()
            await self.server.clock.settle()
            self.assertEqual((waiting.cancelled(), self.server.waiters("a")), (True, 0))

    async def test_an_expired_lease_passes_the_lock_on_and_the_holder_finds_out_later(self) -> None:
        lost: list[object] = []
        held = await self.one.lock("a", 30, on_lost=lost.append).acquire()
        waiting = await self.begin(self.two.lock("a", 30, wait=60, details=True).acquire())
        self.server.expire("a")
        await self.server.clock.settle()
        self.assertEqual(waiting.result().predecessor.token, held.token)
        held.check()
        await self.server.clock.advance(10)
        self.assertEqual(lost, [held])
        self.assertFalse(await held.release())

    async def test_a_loss_cancels_the_body(self) -> None:
        reached = []
        with self.assertRaises(LockLost):
            async with self.one.lock("a", 30) as held:
                self.server.lose(held)
                with self.assertRaises(LockLost):
                    held.check()
                await asyncio.sleep(3600)
                reached.append("the end")
        self.assertEqual(reached, [])
        self.assertTrue(await (await self.two.lock("a", 30).acquire()).release())

    async def test_a_refused_key_fails_until_it_is_allowed(self) -> None:
        held = await self.one.lock("a", 30).acquire()
        waiting = await self.begin(self.two.lock("a", 30, wait=60).acquire())
        self.server.refuse("a")
        await self.server.clock.settle()
        with self.assertRaises(LockUnavailable):
            waiting.result()
        with self.assertRaises(LockUnavailable):
            await held.extend()
        await self.server.clock.advance(27)
        self.assertIsNotNone(held.lost)
        self.server.allow("a")
        await self.server.clock.advance(10)
        self.assertTrue(await (await self.two.lock("a", 30).acquire()).release())

    async def test_a_session_lock_waits(self) -> None:
        held = await self.one.lock("a", 30, session=True).acquire()
        waiting = await self.begin(self.two.lock("a", 30, wait=60, session=True).acquire())
        await self.server.clock.advance(20)
        self.assertFalse(waiting.done())
        self.assertTrue(await held.release())
        self.assertTrue(await (await waiting).release())

    async def test_one_of_several_processes_runs_a_tick(self) -> None:
        day = 24 * 3600

        async def body(held: Any) -> int:
            return int(held.tick)

        for _ in range(2):
            made = [await locks.once("job", day).run(body) for locks in (self.one, self.two)]
            self.assertEqual([it.outcome for it in made], ["ran", "elsewhere"])
            await self.server.clock.advance(day)

    async def test_a_leader_is_replaced(self) -> None:
        seen: list[str] = []
        first = self.one.leader("a", 30, on_elected=lambda _: seen.append("0 leads")).start()
        await self.server.clock.settle()
        second = self.two.leader("a", 30, on_elected=lambda _: seen.append("1 leads")).start()
        await self.server.until_waiting("a")
        first.resign()
        await self.server.clock.advance(600)
        self.assertEqual(seen, ["0 leads", "1 leads"])
        for leader in (second, first):
            await leader.stop()


if __name__ == "__main__":
    unittest.main()
