"""The changes that docs/MIGRATING.md names. scripts/compat.sh runs redis-py's own tests against `serverlock.compat`."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "suite"))

from servers import Server  # noqa: E402

REDIS_PY = """
import redis
from redis.lock import Lock

client = redis.Redis(port=PORT)
with Lock(client, "report", timeout=30) as lock:
    print(lock.owned(), lock.extend(30), Lock(client, "report").acquire(blocking=False))
    print(client.lock("report", lock_class=Lock).acquire(blocking_timeout=0.2))
"""

ASYNCIO = """
import asyncio, redis.asyncio
from redis.asyncio.lock import Lock

async def main():
    async with redis.asyncio.Redis(port=PORT) as client:
        async with Lock(client, "report", timeout=30) as lock:
            print(await lock.owned(), await lock.extend(30), await Lock(client, "report").acquire(blocking=False))
            print(await client.lock("report", lock_class=Lock).acquire(blocking_timeout=0.2))

asyncio.run(main())
"""

PYTHON_REDIS_LOCK = """
import math, redis, redis_lock, serverlock

client = redis.Redis(port=PORT)
locks = serverlock.Locks(client)
with redis_lock.Lock(client, "report", expire=30, auto_renewal=True):
    print(client.exists("lock:report"))
print(client.exists("lock:report"))
"""


class Migrating(unittest.TestCase):
    """docs/MIGRATING.md names the line to change: a program behaves the same before and after."""

    def test_a_program_with_redis_pys_lock_changes_one_line(self) -> None:
        self.changes(REDIS_PY, "from redis.lock ", "True True False\nFalse\n")

    def test_a_program_with_redis_pys_asyncio_lock_changes_one_line(self) -> None:
        self.changes(ASYNCIO, "from redis.asyncio.lock ", "True True False\nFalse\n")

    def test_a_program_with_python_redis_lock_changes_one_line(self) -> None:
        self.changes(PYTHON_REDIS_LOCK, "with redis_lock.", "1\n0\n")

    def changes(self, program: str, line: str, says: str) -> None:
        page = (HERE.parents[2] / "docs/MIGRATING.md").read_text()
        changes = dict(re.findall(r"```diff\n-(.*)\n\+(.*)\n```", page))
        old = next(old for old in changes if old.startswith(line))
        changed = program.replace(f"{old}\n", f"{changes[old]}\n")
        self.assertNotEqual(changed, program, "the program has another line")
        server = Server()
        self.addCleanup(server.end)
        for text in (program, changed):
            done = subprocess.run(
                [sys.executable, "-c", text.replace("PORT", str(server.port))],
                text=True,
                capture_output=True,
                env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
            )
            self.assertEqual((done.stdout, done.stderr), (says, ""))
            conn = server.connect()
            stats = conn.call("INFO", "commandstats").lower()
            conn.close()
            self.assertEqual("cmdstat_lock.acquire" in stats, text is changed)


if __name__ == "__main__":
    unittest.main()
