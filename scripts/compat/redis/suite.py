#!/usr/bin/env python3
"""Runs Redis's own tests on servers without the module and with it, and compares them.

    scripts/compat/redis/suite.py FOLDER     scripts/compat.sh calls it, with Redis's sources and its programs in FOLDER

Each unit of units.txt runs both ways. Writes JUnit's XML to the file that RESULT names: a test passes if it has the
same result both ways. A unit with a test that does not pass runs up to three times, because some have bounds in wall
time, and its best result counts.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODULE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release/libredis_lock.so"
TRIES = 3

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PASSED = re.compile(r"\[ok\]: (.*) \(\d+ ms\)$")
FAILED = re.compile(r"\[err\]: (.*?)(?: in tests/\S+\.tcl)?$")


def results_of(output: str) -> dict[str, bool]:
    """Whether each test passed. Of tests with the same name, the later ones get a number."""
    found: dict[str, bool] = {}
    seen: Counter[str] = Counter()
    # What comes after The End repeats the failures.
    for line in output.split("\n                   The End\n")[0].splitlines():
        passed, failed = PASSED.match(line), FAILED.match(line)
        if match := passed or failed:
            seen[match[1]] += 1
            name = match[1] if seen[match[1]] == 1 else f"{match[1]} #{seen[match[1]]}"
            # XML has no control characters.
            name = re.sub(r"[\x00-\x1f]", "?", name)
            found[name] = passed is not None
    return found


def run(folder: Path, unit: str, options: list[str]) -> tuple[dict[str, bool], str]:
    """The results of a unit's tests; after a failure, those of its best run."""
    best: dict[str, bool] = {}
    log = ""
    for _ in range(TRIES):
        # One client: nothing else runs beside a test. Durable: an exception in a test does not end the others.
        command = ["./runtest", "--clients", "1", "--durable", "--single", unit, *options]
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        output = COLOUR.sub("", done.stdout)
        found = results_of(output)
        if done.returncode:
            log += output[-4_000:]
        best = {name: best.get(name, False) or found.get(name, False) for name in [*best, *found]}
        if done.returncode == 0:
            break
    return best, log


def main(folder: Path) -> None:
    units = [line for line in (HERE / "units.txt").read_text().split("\n") if line and not line.startswith("#")]
    suite = ElementTree.Element("testsuite", name="redis")
    for unit in units:
        plain, _ = run(folder, unit, [])
        loaded, log = run(folder, unit, ["--config", "loadmodule", str(MODULE)])
        differs = False
        print(f"{unit}: {len(plain)} tests, {len(loaded)} with the module", flush=True)
        for name in dict.fromkeys([*plain, *loaded]):
            case = ElementTree.SubElement(suite, "testcase", classname=unit, name=name)
            if plain.get(name) != loaded.get(name):
                ElementTree.SubElement(case, "failure")
                differs = True
                print(f"{unit}: {name}: passes {plain.get(name)} without the module, {loaded.get(name)} with it")
        if differs:
            print(log)
    ElementTree.ElementTree(suite).write(os.environ["RESULT"], encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
