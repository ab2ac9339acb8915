"""scripts/release.py refuses a version, an address or a date that differs in any one place, writes all of them, and
tags only what is complete. `cargo test --test repository` runs this, or `python3 tests/repository/test_release.py`.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import release  # noqa: E402

# Files with the version's digits for another reason: an example, somebody else's version, or the one that came first.
OTHERS = (
    "CONTRIBUTING.md benches/ docs/MIGRATING.md docs/TRACK_RECORD.md docs/UPGRADING.md docs/commands/"
    " src/server/entries/register.rs tests/clients/ tests/integration/migrating/"
    " tests/jepsen/"
).split()


class Copied(unittest.TestCase):
    """Each test has a copy of the files that carry the version, in a repository of its own with one commit."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="redis-lock-release-")
        self.addCleanup(folder.cleanup)
        self.tree = release.Tree(pathlib.Path(folder.name))
        for file in release.files():
            (self.tree.root / file).parent.mkdir(parents=True, exist_ok=True)
            self.tree.write(file, (ROOT / file).read_text(encoding="utf-8"))
        self.git("init", "--quiet")
        self.git("config", "user.name", "test")
        self.git("config", "user.email", "test@invalid")
        self.commit()

    def git(self, *arguments: str) -> list[str]:
        return self.tree.git(*arguments).splitlines()

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Copy")

    def refused(self, file: str, value: str, other: str) -> None:
        """With each line in turn that has the value, the file is refused; afterwards it is accepted again."""
        text = self.tree.read(file)
        lines = text.split("\n")
        self.assertIn(value, text, file)
        for at, line in enumerate(lines):
            if value not in line:
                continue
            self.tree.write(file, "\n".join([*lines[:at], line.replace(value, other), *lines[at + 1 :]]))
            findings = list(self.tree.findings())
            self.assertTrue(findings, f"{file}:{at + 1} is not checked: {line}")
            if file != "Cargo.toml":
                self.assertTrue(any(file in finding for finding in findings), f"{file} is not named: {findings}")
        self.tree.write(file, text)
        self.assertEqual(list(self.tree.findings()), [])

    def refused_each(self, value: str, other: str) -> set[str]:
        """Where the value is: each of these files is refused if it has the other one."""
        files = {file for file in release.files() if value in self.tree.read(file)}
        for file in files:
            self.refused(file, value, other)
        return files

    def test_a_version_that_differs_in_one_place_is_refused(self) -> None:
        self.tree.set("7.8.9-rc.4", "unreleased")
        files = self.refused_each("7.8.9", "7.8.8")
        names = {"Cargo.lock", "README.md", "clients/CHANGELOG.md", "clients/python/pyproject.toml", "core/Cargo.toml"}
        self.assertLessEqual(names, files)
        self.assertGreater(len(files), 30)
        self.refused("SECURITY.md", "| 7.8.x", "| 7.7.x")
        self.refused("docs/INSTALL.md", "ver 70809 (", "ver 70808 (")

    def test_an_address_that_differs_in_one_place_is_refused(self) -> None:
        self.tree.set_address("https://forge.test/someone/locks")
        files = self.refused_each("forge.test/someone/locks", "forge.test/nobody/locks")
        self.assertLessEqual({"Cargo.toml", "clients/go/go.mod", "clients/java/pom.xml"}, files)
        self.assertIn("\nmodule forge.test/someone/locks/clients/go\n", self.tree.read("clients/go/go.mod"))

    def test_a_go_module_requires_the_released_version_of_another(self) -> None:
        self.tree.set("7.8.9-rc.4", "unreleased")
        file = "clients/go/opentelemetry/go.mod"
        for address, path in [(None, "example.com/serverlock"), ("https://forge.test/a/b", "forge.test/a/b/clients/go")]:
            if address:
                self.tree.set_address(address)
            self.assertIn(f"\n\t{path} v7.8.9-rc.4\n", self.tree.read(file))
            self.assertIn(f"\nmodule {path}/opentelemetry\n", self.tree.read(file))
            self.refused(file, f"{path} v7.8.9-rc.4", f"{path} v0.0.0")
        self.tree.set("7.9.0", "unreleased")
        self.assertIn("\n\tforge.test/a/b/clients/go v7.9.0\n", self.tree.read(file))

    def test_a_release_has_its_date_on_each_page(self) -> None:
        self.tree.set("7.8.9", "2031-02-03")
        files = self.refused_each("2031-02-03", "2031-02-04")
        self.assertEqual(files, {"CHANGELOG.md", "README.md", "clients/CHANGELOG.md"})
        self.refused("SECURITY.md", "| 7.8.x, the latest release | yes |", "| 7.8.x, not yet released | yes |")
        # The next version begins a section of its own.
        self.tree.set("7.9.0", "unreleased")
        sections = "\n## [7.9.0] - unreleased\n\n## [7.8.9] - 2031-02-03\n"
        self.assertIn(sections, self.tree.read("CHANGELOG.md"))

    def test_bad_values_change_nothing(self) -> None:
        for bad in [("7.9", "unreleased"), ("7.9.1-beta", "unreleased"), ("7.9.1", "tomorrow")]:
            self.assertRaises(release.Refused, self.tree.set, *bad)
        self.assertRaises(release.Refused, self.tree.set_address, "locks")
        self.assertEqual(self.git("status", "--porcelain"), [])

    def test_only_a_complete_release_is_tagged(self) -> None:
        def refused(why: str) -> None:
            self.assertRaisesRegex(release.Refused, why, self.tree.tag)
            self.assertEqual(self.git("tag", "--list"), [])

        self.tree.set("7.8.9", "unreleased")
        self.commit()
        refused("7.8.9 is unreleased")
        self.tree.set("7.8.9", "2031-02-03")
        refused("not committed")
        self.commit()
        readme = self.tree.read("README.md")
        self.tree.write("README.md", readme.replace("7.8.9", "7.8.8"))
        self.commit()
        refused("README.md: 7.8.8, but Cargo.toml has 7.8.9")
        self.tree.write("README.md", readme)
        self.commit()
        # The workflow does not publish packages that name a placeholder.
        self.assertRaisesRegex(release.Refused, "is a placeholder", self.tree.check, True)
        tags = ["clients/go/opentelemetry/v7.8.9", "clients/go/v7.8.9", "packaging/go-server/v7.8.9", "v7.8.9"]
        self.assertEqual(sorted(self.tree.tag()), tags)
        self.assertEqual(self.git("tag", "--list"), tags)
        for tag in tags:
            self.assertEqual(self.git("cat-file", "-t", tag), ["tag"], "annotated")
        self.assertRaisesRegex(release.Refused, "a tag is never moved", self.tree.tag)


class Project(unittest.TestCase):
    def test_no_other_file_carries_the_version(self) -> None:
        tree = release.Tree(ROOT)
        found = tree.git("grep", "-lIwF", tree.version(), "--", ":!*go.sum", ":!*go.mod").splitlines()
        unknown = [file for file in found if file not in release.files() and not file.startswith(tuple(OTHERS))]
        self.assertEqual(unknown, [], "scripts/release_places.py lacks them")

    def test_each_go_module_for_users_is_tagged(self) -> None:
        found = release.Tree(ROOT).git("ls-files", "clients/*go.mod", "packaging/*go.mod").splitlines()
        # The suite is for this repository's tests.
        folders = {str(pathlib.Path(file).parent) for file in found} - {"clients/go/suite"}
        self.assertEqual(folders, set(release.GO_MODULES.values()))


if __name__ == "__main__":
    unittest.main()
