#!/usr/bin/env python3
"""Reads lcov from stdin, and prints each line that no test ran, and each line with a branch that no test took.

    llvm-cov export --format=lcov ... | scripts/uncovered.py tests/fixtures/uncovered.txt

Prints `path:number: line` or `path:number: branch: line`; tests themselves are left out. The file lists the lines of
the core that no test has to run, below the reason, as `path: line` or `path: branch: line`. Fails if a line of the core
is neither run nor listed. Says which listed lines are run: they may no longer belong there.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# Each of these has to be run or listed.
CORE = "core/src/"


def missed(records: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """The path, number and text of each line that was missed."""
    lines: list[str] = []
    source, end = Path(), 0
    found: dict[int, str] = {}
    for record in records:
        kind, _, rest = record.strip().partition(":")
        if kind == "SF":
            source = Path(rest)
            lines = source.read_text("utf-8").splitlines()
            # Unit tests stand at the end of their file.
            end = next((at for at, line in enumerate(lines) if line == "#[cfg(test)]"), len(lines))
            found = {}
        elif kind == "DA":
            number, count = (int(word) for word in rest.split(",")[:2])
            if count == 0:
                found[number] = ""
        elif kind == "BRDA":
            branch, _, _, taken = rest.split(",")
            if taken == "0":
                found.setdefault(int(branch), "branch: ")
        elif kind == "end_of_record":
            path = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
            for number in sorted(each for each in found if each <= end):
                text = lines[number - 1].strip()
                # What only closes a block says nothing.
                if text.strip("{}()[];,"):
                    yield str(path), number, found[number] + text


def main() -> None:
    listed = {line for line in Path(sys.argv[1]).read_text("utf-8").splitlines() if line and not line.startswith("#")}
    unknown, known = [], set()
    for path, number, text in missed(sys.stdin):
        print(f"{path}:{number}: {text}")
        if f"{path}: {text}" in listed:
            known.add(f"{path}: {text}")
        elif path.startswith(CORE):
            unknown.append(f"no test runs {path}:{number}: {text}")
    # Some are reached at random.
    for line in sorted(listed - known):
        print(f"a test runs it: {line}", file=sys.stderr)
    if unknown:
        sys.exit("\n".join(unknown))


if __name__ == "__main__":
    main()
