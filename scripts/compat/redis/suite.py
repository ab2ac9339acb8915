#!/usr/bin/env python3
"""Runs Redis's own tests on servers without the module and with it, and compares them.

    scripts/compat/redis/suite.py FOLDER UNITS

scripts/compat.sh calls it, with Redis's sources and its programs in FOLDER, and the name of a file beside this one.
Each unit in that file runs both ways; `cluster` and `sentinel` are Redis's other two suites.

Writes JUnit's XML to the file that RESULT names: a test passes if it has the same result both ways. A unit with a test
that does not pass runs up to three times, because some have bounds in wall time, and its best result counts.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODULE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release/libredis_lock.so"
TRIES = 3

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PASSED = re.compile(r"\[ok\]: (.*) \(\d+ ms\)$")
FAILED = re.compile(r"\[err\]: (.*?)(?: in tests/\S+\.tcl)?$")
# The suites with instances print the name of a file, then a test's time and name, then what it prints itself, and then
# its result.
INSTANCES = ("cluster", "sentinel")
FILE = "Testing unit: "
BEGUN = re.compile(r"^\d\d:\d\d:\d\d> ", re.MULTILINE)
ENDED = re.compile(r"(.*?): (?:.*?)(OK(?=\n)|FAILED:)", re.DOTALL)
# What they choose at random is in the names of their tests.
RANDOM = (*INSTANCES, "integration/psync2")


def outcomes(output: str) -> Iterator[tuple[str, bool]]:
    """Each test's name, and whether it passed."""
    # What comes after The End repeats the failures.
    for line in output.split("\n                   The End\n")[0].splitlines():
        passed, failed = PASSED.match(line), FAILED.match(line)
        if match := passed or failed:
            yield match[1], passed is not None


def outcomes_of_instances(output: str) -> Iterator[tuple[str, bool]]:
    """The same for the suites with instances; the name has the file's."""
    for part in output.split(FILE)[1:]:
        file, _, tests = part.partition("\n")
        for begun in BEGUN.split(tests)[1:]:
            # A test without a result ended its file.
            ended = ENDED.match(begun)
            yield f"{file}: {ended[1] if ended else begun.split(': ')[0]}", ended is not None and ended[2] == "OK"


def results_of(unit: str, output: str) -> dict[str, bool]:
    """Whether each test passed. Of tests with the same name, the later ones get a number; if names are random, those
    that differ only in numbers are one test."""
    found: dict[str, bool] = {}
    seen: Counter[str] = Counter()
    for name, passed in (outcomes_of_instances if unit in INSTANCES else outcomes)(output):
        # XML has no control characters.
        name = re.sub(r"[\x00-\x1f]", "?", name)
        if unit in RANDOM:
            name = re.sub("[0-9]+", "N", name)
            found[name] = found.get(name, True) and passed
        else:
            seen[name] += 1
            found[name if seen[name] == 1 else f"{name} #{seen[name]}"] = passed
    return found


def run(folder: Path, unit: str, options: list[str]) -> tuple[dict[str, bool], str]:
    """The results of a unit's tests; after a failure, those of its best run."""
    best: dict[str, bool] = {}
    log = ""
    # One client: nothing else runs beside a test. Durable: an exception in a test does not end the others.
    command = ["./runtest", "--clients", "1", "--durable", "--single", unit, *options]
    if unit in INSTANCES:
        command = [f"./runtest-{unit}", *options]
    for _ in range(TRIES):
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
        found = results_of(unit, output)
        if done.returncode:
            log += output[-4_000:]
        best = {name: best.get(name, False) or found.get(name, False) for name in [*best, *found]}
        if done.returncode == 0:
            break
    return best, log


def main(folder: Path, listed: str) -> None:
    units = [line for line in (HERE / listed).read_text().split("\n") if line and not line.startswith("#")]
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
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
