"""serverlock.apscheduler with three schedulers, one of them killed."""

import collections
import unittest

import redis
import redis.asyncio
from frame import UNLOCKED, Framed
from serverlock import LockBadArgument, Locks, aio
from serverlock.apscheduler import once_per_tick


class Schedulers(Framed):
    def three(self, *words, **env):
        names = ("first", "second", "third")
        programs = {it: self.start("apscheduler_app.py", *words, SERVERLOCK_TESTS_NAME=it, **env) for it in names}
        starts = {f"{it} starts" for it in names}
        self.until("all have started", lambda: starts <= set(self.events()))
        return programs

    def ticks(self):
        """How often each tick has run since all had started."""
        events = self.events()
        last = max(number for number, event in enumerate(events) if event.endswith("starts"))
        return collections.Counter(event.split()[-1] for event in events[last:] if " 7 ran " in event)

    def check(self, kind):
        self.three(kind, "tick")
        self.until("three ticks have run", lambda: len(self.ticks()) == 3)
        self.assertEqual(set(self.ticks().values()), {1}, self.events())

    def test_one_of_three_runs_each_tick(self):
        self.check("blocking")

    def test_one_of_three_runs_each_tick_of_a_coroutine(self):
        self.check("async")

    def test_without_the_lock_all_three_run_each_tick(self):
        self.three("blocking", "tick", **{UNLOCKED: "1"})
        self.until("all have run", lambda: 3 in self.ticks().values())

    def test_another_one_runs_the_tick_of_a_killed_one(self):
        self.check_killed("blocking")

    def test_another_one_runs_the_coroutine_of_a_killed_one(self):
        self.check_killed("async")

    def check_killed(self, kind):
        self.far_from_midday()
        programs = self.three(kind, "work")
        self.until("one runs it", lambda: self.begun())
        self.until("the others have been refused", lambda: self.asked() > 5)
        self.assertEqual(len(self.begun()), 1)
        programs.pop(self.begun()[0].split()[0]).kill()
        # Within the lease, the margin and the second between two calls: 12 s.
        self.until("another one runs it", lambda: len(self.begun()) == 2)
        self.assertIn(self.begun()[1].split()[0], programs)
        self.redis.rpush("go", "go")
        self.until("it ends", lambda: [it for it in self.events() if it.endswith("ends")])
        self.assertEqual(len(self.begun()), 2)

    def begun(self):
        return [event for event in self.events() if event.endswith("begins")]


class Decorator(unittest.TestCase):
    def test_a_job_and_its_locks_are_of_one_kind(self):
        async def job():
            pass

        def function():
            pass

        with self.assertRaisesRegex(LockBadArgument, "needs serverlock.aio.Locks"):
            once_per_tick(Locks(redis.Redis()), "job", 60)(job)
        with self.assertRaisesRegex(LockBadArgument, "not a coroutine function"):
            once_per_tick(aio.Locks(redis.asyncio.Redis()), "job", 60)(function)
        with self.assertRaisesRegex(LockBadArgument, "period"):
            once_per_tick(Locks(redis.Redis()), "job", 1)


if __name__ == "__main__":
    unittest.main()
