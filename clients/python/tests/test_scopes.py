"""Scopes left by a different thread or task than the one that entered them, as frameworks do."""

import asyncio
import contextlib
import gc
import re
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import redis
import redis.asyncio

import serverlock.aio
from served import Served
from serverlock import LockMisuse
from servers import Server, until


class Worker:
    """A thread that does one thing after another, like a pool's."""

    def __init__(self) -> None:
        self.work: Any = None
        self.given, self.done = threading.Event(), threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            self.given.wait()
            self.given.clear()
            try:
                self.value = self.work()
            except BaseException as error:
                self.value = error
            self.done.set()

    def __call__(self, work: Callable[[], Any]) -> Any:
        self.work = work
        self.given.set()
        assert self.done.wait(60)
        self.done.clear()
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Threads(Served):
    def setUp(self) -> None:
        super().setUp()
        self.locks = self.opened()

    def test_each_dependency_releases_its_own_hold(self) -> None:
        """FastAPI's dependencies: entered in one pool thread, left in another that is in its own dependency."""
        pool = self.locks.limit("pool", 2, 60)

        def dependency() -> Iterator[Any]:
            with pool as held:
                yield held

        one, two = Worker(), Worker()
        first, second = contextlib.contextmanager(dependency)(), contextlib.contextmanager(dependency)()
        held = one(first.__enter__)
        other = two(second.__enter__)
        two(lambda: first.__exit__(None, None, None))
        self.assertTrue(other.is_held)
        self.assertFalse(held.is_held)
        self.assertEqual(self.conn.info("pool")["state"], "held")
        one(lambda: second.__exit__(None, None, None))
        self.assertEqual(self.conn.info("pool")["state"], "free")

    def test_a_scope_releases_its_lock_once(self) -> None:
        with self.locks.lock("a", 60):
            pass
        ended = self.locks._engine()._timer.dropped
        gc.collect()
        until("nothing is left to do", lambda: not ended and not self.locks._engine().resources.debts.count)
        stats = self.conn.call("INFO", "commandstats")
        calls = dict(re.findall(r"cmdstat_lock\.(\w+):calls=(\d+)", stats, re.I))
        self.assertEqual(calls, {"acquire": "1", "release": "1"})

    def test_a_thread_may_lock_again_after_another_one_left_its_scope(self) -> None:
        one, two = Worker(), Worker()
        lock = self.locks.lock("a", 60)
        one(lock.__enter__)
        two(lambda: lock.__exit__(None, None, None))
        self.assertTrue(one(lambda: self.locks.lock("a", 60).acquire()).release())
        with self.assertRaises(LockMisuse):
            lock.__exit__(None, None, None)

    def test_a_scope_that_cannot_be_told_from_others_releases_nobodys_hold(self) -> None:
        pool, workers = self.locks.limit("pool", 2, 60), (Worker(), Worker(), Worker())
        holds = [worker(pool.__enter__) for worker in workers[:2]]
        with self.assertRaises(LockMisuse):
            workers[2](lambda: pool.__exit__(None, None, None))
        self.assertTrue(all(held.is_held for held in holds))
        for worker in workers[:2]:
            worker(lambda: pool.__exit__(None, None, None))
        self.assertEqual(self.conn.info("pool")["state"], "free")


class Tasks(unittest.IsolatedAsyncioTestCase):
    async def test_a_fixture_is_left_in_another_task(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        client: Any = redis.asyncio.Redis(port=server.port)
        locks = serverlock.aio.Locks(client)
        pool = locks.limit("pool", 2, 60)

        @contextlib.asynccontextmanager
        async def fixture() -> Any:
            async with pool as held:
                yield held

        first, second = fixture(), fixture()
        held = await asyncio.create_task(first.__aenter__())
        other = await asyncio.create_task(second.__aenter__())
        await asyncio.create_task(first.__aexit__(None, None, None))
        self.assertEqual((held.is_held, other.is_held), (False, True))
        await asyncio.create_task(second.__aexit__(None, None, None))
        await locks.aclose()
        await client.aclose()


if __name__ == "__main__":
    unittest.main()
