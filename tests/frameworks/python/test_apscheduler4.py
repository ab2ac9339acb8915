"""serverlock.apscheduler with the schedulers of APScheduler 4, an alpha, one of them killed.

They share no data store here.
"""

import asyncio
import unittest
from importlib.metadata import PackageNotFoundError, version

import redis
import redis.asyncio
from frame import Framed
from serverlock import aio
from serverlock.apscheduler import once_per_tick

try:
    IS_FOUR = version("apscheduler").startswith("4.")
except PackageNotFoundError:
    IS_FOUR = False
if IS_FOUR:
    from apscheduler import AsyncScheduler
    from apscheduler.triggers.interval import IntervalTrigger


@unittest.skipUnless(IS_FOUR, "APScheduler 4 is not installed")
class Schedulers(Framed):
    def calls(self, *, is_locked):
        """How often two schedulers have called the job, and how often its body has run, once both have called it."""
        calls, ran = [0, 0], []

        async def main():
            client = redis.asyncio.Redis(port=self.server.port)
            async with aio.Locks(client) as locks, AsyncScheduler() as first, AsyncScheduler() as second:
                body = once_per_tick(locks, "job", 86_400)(work) if is_locked else work
                for number, scheduler in enumerate((first, second)):

                    async def job(number=number):
                        await body()
                        calls[number] += 1

                    await scheduler.configure_task("job", func=job)
                    await scheduler.add_schedule("job", IntervalTrigger(seconds=1), id="job")
                    await scheduler.start_in_background()
                await asyncio.to_thread(self.until, "both have called it twice", lambda: min(calls) >= 2)
            await client.aclose()

        async def work():
            ran.append(1)

        asyncio.run(main())
        return len(ran)

    def test_one_of_two_runs_the_tick(self):
        self.far_from_midday()
        self.assertEqual(self.calls(is_locked=True), 1)

    def test_without_the_lock_both_run_it(self):
        self.assertGreaterEqual(self.calls(is_locked=False), 4)

    def test_another_one_runs_the_tick_of_a_killed_one(self):
        self.far_from_midday()
        first = self.start("apscheduler4_app.py", SERVERLOCK_TESTS_NAME="first")
        self.until("it runs", lambda: self.events() == ["first begins"])
        self.start("apscheduler4_app.py", SERVERLOCK_TESTS_NAME="second")
        self.until("the other one is refused", lambda: self.asked() > 1)
        self.assertEqual(self.events(), ["first begins"])
        first.kill()
        # Within the lease, the margin and the second between two calls: 12 s.
        self.until("the other one runs it", lambda: self.events()[1:] == ["second begins"])
        self.redis.rpush("go", "go")
        self.until("it ends", lambda: self.events()[2:] == ["second ends"])


if __name__ == "__main__":
    unittest.main()
