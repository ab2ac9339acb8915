"""serverlock.celery with real workers and beats, some of them killed."""

import itertools
import json
import unittest
from datetime import timedelta

import celery
import redis
from celery.beat import PersistentScheduler, Scheduler
from frame import UNLOCKED, Framed
from serverlock import LockBadArgument, Locks
from serverlock.celery import beat, once, unique


class Celery(Framed):
    def worker(self, name, **env):
        words = ("-m", "celery", "-A", "celery_app", "worker", "-n", f"{name}@localhost", "-l", "info")
        program = self.start(
            *words, "-c", "2", "--without-gossip", "--without-mingle", SERVERLOCK_TESTS_NAME=name, **env
        )
        self.until(f"{name} is ready", lambda: " ready." in program.said())
        return program

    def call(self, task, *arguments, **env):
        """Queues the task with each of the arguments, in a process of its own. Returns the IDs of the results."""
        code = "import sys, celery_app; print(*[getattr(celery_app, sys.argv[1]).delay(it).id for it in sys.argv[2:]])"
        program = self.start("-c", code, task, *arguments, **env)
        self.assertEqual(program.process.wait(240), 0, program.said())
        return program.said().split()[-len(arguments) :]

    def state(self, result):
        text = self.call_in(2, "GET", f"celery-task-meta-{result}")
        return json.loads(text)["status"] if text else None

    def call_in(self, database, *words):
        """Celery's queues and results are in databases of their own."""
        conn = self.server.connect()
        try:
            conn.call("SELECT", database)
            return conn.call(*words)
        finally:
            conn.close()

    def go(self, times=1):
        self.redis.rpush("go", *["go"] * times)

    def begun(self):
        return [event for event in self.events() if " begins " in event]

    def ended(self):
        return [event for event in self.events() if " ends " in event]


class Tasks(Celery):
    def test_a_task_is_queued_once_until_it_is_executed(self):
        first, second, other = self.call("executed", "a", "a", "b")
        self.assertEqual(self.state(second), "REVOKED")
        self.go(3)
        self.worker("w")
        self.until("both ran", lambda: len(self.ended()) == 2)
        self.until("the states", lambda: {self.state(first), self.state(other)} == {"SUCCESS"})
        self.assertEqual(sorted(self.ended()), ["w ends executed a", "w ends executed b"])
        self.call("executed", "a")  # it may be queued again
        self.until("it ran again", lambda: len(self.ended()) == 3)

    def test_without_the_lock_it_is_queued_twice(self):
        self.call("executed", "a", "a", "b", **{UNLOCKED: "1"})
        self.go(3)
        self.worker("w", **{UNLOCKED: "1"})
        self.until("all ran", lambda: len(self.ended()) == 3)

    def test_a_killed_workers_task_can_be_queued_and_runs_elsewhere(self):
        self.call("executed", "a")
        first = self.worker("first")
        self.until("it runs", lambda: self.begun() == ["first begins executed a"])
        self.assertEqual(self.state(*self.call("executed", "a")), "REVOKED")
        first.kill()
        self.worker("second")
        # Within the lease and the margin: 11 s.
        self.until("it is queued", lambda: self.state(*self.call("executed", "a")) is None)
        self.until("it runs elsewhere", lambda: self.begun()[1:] == ["second begins executed a"])
        self.go()
        self.until("it ends", lambda: self.ended() == ["second ends executed a"])

    def test_a_second_copy_of_a_message_does_not_run_beside_the_first(self):
        self.call("executed", "a")
        message = self.until("it is queued", lambda: self.call_in(1, "LRANGE", "celery", 0, -1))[0]
        self.call_in(1, "LPUSH", "celery", message)
        worker = self.worker("w")
        self.until("the copy is dropped", lambda: "is dropped: another one is running" in worker.said())
        self.until("the first runs", self.begun)
        self.assertEqual(len(self.begun()), 1)
        self.go()
        self.until("it ends", lambda: len(self.ended()) == 1)

    def test_a_retried_task_keeps_its_lock(self):
        self.call("retried", "a")
        self.worker("w")
        self.until("it has ended", lambda: len(self.events()) >= 3)
        self.assertEqual(self.events(), ["w tries 0", "w tries 1", "w tries 2"])
        # It may be queued again. Its state says nothing: Celery may store RETRY after SUCCESS.
        self.until("its lock is released", lambda: self.state(*self.call("retried", "a")) != "REVOKED")

    def test_one_runs_at_a_time_and_the_other_follows(self):
        results = self.call("executing", "a", "a")
        self.worker("w")
        self.until("one is put off", lambda: "RETRY" in [self.state(it) for it in results])
        self.assertEqual(len(self.begun()), 1)
        self.go(2)
        self.until("both ran", lambda: [self.state(it) for it in results] == ["SUCCESS"] * 2)
        self.assertEqual([event.split()[1] for event in self.events()], ["begins", "ends"] * 2)

    def test_without_the_lock_both_run_at_a_time(self):
        self.call("executing", "a", "a")
        self.worker("w", **{UNLOCKED: "1"})
        self.until("both run", lambda: len(self.begun()) == 2)
        self.assertEqual(self.ended(), [])

    def test_a_task_that_finds_another_running_is_dropped(self):
        results = self.call("dropping", "a", "a")
        self.worker("w")
        self.until("one is dropped", lambda: "REVOKED" in [self.state(it) for it in results])
        self.go()
        self.until("one ran", lambda: "SUCCESS" in [self.state(it) for it in results])
        self.assertEqual(len(self.begun()), 1)

    def test_a_task_runs_where_the_killed_worker_does_not(self):
        first = self.worker("first")
        self.call("executing", "a")
        self.until("it runs", lambda: self.begun() == ["first begins executing a"])
        first.kill()
        self.worker("second")
        self.call("executing", "a")
        self.until("it runs elsewhere", lambda: self.begun()[1:] == ["second begins executing a"])

    def test_a_task_runs_once_per_period(self):
        self.far_from_midday()
        results = self.call("daily", "a", "a", "a")
        self.worker("w")
        self.go(3)
        done = ["REVOKED", "REVOKED", "SUCCESS"]
        self.until("one ran", lambda: sorted(self.state(it) or "" for it in results) == done)
        self.assertEqual(len(self.ended()), 1)

    def test_without_the_lock_it_runs_three_times_per_period(self):
        self.call("daily", "a", "a", "a")
        self.worker("w", **{UNLOCKED: "1"})
        self.go(3)
        self.until("all ran", lambda: len(self.ended()) == 3)

    def test_another_worker_runs_the_period_of_a_killed_one(self):
        self.far_from_midday()
        first = self.worker("first")
        self.call("daily", "a")
        self.until("it runs", lambda: self.begun() == ["first begins daily a"])
        first.kill()
        self.worker("second")
        # Sent again and again, as by a beat; the lease and the margin are 11 s.
        self.until("it runs elsewhere", lambda: self.call("daily", "a") and len(self.begun()) == 2)
        self.go()
        self.until("it ends", lambda: self.ended() == ["second ends daily a"])
        self.assertEqual(len(self.begun()), 2)


class Beats(Celery):
    def beat(self, name, **env):
        words = ("-m", "celery", "-A", "celery_app", "beat", "--pidfile", "", "-s", f"{self.server.folder}/{name}")
        return self.start(*words, "-l", "info", SERVERLOCK_TESTS_NAME=name, **env)

    def sent(self):
        """Which beat sent each task, in order."""
        messages = [json.loads(it) for it in reversed(self.call_in(1, "LRANGE", "ticks", 0, -1))]
        return [message["headers"]["argsrepr"].strip("[](),'") for message in messages]

    def leads(self, program):
        return "this host sends the tasks now" in program.said()

    def test_one_of_two_beats_sends_and_the_other_goes_on_when_it_is_killed(self):
        first, second = self.beat("first"), self.beat("second")
        self.until("one leads", lambda: self.leads(first) or self.leads(second))
        if self.leads(second):
            first, second = second, first
        self.until("it sends", lambda: len(self.sent()) >= 3)
        self.until("the other one waits", lambda: self.waiting("{serverlock:beat}:leader"))
        names = set(self.sent())
        self.assertEqual(len(names), 1)
        first.kill()
        # Within the lease and the margin: 11 s.
        self.until("the other one sends", lambda: set(self.sent()) - names)
        sent = self.sent()
        self.assertEqual(sorted(sent, key=lambda name: name not in names), sent, "they took turns")

    def test_a_stopped_beat_hands_over(self):
        first = self.beat("first")
        self.until("it leads", lambda: self.leads(first))
        self.beat("second")
        self.until("it sends", lambda: self.sent())
        first.stop()
        self.until("the other one sends", lambda: "second" in self.sent())

    def test_without_the_lock_both_send(self):
        self.beat("first", **{UNLOCKED: "1"})
        self.beat("second", **{UNLOCKED: "1"})
        self.until("both send", lambda: set(self.sent()) == {"first", "second"})


class Options(Framed):
    """Tasks that run in this process, without a worker."""

    def setUp(self):
        super().setUp()
        self.locks = Locks(redis.Redis(port=self.server.port))
        self.addCleanup(self.locks.close)
        self.app = celery.Celery("options", broker="memory://", backend="cache+memory://")
        self.app.conf.task_always_eager = True

    def test_the_same_arguments_have_the_same_key(self):
        @self.app.task(name=self.id(), base=unique(self.locks, "while_executing"))
        def task(shop, count=1):
            pass

        def key(*args, **kwargs):
            return task._serverlock_key(args, kwargs)

        self.assertEqual(len({key(1), key(1, 1), key(1, count=1), key(shop=1), key(count=1, shop=1)}), 1)
        self.assertEqual(len({key(1), key(2), key(1, 2), key("1")}), 4)
        with self.assertRaisesRegex(LockBadArgument, "pass key="):
            key(object())

    def test_a_key_of_ones_own(self):
        @self.app.task(base=unique(self.locks, "while_executing", key=lambda shop, **_: f"shop {shop}"), name="import")
        def task(shop, since=None):
            pass

        self.assertEqual(task._serverlock_key((7,), {"since": object()}), "serverlock:celery:import:shop 7")

    def test_a_task_sees_its_lock_and_the_applications_base_class_is_called(self):
        class Base(celery.Task):
            abstract = True

            def __call__(self, *args, **kwargs):
                return "called", super().__call__(*args, **kwargs)

        for made in (
            unique(self.locks, "while_executing", base=Base),
            unique(self.locks, "until_executed", base=Base),
            once(self.locks, 3600, base=Base),
        ):

            @self.app.task(bind=True, base=made, name=made.__name__)
            def task(self):
                return self.held.token if self.held and self.held.is_held else None

            said, token = task.delay().get()
            self.assertEqual(said, "called")
            self.assertIsInstance(token, int)
            self.assertEqual(task(), ("called", None))  # a direct call takes no lock

    def test_a_task_that_fails_lets_the_next_one_run(self):
        @self.app.task(name=self.id(), base=unique(self.locks, "until_executed"))
        def task():
            raise ValueError("no")

        for _ in range(2):
            self.assertIsInstance(task.delay().result, ValueError)

    def test_a_messages_lock_lasts_until_its_eta_and_not_after_it_has_expired(self):
        self.app.conf.task_always_eager = False

        @self.app.task(name=self.id(), base=unique(self.locks, "until_executed", queued=1000))
        def task(number):
            pass

        now = self.app.now()
        for number, (options, lease) in enumerate(
            (
                ({}, 1000),
                ({"countdown": 500}, 1500),
                ({"eta": now + timedelta(seconds=500)}, 1500),
                ({"expires": 300}, 300),
                ({"expires": now + timedelta(seconds=300)}, 300),
            )
        ):
            task.apply_async((number,), **options)
            info = self.info(f"{task._serverlock_key((number,), {})}:queued")
            self.assertLessEqual(info["lease-ms"] / 1000, lease)
            self.assertGreater(info["lease-ms"] / 1000, lease - 250)

    def test_a_message_that_cannot_be_sent_has_no_lock(self):
        self.app.conf.update(task_always_eager=False, broker_url="redis://127.0.0.1:1", task_publish_retry=False)

        @self.app.task(name=self.id(), base=unique(self.locks, "until_executed"))
        def task():
            pass

        with self.assertRaises(task.OperationalError):
            task.delay()
        self.locks.lock(f"{task._serverlock_key((), {})}:queued", lease=30, wait=240).acquire().release()

    def test_wrong_options_are_errors(self):
        for options in ({"lease": 0}, {"conflict": "wait"}, {"queued": -1}, {"again_in": -1}):
            with self.assertRaises(LockBadArgument):
                unique(self.locks, "until_executed" if "queued" in options else "while_executing", **options)
        for call in (
            lambda: unique(self.locks, "until_done"),
            lambda: once(self.locks, 1),
            lambda: beat(self.locks, key="{a}"),
            lambda: beat(self.locks, lease=0),
        ):
            with self.assertRaises(LockBadArgument):
                call()


class Steps(Framed):
    """Beats in this process, one step at a time."""

    numbers = itertools.count()

    def made(self, base=Scheduler):
        """A beat with an entry that became due an hour ago."""
        app = celery.Celery("steps", broker="memory://")
        app.conf.beat_schedule = {"hourly": {"task": "hourly", "schedule": 3600.0}}
        locks = Locks(redis.Redis(port=self.server.port))
        self.addCleanup(locks.close)
        file = f"{self.server.folder}/{next(self.numbers)}"
        made = (beat(locks, base=base) if base else Scheduler)(app=app, schedule_filename=file)
        made.sent = []
        made.send_task = lambda name, *args, **options: made.sent.append(name)
        made.schedule["hourly"].last_run_at = app.now() - timedelta(hours=2)
        return made

    def hand_over(self, **options):
        first, second = self.made(**options), self.made(**options)
        first.tick()
        self.assertEqual(first.sent, ["hourly"])
        first.close()
        second.tick()
        second.close()
        return second.sent

    def test_the_next_beat_does_not_send_what_was_sent(self):
        self.assertEqual(self.hand_over(), [])

    def test_a_scheduler_with_a_file_of_its_own_goes_on_with_the_others_runs(self):
        self.assertEqual(self.hand_over(base=PersistentScheduler), [])

    def test_without_the_lock_the_next_beat_sends_it_again(self):
        self.assertEqual(self.hand_over(base=None), ["hourly"])

    def test_a_beat_whose_exit_is_dropped_ends(self):
        # Celery's signal handler closes the beat and raises SystemExit, which Python drops within a __del__.
        first, second = self.made(), self.made()
        first.send_task = lambda *args, **options: first.close()
        for _ in range(2):
            with self.assertRaises(SystemExit):
                first.tick()
        second.tick()
        self.assertTrue(second._held.is_held)

    def test_a_beat_that_lost_the_lock_sends_nothing(self):
        first, second = self.made(), self.made()
        last_run_at = first.schedule["hourly"].last_run_at
        first.schedule["hourly"].last_run_at = first.app.now()
        first.tick()
        self.assertTrue(first._held.is_held)
        self.take("{serverlock:beat}:leader")
        first.schedule["hourly"].last_run_at = last_run_at
        first._heap = None
        first.tick()  # it does not know yet
        second.tick()
        self.assertEqual((first.sent, second.sent), ([], ["hourly"]))


if __name__ == "__main__":
    unittest.main()
