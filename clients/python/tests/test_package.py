"""The package as users get it: built, installed in an empty project, with types; its README runs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
ROOT = PACKAGE.parents[1]
sys.path.insert(0, str(ROOT / "clients/suite"))

from servers import Server  # noqa: E402

USE = """
import redis
from typing import reveal_type
from serverlock import Held, Hooks, LockError, Locks

locks = Locks(redis.Redis(), timeout=2, hooks=Hooks())
with locks.lock("report", lease=30, wait=60) as held:
    reveal_type(held)
    token: int = held.token
    left: float = held.left()
    ok: bool = held.release()
"""


def run(*words: object, **more: str) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Package(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_it_installs_into_an_empty_project(self) -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
        source = self.folder / "source"  # a build leaves files behind
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", self.folder, source)
        wheel = next(self.folder.glob("serverlock-*.whl"))
        names = set(zipfile.ZipFile(wheel).namelist())
        self.assertLessEqual(
            {"serverlock/py.typed", "serverlock/lock.lua", "serverlock/aio/__init__.py", "serverlock/testing/aio.py"},
            names,
        )
        venv.create(self.folder / "empty", with_pip=True)
        python = self.folder / "empty/bin/python"
        run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index", wheel)
        said = run(python, "-c", "import serverlock, serverlock.aio as aio; print(serverlock.__version__, aio.Locks)")
        self.assertIn(f"{re.search('version = .(.*).$', (PACKAGE / 'pyproject.toml').read_text(), re.M)[1]} ", said)
        metadata = run(python, "-m", "pip", "show", "serverlock")
        self.assertIn("License: MIT", metadata)

    def test_its_users_get_types(self) -> None:
        use = self.folder / "use.py"
        use.write_text(USE)
        mypy = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(self.folder / "cache"))
        self.assertIn('Revealed type is "serverlock.threads.held.Held"', run(*mypy, use, MYPYPATH=str(PACKAGE / "src")))
        use.write_text(USE.replace("wait=60", "wiat=60"))
        with self.assertRaisesRegex(AssertionError, "wiat"):
            run(*mypy, use, MYPYPATH=str(PACKAGE / "src"))

    def test_the_readmes_examples_run(self) -> None:
        blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
        self.assertEqual(len(blocks), 6)
        server = Server()
        self.addCleanup(server.end)
        for block in blocks:
            example = block.replace("Redis()", f"Redis(port={server.port})")
            self.assertEqual(example == block, "testing.Server" in block)
            said = run(sys.executable, "-W", "error", "-c", example, PYTHONPATH=str(PACKAGE / "src"))
            self.assertTrue("token" in said or "held to the end: True" in said, said)

    def test_the_repositorys_examples_run(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        files = sorted((ROOT / "examples/python").glob("report*.py"))
        self.assertEqual(len(files), 2)
        for file in files:
            text = file.read_text()
            example = text.replace("Redis()", f"Redis(port={server.port})")
            self.assertNotEqual(example, text)
            example = example.replace("range(10)", "range(1)").replace("sleep(10)", "sleep(0.1)")
            said = run(sys.executable, "-W", "error", "-c", example, PYTHONPATH=str(PACKAGE / "src"))
            self.assertTrue(said.startswith("working, token 1"), said)


if __name__ == "__main__":
    unittest.main()
