"""scripts/sbom.py reads what each language's tool lists, and scripts/advisories.sh ends with 1 for a finding and with 3
for a database that it could not reach. `cargo test --test repository` runs this. No test needs the network.
"""

import contextlib
import http.server
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import sbom  # noqa: E402


class Lists(unittest.TestCase):
    def test_linked_crates_are_listed_without_our_own(self) -> None:
        tree = "ours v4.5.6 (/somewhere/ours)\nredis v1.8.0\nlog v0.4.1 (*)\n\nredis v1.8.0\n"
        self.assertEqual(sbom.linked(tree), {("cargo", "redis", "1.8.0"), ("cargo", "log", "0.4.1")})

    def test_modules_that_the_package_imports_are_listed(self) -> None:
        listing = '{}\n{"Module": {"Path": "ours", "Main": true}}\n{"Module": {"Path": "a.b/c", "Version": "v4.5.6"}}\n'
        listing += '{"Module": {"Path": "ours too", "Version": "v7.8.9", "Replace": {"Path": "../"}}}\n'
        self.assertEqual(sbom.modules(listing), {("golang", "a.b/c", "v4.5.6")})

    def test_distributions_and_gems_are_listed(self) -> None:
        report = {"install": [{"metadata": {"name": it, "version": "2.0"}} for it in ("serverlock", "Redis")]}
        self.assertEqual(sbom.distributions(report), {("pypi", "redis", "2.0")})
        lock = "PATH\n  remote: .\n  specs:\n    serverlock (4.5.6)\n\nGEM\n  remote: x\n  specs:\n    redis (5.4.1)\n"
        lock += "      redis-client (>= 0.22.0)\n    redis-client (0.26.0)\n\nPLATFORMS\n  ruby\n"
        self.assertEqual(sbom.gems(lock), {("gem", "redis", "5.4.1"), ("gem", "redis-client", "0.26.0")})

    def test_a_list_has_what_scanners_read(self) -> None:
        listed = sbom.bill("serverlock", "4.5.6", {("cargo", "log", "0.4.1")})
        self.assertEqual((listed["bomFormat"], listed["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(listed["metadata"]["component"]["version"], "4.5.6")
        self.assertEqual(listed["components"][0]["purl"], "pkg:cargo/log@0.4.1")

    def test_a_missing_tool_is_named(self) -> None:
        self.assertRaisesRegex(sbom.Missing, "no-such-tool is missing", sbom.run, "no-such-tool")


class Database(http.server.BaseHTTPRequestHandler):
    """Knows an advisory for each package whose name has "bad"."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        found = [{"vulns": [{"id": "GHSA-1"}]} if "bad" in it["package"]["purl"] else {} for it in queries]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": found}).encode())

    def log_message(self, *_: object) -> None:
        pass


class Findings(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="redis-lock-advisories-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ask(self, address: str, *names: str) -> tuple[int, str]:
        file = self.folder / "x.cdx.json"
        file.write_text(json.dumps(sbom.bill("x", "1", {("pypi", name, "1.0") for name in names})))
        sbom.OSV, said = address, io.StringIO()
        with contextlib.redirect_stderr(said):
            return sbom.ask([str(file)]), said.getvalue()

    def test_osv_findings_fail_and_an_absent_database_is_named(self) -> None:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}/"
            names = [f"fine{number}" for number in range(1500)]
            self.assertEqual(self.ask(address, *names), (0, ""))
            self.assertEqual(self.ask(address, *names, "bad"), (1, "advisories: pkg:pypi/bad@1.0: GHSA-1\n"))
            server.shutdown()
        code, said = self.ask(address, "bad")
        self.assertEqual(code, 3)
        self.assertRegex(said, "^advisories: NOT CHECKED: 1 components: cannot reach OSV: ")

    def node(self, audit: str) -> tuple[int, str]:
        """What advisories.sh says of Node if `npm audit --json` is this command."""
        self.tool("npm", f'[ "$1" = audit ] || exit 0\n[ "$2" = --json ] || exit 1\n{audit}')
        return self.advisories("node")

    def tool(self, name: str, script: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def advisories(self, language: str) -> tuple[int, str]:
        command = [str(ROOT / "scripts/advisories.sh"), language]
        own = {"PATH": f"{self.folder}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(self.folder)}
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def test_pip_audit_is_believed_only_if_its_database_knows_something(self) -> None:
        def with_findings_in(pattern: str) -> tuple[int, str]:
            found = "echo Found 1 known vulnerability in 1 package >&2; exit 1"
            none = "echo No known vulnerabilities found >&2"
            script = f"for last; do :; done\ncase $last in {pattern}) {found} ;; esac\n{none}"
            self.tool("advisories/bin/pip-audit", script)
            return self.advisories("python")

        self.assertEqual(with_findings_in("*/known"), (0, ""))
        code, said = with_findings_in("none")
        self.assertEqual(code, 3)
        self.assertIn("advisories: NOT CHECKED: python: PyPI does not list", said)
        code, said = with_findings_in("*/known | clients/*")
        self.assertEqual(code, 1)
        self.assertIn("Found 1 known vulnerability", said)

    def test_npm_findings_fail_and_an_absent_database_is_named(self) -> None:
        self.assertEqual(self.node("exit 0"), (0, ""))
        code, said = self.node("echo '{\"vulnerabilities\": {}}'; exit 1")
        self.assertEqual((code, said), (1, "advisories: FAILED\n"))
        code, said = self.node("echo ' \"message\": \"405 Method Not Allowed\",'; exit 1")
        self.assertEqual(code, 3)
        self.assertIn("advisories: NOT CHECKED: clients/node/package.json: npm: 405 Method Not Allowed\n", said)


if __name__ == "__main__":
    unittest.main()
