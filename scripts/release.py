#!/usr/bin/env python3
"""Keeps the version and the repository's address the same in every file, and makes the tags of a release.

    scripts/release.py check [--publish]     fail unless all files agree (`make release-check`); --publish also refuses
                                             a version without a date, and the placeholder for the address
    scripts/release.py set VERSION [DATE]    write the version everywhere; with a DATE (2026-12-31) it is released
    scripts/release.py address URL           replace the repository's address everywhere, Go's import paths included
    scripts/release.py tag                   make the annotated tags, if check passes, the version has its date and
                                             nothing is uncommitted; prints the command that pushes them
    scripts/release.py files                 list the files that carry the version or the address

Cargo.toml has the version and the address that count; scripts/release_places.py has the places that repeat them.
--root FOLDER works on a copy of the tree.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

from release_places import ADDRESS, CHANGELOGS, GO_MODULES, GO_REQUIRES, PLACEHOLDER, PLACES, STATUS, Place

VERSION = re.compile(r"\d+\.\d+\.\d+(?:-rc\.\d+)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
SECTION = re.compile(rf"^## \[({VERSION.pattern})\] - (unreleased|{DATE.pattern})$", re.MULTILINE)


class Refused(Exception):
    """What is wrong, one line for each finding."""


def spelled(version: str, spelling: str) -> str:
    """The version as PyPI, RubyGems and MODULE LIST write it."""
    if spelling == "python":
        return version.replace("-rc.", "rc")
    if spelling == "gem":
        return version.replace("-", ".")
    numbers = [int(part) for part in version.split("-")[0].split(".")]
    if spelling == "number":
        return str(numbers[0] * 10_000 + numbers[1] * 100 + numbers[2])
    if spelling == "series":
        return f"{numbers[0]}.{numbers[1]}"
    return version


GENERIC = {
    "version": VERSION.pattern,
    "python": r"\d+\.\d+\.\d+(?:rc\d+)?",
    "gem": r"\d+\.\d+\.\d+(?:\.rc\.\d+)?",
    "number": r"\d{5,}",
    "series": r"\d+\.\d+(?=\.x)",
    "address": r"https://[^\s\"'<>]+?",
}


def matches(place: Place, text: str) -> list[re.Match[str]]:
    """Where the text has the place, whatever it says now. In a template, @ stands for what is repeated."""
    before, after = place.template.split("@")
    pattern = f"(?<={re.escape(before)})({GENERIC[place.spelling]})(?={re.escape(after)})"
    return list(re.finditer(pattern, text))


class Tree:
    """The project's files in a folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}

    def read(self, file: str) -> str:
        if file not in self.texts:
            try:
                self.texts[file] = (self.root / file).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise Refused(f"{file} is missing") from None
        return self.texts[file]

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(text, encoding="utf-8")
        self.texts[file] = text

    def version(self) -> str:
        found = re.search(rf'^version = "({VERSION.pattern})"$', self.read("Cargo.toml"), re.MULTILINE)
        if not found:
            raise Refused('Cargo.toml has no line version = "1.2.3" or "1.2.3-rc.4"')
        return found[1]

    def address(self) -> str:
        found = re.search(r'^repository = "(https://[^"]*[^"/])"$', self.read("Cargo.toml"), re.MULTILINE)
        if not found:
            raise Refused('Cargo.toml has no line repository = "https://..."')
        return found[1]

    def date(self) -> str:
        """The newest section's date, or "unreleased"."""
        found = SECTION.search(self.read(CHANGELOGS[0]))
        return found[2] if found else "unreleased"

    def replace(self, place: Place, value: str) -> None:
        """Writes the value at each match of the place."""
        text = self.read(place.file)
        for match in reversed(matches(place, text)):
            text = text[: match.start()] + value + text[match.end() :]
        self.write(place.file, text)

    def findings(self) -> Iterator[str]:
        """Where files disagree with Cargo.toml, and sections that are missing."""
        version, address, date = self.version(), self.address(), self.date()
        for place, value in [(it, spelled(version, it.spelling)) for it in PLACES] + [(it, address) for it in ADDRESS]:
            found = [match[0] for match in matches(place, self.read(place.file))]
            if len(found) != place.count:
                yield f"{place.file}: {len(found)} times, not {place.count}: {place.template.replace('@', value)!r}"
            yield from (f"{place.file}: {it}, but Cargo.toml has {value}" for it in found if it != value)
        for file in CHANGELOGS:
            newest = SECTION.search(self.read(file))
            if not newest or newest[1] != version:
                yield f"{file}: its newest section is not ## [{version}] - unreleased or a date"
            elif newest[2] != date:
                yield f"{file}: {newest[2]}, but {CHANGELOGS[0]} has {date}"
        for file, unreleased, released in STATUS:
            expected = (unreleased if date == "unreleased" else released).replace("@", date)
            if expected not in self.read(file):
                yield f"{file}: lacks {expected!r}, for {CHANGELOGS[0]} has {date}"
        for module, folder in GO_MODULES.items():
            lines = [f"module {go_path(address, module)}"]
            if module in GO_REQUIRES:
                required = go_path(address, GO_REQUIRES[module])
                lines += [f"\t{required} v{version}", f"replace {required} => ../"]
            missing = [line for line in lines if f"\n{line}\n" not in self.read(f"{folder}/go.mod")]
            yield from (f"{folder}/go.mod: lacks {line.strip()!r}" for line in missing)

    def check(self, publish: bool) -> None:
        """Raises Refused with all findings."""
        findings = list(self.findings())
        if publish and self.date() == "unreleased":
            findings.append(f"{CHANGELOGS[0]}: {self.version()} is unreleased: scripts/release.py set VERSION DATE")
        if publish and self.address() == PLACEHOLDER:
            findings.append(f"Cargo.toml: {PLACEHOLDER} is a placeholder: scripts/release.py address URL")
        if findings:
            raise Refused("\n".join(findings))

    def set(self, version: str, date: str) -> None:
        """Writes version and date everywhere. A released section stays, and a new one begins above it."""
        if not VERSION.fullmatch(version):
            raise Refused(f"{version} is not a version such as 1.2.3 or 1.2.3-rc.4")
        if date != "unreleased":
            try:
                datetime.date.fromisoformat(date)
            except ValueError:
                raise Refused(f"{date} is not a date such as 2026-12-31") from None
        old = self.date()
        for place in PLACES:
            self.replace(place, spelled(version, place.spelling))
        for module, required in GO_REQUIRES.items():
            place = Place(f"{GO_MODULES[module]}/go.mod", f"\n\t{go_path(self.address(), required)} v@\n")
            self.replace(place, version)
        for file in CHANGELOGS:
            text, heading = self.read(file), f"## [{version}] - {date}"
            newest = SECTION.search(text)
            if not newest:
                raise Refused(f"{file} has no section such as ## [1.2.3] - unreleased")
            same = newest[2] == "unreleased" or newest[1] == version
            text = text[: newest.start()] + heading + ("" if same else "\n\n" + newest[0]) + text[newest.end() :]
            self.write(file, text)
        for file, unreleased, released in STATUS:
            now = (unreleased if old == "unreleased" else released).replace("@", old)
            then = (unreleased if date == "unreleased" else released).replace("@", date)
            self.write(file, self.read(file).replace(now, then))

    def set_address(self, address: str) -> None:
        """Writes the address everywhere, and the import paths that follow from it."""
        if not re.fullmatch(r"https://[a-z0-9.-]+(/[\w.-]+)+", address):
            raise Refused(f"{address} is not an address such as https://github.com/owner/redis-lock")
        old = self.address()
        for place in ADDRESS:
            self.replace(place, address)
        # The longest first: one is the beginning of the other.
        for module in sorted(GO_MODULES, reverse=True):
            before, after = go_path(old, module), go_path(address, module)
            for file in self.tracked_with(before):
                self.write(file, self.read(file).replace(before, after))

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)
        # git grep ends with 1 if it finds nothing.
        if done.returncode > (arguments[0] == "grep"):
            raise Refused(f"git {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def tracked_with(self, text: str) -> list[str]:
        return self.git("grep", "-lIF", text).splitlines()

    def tag(self) -> list[str]:
        """Makes the annotated tags: the release's, and one for each Go module, as Go requires in a subfolder."""
        self.check(publish=False)
        version = self.version()
        if self.date() == "unreleased":
            raise Refused(f"{CHANGELOGS[0]}: {version} is unreleased: scripts/release.py set {version} DATE")
        changes = self.git("status", "--porcelain").splitlines()
        if changes:
            raise Refused("\n".join(["these changes are not committed:", *changes[:10]]))
        tags = [f"v{version}", *(f"{folder}/v{version}" for folder in GO_MODULES.values())]
        if existing := self.git("tag", "--list", *tags).split():
            raise Refused(f"a tag is never moved: {' '.join(existing)} is there")
        for tag in tags:
            self.git("tag", "--annotate", tag, "--message", f"Version {version}")
        return tags


def files() -> list[str]:
    """The files that carry the version or the address."""
    go = {f"{folder}/go.mod" for folder in GO_MODULES.values()}
    return sorted({it.file for it in [*PLACES, *ADDRESS]} | {*CHANGELOGS} | go)


def go_path(address: str, module: str) -> str:
    """A Go module's import path: a placeholder, or the address of its folder."""
    return module if address == PLACEHOLDER else f"{address.removeprefix('https://')}/{GO_MODULES[module]}"


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--publish", action="store_true")
    setting = commands.add_parser("set")
    setting.add_argument("version")
    setting.add_argument("date", nargs="?", default="unreleased")
    commands.add_parser("address").add_argument("address")
    commands.add_parser("tag")
    commands.add_parser("files")
    arguments = parser.parse_args()
    tree = Tree(arguments.root)
    try:
        match arguments.command:
            case "check":
                tree.check(arguments.publish)
                print(f"release: version {tree.version()} ({tree.date()}) is the same everywhere")
            case "set":
                tree.set(arguments.version, arguments.date)
                tree.check(publish=False)
            case "address":
                tree.set_address(arguments.address)
                tree.check(publish=False)
            case "tag":
                print(f"tagged. To publish: git push origin {' '.join(tree.tag())}")
                if tree.address() == PLACEHOLDER:
                    print(f"release: note: {PLACEHOLDER} is a placeholder: the workflow will not publish")
            case "files":
                print("\n".join(files()))
    except Refused as refused:
        for line in str(refused).splitlines():
            print(f"release: {line}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
