"""serverlock.fastapi with real instances under uvicorn, some of them killed."""

import threading
import unittest
import urllib.error
import urllib.request
from types import SimpleNamespace

import redis
from frame import UNLOCKED, Framed, free_port
from serverlock import LockBadArgument, Locks
from serverlock.fastapi import locked


class FastAPI(Framed):
    def instance(self, name, **env):
        """An instance that serves requests."""
        port = free_port()
        program = self.start("-m", "uvicorn", "fastapi_app:app", "--port", str(port), SERVERLOCK_TESTS_NAME=name, **env)
        program.port = port
        self.until(f"{name} is ready", lambda: "Uvicorn running" in program.said())
        return program

    def post(self, instance, path):
        """The reply's status; None if the instance died."""
        request = urllib.request.Request(f"http://127.0.0.1:{instance.port}{path}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=240) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def posting(self, instance, path):
        """A request in a thread. Returns a list that the reply's status is appended to."""
        replies = []
        thread = threading.Thread(target=lambda: replies.append(self.post(instance, path)))
        thread.start()
        self.addCleanup(thread.join, 240)
        self.addCleanup(self.redis.rpush, "go", "go")
        return replies

    def begun(self):
        return [event for event in self.events() if " begins " in event]


class Endpoints(FastAPI):
    def check(self, path):
        first, second = self.instance("first"), self.instance("second")
        replies = self.posting(first, path)
        self.until("it runs", lambda: len(self.begun()) == 1)
        self.assertEqual([self.post(first, path), self.post(second, path)], [409, 409])
        self.redis.rpush("go", "go")
        self.until("it has ended", lambda: replies == [200])
        self.redis.rpush("go", "go")
        self.assertEqual(self.post(second, path), 200)

    def test_one_request_at_a_time_runs(self):
        self.check("/loop/a")

    def test_one_request_at_a_time_runs_with_locks_for_threads(self):
        """The second request of the first instance asks in the thread that got the lock for its first."""
        self.check("/thread/a")

    def test_one_request_at_a_time_runs_in_a_thread(self):
        self.check("/blocking/a")

    def test_without_the_lock_both_run_at_a_time(self):
        first = self.instance("first", **{UNLOCKED: "1"})
        self.posting(first, "/loop/a")
        self.posting(first, "/loop/a")
        self.until("both run", lambda: len(self.begun()) == 2)
        self.redis.rpush("go", "go", "go")

    def test_the_lock_of_a_killed_instance_ends(self):
        first, second = self.instance("first"), self.instance("second")
        replies = self.posting(first, "/loop/a")
        self.until("it runs", lambda: len(self.begun()) == 1)
        first.kill()
        self.until("its caller knows", lambda: replies == [None])
        self.assertEqual(self.post(second, "/loop/a"), 409)
        self.redis.rpush("go", "go")
        # Within the lease and the margin: 11 s.
        self.until("it runs elsewhere", lambda: self.post(second, "/loop/a") == 200)

    def test_a_loss_ends_the_request(self):
        first = self.instance("first")
        replies = self.posting(first, "/loop/a")
        self.until("it runs", lambda: len(self.begun()) == 1)
        self.take("order:a")
        self.until("the request has ended", lambda: replies == [503])
        self.assertEqual(len(self.events()), 2)  # the other one says who leads


class Steps(Framed):
    """The dependency in this process, as FastAPI drives it."""

    def test_a_generator_may_be_left_in_a_different_thread(self):
        locks = Locks(redis.Redis(port=self.server.port))
        self.addCleanup(locks.close)
        request = SimpleNamespace(path_params={"order": "a"})
        dependency = locked(locks, "order:{order}", lease=30)
        for _ in range(3):
            generator = dependency(request)
            self.assertTrue(self.in_thread(lambda generator=generator: next(generator)).is_held)
            self.in_thread(lambda generator=generator: next(generator, None))

    def in_thread(self, work):
        done = []
        thread = threading.Thread(target=lambda: done.append(work()))
        thread.start()
        thread.join()
        return done[0]

    def test_a_reentrant_dependency_needs_the_loop(self):
        locks = Locks(redis.Redis(port=self.server.port))
        self.addCleanup(locks.close)
        with self.assertRaisesRegex(LockBadArgument, "aio"):
            locked(locks, "a", 30, reentrant=True)


class Leaders(FastAPI):
    def leaders(self):
        return [event.split()[0] for event in self.events() if event.endswith("leads")]

    def two(self, **env):
        both = {name: self.instance(name, **env) for name in ("first", "second")}
        self.until("one leads", self.leaders)
        return both

    def test_one_of_two_leads_and_the_other_goes_on_when_it_is_killed(self):
        both = self.two()
        self.until("the other one waits", lambda: self.waiting("leader"))
        self.assertEqual(len(self.leaders()), 1)
        both.pop(self.leaders()[0]).kill()
        # Within the lease and the margin: 11 s.
        self.until("the other one leads", lambda: len(self.leaders()) == 2)
        self.assertIn(self.leaders()[1], both)

    def test_an_instance_that_shuts_down_stops_and_hands_over(self):
        both = self.two()
        name = self.leaders()[0]
        both[name].stop()
        self.until("the other one leads", lambda: len(self.leaders()) == 2)
        self.assertEqual(self.events()[:2], [f"{name} leads", f"{name} stops"])

    def test_work_that_ends_is_done_again(self):
        self.instance("first")
        self.until("it leads", self.leaders)
        self.redis.rpush("end", "end")
        self.until("it leads again", lambda: len(self.leaders()) == 2)

    def test_without_the_lock_both_lead(self):
        self.two(**{UNLOCKED: "1"})
        self.until("both lead", lambda: len(self.leaders()) == 2)


if __name__ == "__main__":
    unittest.main()
