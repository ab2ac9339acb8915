"""Errors can cross processes, and have the types that handlers expect. A misspelt option is an error."""

import copy
import inspect
import multiprocessing
import pickle
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

import serverlock
import serverlock.aio
from serverlock import LockError, LockRefused, Locks, LockTimeout

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "suite"))

from servers import Server  # noqa: E402

KINDS = [kind for kind in vars(serverlock).values() if isinstance(kind, type) and issubclass(kind, LockError)]

MISSING = """
import redis, serverlock
locks = serverlock.Locks(redis.Redis(port=PORT), OPTIONS)
for _ in range(2):
    locks.lock("a", 60).acquire().release()
"""


def refuse(number: int) -> None:
    raise LockRefused(f"'{number}'", "somebody else has it")


class Errors(unittest.TestCase):
    def test_they_survive_pickling_and_copying(self) -> None:
        for kind in KINDS:
            error = kind("'report'", "somebody else has it")
            for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                self.assertIs(type(made), kind)
                self.assertEqual((str(made), made.key), ("the lock 'report': somebody else has it", "'report'"))

    def test_they_reach_the_parent_of_a_pool(self) -> None:
        theirs = self.assertRaisesRegex(LockRefused, "the lock '7': somebody else has it")
        with multiprocessing.get_context("spawn").Pool(1) as pool, theirs:
            pool.apply_async(refuse, (7,)).get(60)

    def test_each_has_a_code_of_its_own(self) -> None:
        codes = [kind.code for kind in KINDS]
        self.assertEqual(len(set(codes)), len(codes))
        self.assertEqual(LockTimeout.code, "timeout")
        self.assertTrue(issubclass(LockTimeout, TimeoutError))


class Options(unittest.TestCase):
    def test_a_misspelt_option_is_an_error(self) -> None:
        for client, kind in ((redis.Redis(), Locks), (redis.asyncio.Redis(), serverlock.aio.Locks)):
            locks: Any = kind(client)
            for wrong in (
                lambda locks=locks: locks.lock("a", 30, wiat=60),
                lambda locks=locks: locks.shared("a", 30, wiat=60),
                lambda locks=locks: locks.limit("a", 2, 30, wiat=60),
                lambda locks=locks: locks.all_of(["a"], 30, wiat=60),
                lambda locks=locks: locks.recover("a", 30, onwer="x"),
                lambda locks=locks: locks.lock("a", 30, many="wiat"),
                lambda locks=locks: locks.recover("a", 30, wait="wiat"),
                lambda locks=locks: locks.all_of(["a"], 30, details="wiat"),
                lambda locks=locks: locks.leader("a", 30, wiat=60),
                lambda kind=kind, client=client: kind(client, tiemout=2),
            ):
                with self.assertRaisesRegex(TypeError, "wiat|onwer|tiemout|unknown option"):
                    wrong()

    def test_editors_see_the_options(self) -> None:
        for kind in (Locks, serverlock.aio.Locks):
            self.assertIn("timeout", inspect.signature(kind).parameters)
            for name in ("lock", "shared", "limit", "all_of"):
                self.assertLessEqual(
                    {"wait", "owner", "on_lost", "max_hold"}, set(inspect.signature(getattr(kind, name)).parameters)
                )
            self.assertIn("owner", inspect.signature(kind.leader).parameters)
            self.assertEqual(inspect.signature(kind.lock).parameters["wait"].default, 0.0)
            self.assertNotIn("details", inspect.signature(kind.all_of).parameters)


class Warnings(unittest.TestCase):
    def test_a_missing_module_is_logged_once_without_any_set_up(self) -> None:
        server = Server(module=False)
        self.addCleanup(server.end)
        for options, count in (("", 1), ("warn_without_module=False", 0)):
            program = MISSING.replace("PORT", str(server.port)).replace("OPTIONS", options)
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": str(HERE.parent / "src")},
            )
            self.assertEqual(done.stderr.count("no LOCK.*"), count, done.stderr)


if __name__ == "__main__":
    unittest.main()
