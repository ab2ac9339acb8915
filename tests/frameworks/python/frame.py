"""What the tests share: a server for each test, and programs in processes of their own that can be killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "clients/suite"), str(ROOT / "clients/python/src"), str(HERE)]

from servers import Server, free_port, until  # noqa: E402

__all__ = ["Framed", "Program", "free_port", "until"]

# Set in a process whose tasks, jobs and commands are to run without a lock.
UNLOCKED = "SERVERLOCK_TESTS_UNLOCKED"

# Long enough to be renewed on a machine with a load of fifty.
LEASE = 10

DAY = 86_400
PATIENCE = float(os.environ.get("SERVERLOCK_TESTS_PATIENCE", "240"))


class Program:
    """A process, with all the processes that it starts."""

    is_ended = False  # on purpose

    def __init__(self, words, **env):
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        path = os.pathsep.join([str(HERE), str(ROOT / "clients/python/src")])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", *words],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **env},
            start_new_session=True,
        )

    def kill(self):
        """Ends all of its processes at once, as a power failure does."""
        self.is_ended = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self):
        """Asks it to end, and waits until it has."""
        self.is_ended = True
        self.process.terminate()
        self.process.wait(240)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


class Framed(unittest.TestCase):
    """Each test has a server, a client for it, and programs that it starts."""

    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.end)
        self.redis = redis.Redis(port=self.server.port, decode_responses=True)
        self.addCleanup(self.redis.close)
        self.programs = []
        self.addCleanup(self._end)

    def start(self, *words, **env):
        program = Program(words, SERVERLOCK_TESTS_PORT=str(self.server.port), **env)
        self.programs.append(program)
        return program

    def until(self, what, condition):
        """Waits until the condition holds. If it never does, the programs' last lines say why."""

        def checked():
            failed = [it for it in self.programs if not it.is_ended and it.process.poll() not in (None, 0)]
            if failed:
                raise AssertionError(f"{what}: a program failed")
            return condition()

        try:
            return until(what, checked, PATIENCE)
        except AssertionError as error:
            logs = "\n".join(f"--- {it.process.args[1:]}\n{it.said()[-3000:]}" for it in self.programs)
            raise AssertionError(f"{error}\n{logs}") from error

    def info(self, key):
        """What LOCK.INFO says about this lock."""
        conn = self.server.connect()
        try:
            return conn.map("LOCK.INFO", key)
        finally:
            conn.close()

    def waiting(self, key):
        """How many wait for this lock."""
        return self.info(key)["waiters"]

    def asked(self):
        """How many attempts there were."""
        stats = {name.lower(): found for name, found in self.redis.info("commandstats").items()}
        return stats.get("cmdstat_lock.acquire", {"calls": 0})["calls"]

    def events(self):
        """What the programs have reported, in order."""
        return self.redis.lrange("events", 0, -1)

    def take(self, key):
        """Takes the lock away from its holder."""
        self.redis.execute_command("LOCK.RELEASE", key, self.info(key)["token"])

    def far_from_midday(self):
        """The tick of a day changes at noon."""
        left = (time.time() + DAY / 2) % DAY
        if DAY - left < 900:
            self.skipTest("the tick changes within a quarter of an hour")

    def _end(self):
        for program in self.programs:
            program.kill()
            program.log.close()
