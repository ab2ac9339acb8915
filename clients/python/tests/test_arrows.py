"""Imports run one way, even type-only imports and those within functions: pyproject.toml defines the layers."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


class Arrows(unittest.TestCase):
    def test_imports_run_one_way(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", LINT, "--no-cache"],
            capture_output=True,
            text=True,
            cwd=PACKAGE,
            env={**os.environ, "PYTHONPATH": str(PACKAGE / "src")},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("5 kept, 0 broken", done.stdout)


if __name__ == "__main__":
    unittest.main()
