"""`serverlock.compat` beyond redis-py's own tests: queues, renewal, tokens passed between processes, its errors."""

import asyncio
import gc
import os
import sys
import threading
import time
import unittest
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import redis
import redis.asyncio
import valkey
import valkey.asyncio

from serverlock import Locks
from serverlock.compat import interface, redis_py_asyncio
from serverlock.compat.redis_py import Lock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suite"))

from servers import Cluster, Server, free_port, until


class Compat(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.end)
        self.client: Any = redis.Redis(port=self.server.port)
        self.addCleanup(self.client.close)

    def info(self, key: str) -> dict[str, Any]:
        with_module: Any = self.server.connect()
        found: dict[str, Any] = with_module.info(key)
        with_module.close()
        return found

    def test_waiters_queue_in_order(self) -> None:
        order: list[int] = []
        with Lock(self.client, "a", timeout=30):
            waits = [threading.Thread(target=self.take, args=(order, number)) for number in range(5)]
            for number, wait in enumerate(waits, 1):
                wait.start()
                until("it waits", lambda number=number: self.info("a")["waiters"] == number)
        for wait in waits:
            wait.join(120)
        self.assertEqual(order, list(range(5)))

    def take(self, order: list[int], number: int) -> None:
        with Lock(self.client, "a", timeout=30):
            order.append(number)

    def test_the_key_stays_for_61_seconds_after_the_lease(self) -> None:
        lock = Lock(self.client, "a", timeout=30)
        lock.acquire()
        left: Any = self.client.pttl("a")
        lock.release()
        # docs/MIGRATING.md says so: the module adds its margin and its retention.
        self.assertTrue(90_000 < left <= 91_001, left)  # the expiry is rounded up to a millisecond

    def test_without_a_timeout_it_is_renewed_and_with_one_it_is_not(self) -> None:
        with mock.patch.object(interface, "LEASE", 6.0):
            lock = Lock(self.client, "a")
            lock.acquire()
        timed = Lock(self.client, "b", timeout=0.6)
        timed.acquire()
        end = time.monotonic() + 7.0
        while time.monotonic() < end:
            self.assertTrue(lock.owned())
            time.sleep(0.05)
        self.assertFalse(timed.owned())
        lock.release()
        with self.assertRaisesRegex(redis.exceptions.LockNotOwnedError, "no longer owned"):
            timed.release()

    def test_the_lock_is_held_for_its_whole_timeout(self) -> None:
        lock = Lock(self.client, "a", timeout=300)
        lock.acquire()
        lock.local.hold._lease.sent -= 280  # the last tenth
        self.assertTrue(lock.owned())
        lock.release()

    def test_a_token_may_be_passed_on(self) -> None:
        lock = Lock(self.client, "a", timeout=30)
        lock.acquire()
        self.assertEqual(int(lock.local.token), self.info("a")["token"])
        other = Lock(self.client, "a", timeout=20)
        self.assertFalse(other.owned())
        other.local.token = lock.local.token
        self.assertTrue(other.owned() and other.reacquire())
        self.assertLessEqual(self.info("a")["lease-ms"], 20_000)
        Lock(self.client, "a").do_release(lock.local.token)
        self.assertFalse(lock.locked())
        for wrong in (b"1", "mine"):
            with self.assertRaises(redis.exceptions.LockNotOwnedError):
                other.do_release(wrong)

    def test_a_thread_sees_only_its_own_token(self) -> None:
        lock, shared = Lock(self.client, "a", timeout=30), Lock(self.client, "b", timeout=30, thread_local=False)
        lock.acquire()
        shared.acquire()
        seen: list[object] = []

        def look() -> None:
            seen.append(lock.owned())
            try:
                lock.release()
            except redis.exceptions.LockError as error:
                seen.append(str(error))
            seen.append(shared.owned())

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        self.assertEqual(seen, [False, "Cannot release a lock that's not owned or is already unlocked.", True])

    def test_an_expired_lock_that_is_kept_is_not_locked(self) -> None:
        for options in ({}, {"module": False}):
            server = Server(*([] if options else ["margin-ms", "0"]), **options)  # type: ignore[arg-type]
            self.addCleanup(server.end)
            client: Any = redis.Redis(port=server.port)
            lock = Lock(client, "a", timeout=0.2)
            self.assertTrue(lock.acquire() and lock.locked())
            until("it has expired", lambda lock=lock: not lock.locked())
            self.assertIsNotNone(client.get("a"))
            client.set("a", "somebody's")
            self.assertTrue(lock.locked())

    def test_without_the_module_it_works_through_the_script(self) -> None:
        server = Server(module=False)
        self.addCleanup(server.end)
        client: Any = redis.Redis(port=server.port)
        lock, other = Lock(client, "a", timeout=30), Lock(client, "a", timeout=30, blocking_timeout=0.2)
        with lock:
            self.assertTrue(lock.locked() and lock.owned() and lock.extend(5) and lock.reacquire())
            self.assertFalse(other.acquire() or other.owned())
        self.assertFalse(lock.locked())

    def test_errors_are_those_of_the_library(self) -> None:
        self.client.acl_setuser("few", enabled=True, nopass=True, keys=["*"], commands=["+ping", "+auth", "+hello"])
        port = free_port()
        for library, client_of in ((redis, "Redis"), (valkey, "Valkey")):
            errors: Any = library.exceptions
            kind: Any = getattr(library, client_of)
            with self.assertRaises(errors.ConnectionError) as caught:
                Lock(kind(port=port), "a", timeout=3).acquire(blocking=False)
            error, seen = caught.exception, set()
            while error is not None:
                self.assertNotIn(id(error), seen, "its causes are a cycle")
                seen.add(id(error))
                error = error.__cause__ or error.__context__
            few = kind(port=self.server.port, username="few", password="x")
            with self.assertRaises(errors.NoPermissionError):
                Lock(few, "a", timeout=3).acquire(blocking=False)
            plain = kind(port=self.server.port)
            plain.delete("list")
            plain.rpush("list", "x")
            with self.assertRaisesRegex(errors.ResponseError, "WRONGTYPE"):
                Lock(plain, "list", timeout=3).acquire(blocking=False)
            for wrong in ({"timeout": -1}, {"timeout": "soon"}, {"name": "x" * 5000}):
                with self.assertRaisesRegex(errors.LockError, "lease|key") as wrongly:
                    Lock(plain, **{"name": "a", "timeout": 3, **wrong}).acquire(blocking=False)
                self.assertEqual(wrongly.exception.lock_name, wrong.get("name", "a"))
            with self.assertRaisesRegex(errors.LockError, "cannot be chosen"):
                Lock(plain, "a").acquire(token="mine")

    def test_a_forked_child_does_not_release_the_lock(self) -> None:
        lock = Lock(self.client, "a", timeout=30)
        lock.acquire()
        child = os.fork()
        if not child:
            status = 1
            try:
                lock.release()
            except redis.exceptions.LockNotOwnedError:
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue(lock.owned())
        lock.release()

    def test_a_client_has_one_manager_and_may_be_dropped(self) -> None:
        client: Any = redis.Redis(port=self.server.port)
        locks = [Lock(client, name, timeout=30) for name in "ab"]
        for lock in locks:
            with lock:
                pass
        self.assertIs(locks[0]._locks, locks[1]._locks)
        self.assertIsInstance(locks[0]._locks, Locks)
        ref = weakref.ref(client)
        del client, lock, locks
        gc.collect()
        self.assertIsNone(ref())

    def test_it_works_in_a_cluster(self) -> None:
        def start(*options: object, **more: Any) -> Server:
            server = Server(*options, **more)
            self.addCleanup(server.end)
            return server

        cluster = Cluster(start)
        client: Any = redis.RedisCluster("127.0.0.1", cluster.nodes[0].port)
        self.addCleanup(client.close)
        for name in "abc":  # in the slots of different nodes
            with Lock(client, name, timeout=30) as lock:
                self.assertTrue(lock.owned() and lock.locked() and lock.extend(5))
                self.assertFalse(Lock(client, name, timeout=30).acquire(blocking_timeout=0.1))
            self.assertFalse(lock.locked())

    def test_it_works_with_asyncio(self) -> None:
        async def play() -> list[int]:
            client: Any = redis.asyncio.Redis(port=self.server.port)
            order: list[int] = []

            async def take(number: int) -> None:
                async with redis_py_asyncio.Lock(client, "a", timeout=30):
                    order.append(number)

            async with redis_py_asyncio.Lock(client, "a") as lock:
                tasks = []
                for number in range(5):
                    tasks.append(asyncio.create_task(take(number)))
                    while self.info("a")["waiters"] <= number:
                        await asyncio.sleep(0.01)
                self.assertTrue(await lock.owned() and await lock.locked())
            await asyncio.gather(*tasks)
            with self.assertRaises(redis.exceptions.LockError):
                await lock.release()
            down: Any = valkey.asyncio.Valkey(port=free_port())
            with self.assertRaises(valkey.exceptions.ConnectionError):
                await redis_py_asyncio.Lock(down, "a", timeout=3).acquire(blocking=False)
            await down.aclose()
            await client.aclose()
            return order

        self.assertEqual(asyncio.run(play()), list(range(5)))


if __name__ == "__main__":
    unittest.main()
