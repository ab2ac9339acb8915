"""serverlock.django with Django's test client, and with commands in processes of their own, one of them killed."""

import os
import threading
import unittest
from unittest import mock

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"

from frame import UNLOCKED, Framed  # noqa: I001 the path comes first

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

from serverlock import LockRefused
from serverlock.django import lock, locks

django.setup()
OWN = "django.core.cache.backends.redis.RedisCache"


class Views(Framed):
    def setUp(self):
        super().setUp()
        self.use()

    def use(self, **more):
        """Points the cache to the test's server."""
        cache = {**settings.CACHES["default"], "LOCATION": f"redis://127.0.0.1:{self.server.port}/0", **more}
        changed = override_settings(CACHES={"default": cache})
        changed.enable()
        self.addCleanup(changed.disable)

    def post(self):
        return Client().post("/orders/7/pay").status_code

    def posting(self):
        replies = []
        thread = threading.Thread(target=lambda: replies.append(self.post()))
        thread.start()
        self.addCleanup(thread.join, 240)
        self.addCleanup(self.redis.rpush, "go", "go", "go")
        return replies

    def test_one_request_at_a_time_runs(self):
        replies = self.posting()
        self.until("it runs", lambda: len(self.events()) == 1)
        self.assertEqual(self.post(), 409)
        self.redis.rpush("go", "go")
        self.until("it has ended", lambda: replies == [200])
        self.redis.rpush("go", "go")
        self.assertEqual(self.post(), 200)

    def test_without_the_lock_both_run_at_a_time(self):
        with mock.patch.dict(os.environ, {UNLOCKED: "1"}):
            self.posting()
            self.posting()
            self.until("both run", lambda: len(self.events()) == 2)

    def test_keys_are_named_as_the_cache_names_them(self):
        with lock("a", lease=30), lock("a", lease=30, version=2):
            self.assertEqual(set(self.redis.keys()), {"shop:1:a", "shop:2:a"})

    def test_there_is_one_manager_for_all_threads(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(locks()))
        thread.start()
        thread.join()
        self.assertIs(found[0], locks())

    def test_djangos_own_cache_works_too(self):
        self.use(BACKEND=OWN, OPTIONS={})
        with lock("a", lease=30) as held:
            self.assertEqual(self.redis.keys(), ["shop:1:a"])
            self.assertTrue(held.is_held)

    def test_a_cache_without_redis_is_an_error(self):
        memory = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
        is_raised = self.assertRaisesRegex(ImproperlyConfigured, "'default' is not a Redis cache")
        with override_settings(CACHES=memory), is_raised:
            lock("a", lease=30)

    def test_a_lock_of_another_process_is_refused(self):
        self.redis.execute_command("LOCK.ACQUIRE", "shop:1:a", "PX", 30_000, "ID", "1")
        with self.assertRaises(LockRefused):
            lock("a", lease=30).acquire()


class Commands(Framed):
    def ship(self, name, **env):
        env = {"DJANGO_SETTINGS_MODULE": "shop.settings", "SERVERLOCK_TESTS_NAME": name, **env}
        return self.start("-m", "django", "ship", **env)

    def begun(self):
        return [event.split()[0] for event in self.events() if event.endswith("begins")]

    def test_it_runs_on_one_host(self):
        first = self.ship("first")
        self.until("it runs", lambda: self.begun() == ["first"])
        second = self.ship("second")
        self.assertEqual(second.process.wait(240), 0)
        self.assertIn("command:ship: another host is running it", second.said())
        self.redis.rpush("go", "go")
        self.assertEqual(first.process.wait(240), 0)
        self.assertEqual(self.events(), ["first begins", "first ends"])

    def test_without_the_lock_it_runs_on_both(self):
        self.ship("first", **{UNLOCKED: "1"})
        self.ship("second", **{UNLOCKED: "1"})
        self.until("both run", lambda: sorted(self.begun()) == ["first", "second"])

    def test_another_host_goes_on_when_one_is_killed(self):
        first = self.ship("first", SERVERLOCK_TESTS_STANDBY="1")
        self.until("it runs", lambda: self.begun() == ["first"])
        self.ship("second", SERVERLOCK_TESTS_STANDBY="1")
        self.until("the other one waits", lambda: self.waiting("shop:1:command:ship"))
        first.kill()
        # Within the lease and the margin: 11 s.
        self.until("the other one runs", lambda: self.begun() == ["first", "second"])

    def test_a_command_that_loses_its_lock_ends(self):
        first = self.ship("first")
        self.until("it runs", lambda: self.begun() == ["first"])
        first.is_ended = True
        self.take("shop:1:command:ship")
        self.assertEqual(first.process.wait(240), 1, first.said())
        self.assertIn("CommandError: the lock 'shop:1:command:ship': lost", first.said())
        self.assertEqual(self.events(), ["first begins"])


if __name__ == "__main__":
    unittest.main()
