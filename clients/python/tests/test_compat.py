"""`serverlock.compat` against redis-py's own tests of its Lock, and the changes that docs/MIGRATING.md names.

redis-py's tests are in its source archive, which scripts/test-clients.sh fetches into the virtual environment.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "suite"))

from servers import Server  # noqa: E402

CHOSEN = "the server creates the token: it cannot be chosen"
VALUE = "the key holds more than the token, and always has an expiry"
POLLS = "it counts sleeps between polls; nothing polls here"

# The tests that cannot pass over LOCK.*, each with the reason. All others must pass.
DIFFERS = {
    "test_lock": VALUE,
    "test_lock_token": CHOSEN,
    "test_lock_token_thread_local_false": CHOSEN,
    "test_context_manager": VALUE,
    "test_blocking_timeout": POLLS,
    "test_context_manager_blocking_timeout": POLLS,
}

FIXTURES = """
import os, pytest, pytest_asyncio, redis, redis.asyncio

PORT = int(os.environ["PORT"])

# A lock's key lives until the first full millisecond after its lease.
class Redis(redis.Redis):
    def pttl(self, name):
        return super().pttl(name) - 1

class AsyncRedis(redis.asyncio.Redis):
    async def pttl(self, name):
        return await super().pttl(name) - 1

def _get_client(kind, request=None, **options):
    client = kind(port=PORT, **options)
    request.addfinalizer(client.close)
    return client

@pytest.fixture()
def r():
    with Redis(port=PORT) as client:
        client.flushall()
        yield client
"""

FIXTURES_ASYNCIO = """
import pytest_asyncio
from ..conftest import PORT, AsyncRedis

@pytest_asyncio.fixture()
async def create_redis():
    made = []
    async def create(**options):
        made.append(AsyncRedis(port=PORT, **options))
        return made[-1]
    yield create
    for client in made:
        await client.aclose()

@pytest_asyncio.fixture()
async def r(create_redis):
    client = await create_redis()
    await client.flushall()
    return client
"""


TRIES = 5


class TheirTests(unittest.TestCase):
    """With a margin and a retention of 0, because some of them check the key's expiry."""

    def test_they_pass_with_threads(self) -> None:
        self.run_theirs("tests/test_lock.py", "redis.lock", "serverlock.compat.redis_py", 32)

    def test_they_pass_with_asyncio(self) -> None:
        self.run_theirs(
            "tests/test_asyncio/test_lock.py", "redis.asyncio.lock", "serverlock.compat.redis_py_asyncio", 30
        )

    def run_theirs(self, file: str, theirs: str, ours: str, count: int) -> None:
        archive = next(Path(sys.prefix).glob("sources/redis-*.tar.gz"), None)
        assert archive is not None, "the source archive of redis-py is missing: run scripts/test-clients.sh python"
        server = Server("margin-ms", "0", "retention-ms", "0")
        self.addCleanup(server.end)
        with tempfile.TemporaryDirectory() as name, tarfile.open(archive) as packed:
            folder = Path(name)
            inside = f"{archive.name.removesuffix('.tar.gz')}/{file}"
            text = packed.extractfile(inside).read().decode()  # type: ignore[union-attr]
            changed = text.replace(f"from {theirs} import Lock", f"from {ours} import Lock")
            self.assertNotEqual(changed, text)
            for made, content in {
                "tests/__init__.py": "",
                "tests/conftest.py": FIXTURES,
                "tests/test_asyncio/__init__.py": "",
                "tests/test_asyncio/conftest.py": FIXTURES_ASYNCIO,
                file: changed,
            }.items():
                (folder / made).parent.mkdir(parents=True, exist_ok=True)
                (folder / made).write_text(content)
            passed, output = self.results(folder, file, server)
            self.assertEqual(len(passed), count, output)
            # Some of their tests have bounds in wall time, so a busy machine may need several tries.
            for _ in range(TRIES):
                late = [name for name in passed if not passed[name] and name not in DIFFERS]
                if not late:
                    break
                again, output = self.results(folder, file, server, "-k", " or ".join(late))
                passed |= {name: again[name] for name in late}
        self.assertEqual({name for name in passed if not passed[name]}, DIFFERS.keys() & passed.keys(), output)

    def results(self, folder: Path, file: str, server: Server, *chosen: str) -> tuple[dict[str | None, bool], str]:
        """Which of their tests pass, and pytest's output."""
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-o",
                "asyncio_mode=auto",
                "-o",
                "markers=onlynoncluster",
                "--junitxml",
                folder / "result.xml",
                folder / file,
                *chosen,
            ],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PORT": str(server.port), "PYTHONPATH": str(HERE.parent / "src")},
        )
        results = ElementTree.parse(folder / "result.xml").getroot().iter("testcase")
        return {case.get("name"): len(case) == 0 for case in results}, done.stdout


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
