#!/usr/bin/env python3
"""Runs one suite of another project on a server with the module, and prints one line: tests run, passed, excluded.

    scripts/compat/row.py ROW VERSION COMMAND ...     scripts/compat.sh calls it

COMMAND gets the server's port in PORT. It writes JUnit's XML to the file that RESULT names, or to files in a folder of
that name, or prints the lines of `go test -json`.

ROW.excluded names the tests that cannot pass here, below the reason; `*` stands for any text. They run too, and must
fail: one that passes no longer belongs there. All others must pass. The counts must equal those of the row in
docs/TESTING.md, so a suite that runs nothing fails.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "clients/suite"))

from servers import Server  # noqa: E402

# Some suites have bounds in wall time, so a busy machine may need several runs.
TRIES = int(os.environ.get("TRIES", "5"))


def excluded(row: str) -> list[str]:
    """The patterns of the excluded tests."""
    path = HERE / f"{row}.excluded"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def matching(names: Iterable[str], patterns: list[str]) -> set[str]:
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}


def results_of_junit(path: Path) -> dict[str, bool]:
    """Whether each test passed. A skipped test has not passed; one that printed something may have."""
    files = path.glob("*.xml") if path.is_dir() else [path] if path.exists() else []
    cases = [case for file in files for case in ElementTree.parse(file).getroot().iter("testcase")]
    return {
        f"{case.get('classname')}.{case.get('name')}": all(child.tag.startswith("system-") for child in case)
        for case in cases
    }


def results_of_go(output: str) -> dict[str, bool]:
    """The same for the lines of `go test -json`. Subtests count with their test."""
    found = {}
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Action") in ("pass", "fail", "skip") and "/" not in event.get("Test", "/"):
            found[event["Test"]] = event["Action"] == "pass"
    return found


def run(command: list[str], port: int) -> tuple[dict[str, bool], str]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.xml"
        done = subprocess.run(
            command,
            env={**os.environ, "PORT": str(port), "RESULT": str(result)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return results_of_junit(result) or results_of_go(done.stdout), done.stdout


def listed(row: str, version: str) -> tuple[int, int]:
    """How many tests the table of docs/TESTING.md says run and pass."""
    page = (ROOT / "docs/TESTING.md").read_text()
    counts = r"(\d+) \| (\d+)"
    found = re.search(rf"^\| `{re.escape(row)}` \|[^|]*\| {re.escape(version)} \| {counts} \|", page, re.MULTILINE)
    if found is None:
        sys.exit(f"compat: docs/TESTING.md has no row for {row} {version}")
    return int(found[1]), int(found[2])


def main(row: str, version: str, *command: str) -> None:
    tests, passes = listed(row, version)
    # Some suites check a key's expiry to the millisecond.
    server = Server("margin-ms", "0", "retention-ms", "0")
    try:
        passed, output = run(list(command), server.port)
        patterns = excluded(row)
        differs = matching(passed, patterns)
        for _ in range(1, TRIES):
            if all(passed[name] or name in differs for name in passed):
                break
            again, output = run(list(command), server.port)
            passed |= {name: passed.get(name, False) or ok for name, ok in again.items()}
    finally:
        server.end()
    wrong = [f"fails: {name}" for name in sorted(passed) if not passed[name] and name not in differs]
    wrong += [f"passes, but is excluded: {name}" for name in sorted(differs) if passed[name]]
    wrong += [f"is excluded, but did not run: {name}" for name in patterns if not matching(passed, [name])]
    right = sum(passed.values())
    if (len(passed), right) != (tests, passes):
        wrong.append(f"docs/TESTING.md says that {tests} tests run and {passes} pass")
    print(f"{row} {version}: {len(passed)} tests run, {right} passed, {len(differs)} excluded", flush=True)
    if wrong:
        sys.exit("\n".join([output[-8_000:], *(f"compat: {row}: {what}" for what in wrong)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
