"""Two connections for any number of callers: the outcome of their calls, and what happens to interrupted callers."""

import asyncio
import contextlib
import random
import threading
import time
import unittest
from collections.abc import Sequence
from typing import Any

from serverlock.aio.deadline import Deadline
from serverlock.aio.runtime import Runtime as Tasks
from serverlock.core.pipeline import AT_ONCE, MOST, Owner, Pipeline
from serverlock.core.semaphore import Permits, Semaphore
from serverlock.core.wire import ConnectionLost, ReplyError, Words
from serverlock.threads.runtime import Runtime as Threads
from serverlock.threads.runtime import run


class PipelineWithThreads(unittest.TestCase):
    def test_many_callers_share_two_connections_and_each_gets_its_own_reply(self) -> None:
        batches: list[int] = []
        opened = threading.Event()

        async def exchange(calls: Sequence[Words], timeout: float) -> list[Any]:
            batches.append(len(calls))
            opened.wait(30)
            return [ReplyError("ERR", "ERR no") if words[0] == 13 else [words[0]] for words in calls]

        pipeline = Pipeline(Threads(), exchange)
        got: dict[int, Any] = {}

        def call(number: int) -> None:
            try:
                got[number] = run(lambda: pipeline.call((number,), 30))
            except ReplyError as error:
                got[number] = error

        threads = [threading.Thread(target=call, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 30
        while pipeline.queued < 200 - AT_ONCE and time.monotonic() < end:
            time.sleep(0.01)
        opened.set()
        for thread in threads:
            thread.join()
        self.assertIsInstance(got.pop(13), ReplyError)
        self.assertEqual(got, {number: [number] for number in range(200) if number != 13})
        self.assertEqual(sorted(batches), [1, 1, 200 - AT_ONCE - MOST, MOST])
        self.assertEqual((pipeline.in_use, pipeline.queued), (0, 0))

    def test_a_permit_whose_owner_is_gone_is_free(self) -> None:
        """An exception can be raised between any two statements, even during the clean-up after another one."""
        permits = Permits(1)
        owner = Owner()
        self.assertTrue(permits.acquire(owner))
        self.assertFalse(permits.acquire(Owner()))
        del owner
        self.assertEqual(permits.in_use, 0)
        second = Owner()
        self.assertTrue(permits.acquire(second))
        self.assertTrue(permits.release(second))
        self.assertFalse(permits.release(second))

    def test_callers_continue_when_a_permits_owner_is_gone_without_releasing_it(self) -> None:
        async def exchange(calls: Sequence[Words], timeout: float) -> list[Any]:
            return [words[0] for words in calls]

        pipeline = Pipeline(Threads(), exchange)
        gone = [Owner(), Owner()]
        self.assertTrue(all(pipeline._acquire(owner) for owner in gone))
        waiting = threading.Thread(target=lambda: run(lambda: pipeline.call((1,), 30)))
        waiting.start()
        end = time.monotonic() + 30
        while pipeline.queued < 1 and time.monotonic() < end:
            time.sleep(0.01)
        gone.clear()
        waiting.join(30)
        self.assertFalse(waiting.is_alive())

    def test_a_semaphore_lets_the_next_caller_in_when_an_owner_is_gone(self) -> None:
        semaphore = Semaphore(Threads(), 1)
        owners, second = [Owner()], Owner()
        self.assertTrue(run(lambda: semaphore.acquire(owners[0], 1)))
        self.assertFalse(run(lambda: semaphore.acquire(second, 0.05)))
        owners.clear()
        self.assertTrue(run(lambda: semaphore.acquire(second, 30)))
        semaphore.release(second)
        self.assertEqual(semaphore.in_use, 0)

    def test_a_broken_connection_breaks_only_its_batch(self) -> None:
        async def exchange(calls: Sequence[Words], timeout: float) -> list[Any]:
            time.sleep(0.05)
            return [ConnectionLost(OSError("gone")) if calls[0][0] == 0 else words[0] for words in calls]

        pipeline = Pipeline(Threads(), exchange)
        with self.assertRaises(ConnectionLost):
            run(lambda: pipeline.call((0,), 5))
        self.assertEqual(run(lambda: pipeline.call((1,), 5)), 1)


class PipelineWithTasks(unittest.IsolatedAsyncioTestCase):
    async def test_cancelled_callers_affect_nobody_else(self) -> None:
        async def exchange(calls: Sequence[Words], timeout: float) -> list[Any]:
            await asyncio.sleep(0.01)
            return [words[0] for words in calls]

        for doomed in range(12):
            pipeline = Pipeline(Tasks(), exchange)
            tasks = [asyncio.create_task(pipeline.call((number,), 60)) for number in range(12)]
            await asyncio.sleep(0.005 if doomed % 2 else 0.012)
            tasks[doomed].cancel()
            replies = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            for number, reply in enumerate(replies):
                if number != doomed:
                    self.assertEqual(reply, number, replies)
            self.assertEqual(await pipeline.call((99,), 60), 99)
            self.assertEqual((pipeline.in_use, pipeline.queued), (0, 0))

    async def test_cancelled_callers_in_one_batch_affect_nobody_else(self) -> None:
        dice = random.Random(7)

        async def exchange(calls: Sequence[Words], timeout: float) -> list[Any]:
            await asyncio.sleep(0.001)
            return [words[0] for words in calls]

        pipeline = Pipeline(Tasks(), exchange)
        for _ in range(200):
            tasks = [asyncio.create_task(pipeline.call((number,), 60)) for number in range(20)]
            for _ in range(dice.randrange(8)):
                await asyncio.sleep(0)
            doomed = set(dice.sample(range(20), 8))
            for number in doomed:
                tasks[number].cancel()
            replies = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            self.assertEqual(
                [reply for number, reply in enumerate(replies) if number not in doomed],
                [number for number in range(20) if number not in doomed],
            )
        self.assertEqual((pipeline.in_use, pipeline.queued), (0, 0))


class Waits(unittest.IsolatedAsyncioTestCase):
    async def test_a_cancellation_that_the_library_swallows_is_raised(self) -> None:
        async def send(reply: asyncio.Future[int]) -> int:
            with Deadline().after(30):
                try:
                    return await reply
                except asyncio.CancelledError:
                    return 0  # as asyncio.wait_for does in 3.11 when the reply arrives at the same time

        reply = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(send(reply))
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task

    async def test_each_block_has_its_own_deadline_though_all_share_a_timer(self) -> None:
        deadline = Deadline()
        began = time.monotonic()
        for seconds in (300, 0.05, 0.2):  # shorter than the timer that is set, and longer
            late = self.assertRaises(TimeoutError) if seconds < 1 else contextlib.nullcontext()
            with late, deadline.after(seconds):
                await asyncio.sleep(300 if seconds < 1 else 0)
        self.assertGreaterEqual(time.monotonic() - began, 0.25)
        await asyncio.sleep(0)  # nothing is left of its cancellations
        with deadline.after(0.05):
            pass
        await asyncio.sleep(0.1)

    async def test_a_caller_that_is_cancelled_gets_no_time_out(self) -> None:
        async def wait() -> None:
            with Deadline().after(30):
                await asyncio.sleep(30)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task


if __name__ == "__main__":
    unittest.main()
