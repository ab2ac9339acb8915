"""Runs the install lines of a package's README in an empty project next to a copy of this checkout, then the README's
first example, against a real server.

    python3 clients/suite/install.py python
    python3 clients/suite/install.py            # all languages

This needs the language's tools (scripts/test-clients.sh installs them), and its registry for the client library.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import ROOT, Server

KEPT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "clients"
PATIENCE = 580.0

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>app</artifactId><version>1</version>
<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties>
<dependencies>%s
<dependency><groupId>redis.clients</groupId><artifactId>jedis</artifactId><version>%s</version></dependency>
</dependencies></project>
"""


class Project:
    """An empty project in a language: its files, and how its program is run."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, **self.environment()}

    def environment(self):
        return {}

    def run(self, *words):
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def begin(self):
        pass

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def take(self, kind, block):
        """Carries out a block of the README above its first example."""
        assert kind == "sh", f"unknown kind of block: {kind}"
        self.run("sh", "-euc", block)


class Python(Project):
    example, file = "python", "report.py"

    def begin(self):
        self.run(sys.executable, "-m", "venv", ".venv")
        self.env["PATH"] = f"{self.folder / '.venv/bin'}:{self.env['PATH']}"

    def program(self):
        return self.run("python", self.file)


class Node(Project):
    example, file = "js", "report.js"

    def begin(self):
        self.write("package.json", '{"type": "module", "private": true}')

    def program(self):
        return self.run("node", self.file)


class Go(Project):
    example, file = "go", "main.go"

    def begin(self):
        self.run("go", "mod", "init", "example.org/app")

    def program(self):
        return self.run("go", "run", ".")


class Java(Project):
    example, file = "java", "src/main/java/Report.java"

    def environment(self):
        # The user's own Maven repository stays unchanged.
        return {"MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} -Dmaven.repo.local={KEPT / 'maven'}"}

    def take(self, kind, block):
        if kind != "xml":
            return super().take(kind, block)
        jedis = re.search("<jedis.version>(.*)</jedis.version>", (ROOT / "clients/java/pom.xml").read_text())[1]
        self.write("pom.xml", POM % (block, jedis))

    def program(self):
        self.run("mvn", "--batch-mode", "--quiet", "compile", "dependency:copy-dependencies")
        return self.run("java", "-cp", "target/classes:target/dependency/*", "Report")


class Rust(Project):
    example, file = "rust", "src/main.rs"

    def environment(self):
        return {"CARGO_TARGET_DIR": str(KEPT / "install-rust")}

    def take(self, kind, block):
        if kind != "toml":
            return super().take(kind, block)
        self.write("Cargo.toml", f'[package]\nname = "app"\nedition = "2024"\n\n{block}\n[workspace]\n')

    def program(self):
        return self.run("cargo", "run", "--quiet")


class Php(Project):
    example, file = "php", "report.php"

    def environment(self):
        return {"COMPOSER_HOME": str(self.folder / ".composer"), "COMPOSER_ALLOW_SUPERUSER": "1"}

    def begin(self):
        self.write("composer.json", "{}")
        # The package needs no other package, and packagist.org cannot be reached from everywhere.
        self.write(".composer/config.json", '{"repositories": {"packagist.org": false}}')

    def program(self):
        return self.run("php", self.file)


class Ruby(Project):
    example, file = "ruby", "report.rb"

    def environment(self):
        # In addition to the system's gems, which include the client library.
        return {"GEM_HOME": str(self.folder / "gems"), "GEM_PATH": f"{self.folder / 'gems'}:{_gem_path()}"}

    def program(self):
        return self.run("ruby", self.file)


def _gem_path():
    return subprocess.run(["ruby", "-e", "print Gem.path.join(':')"], capture_output=True, text=True, check=True).stdout


LANGUAGES = {"python": Python, "node": Node, "go": Go, "java": Java, "rust": Rust, "php": Php, "ruby": Ruby}


def checkout(folder):
    """Copies the files of clients/ as a clone has them, without build output."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "clients"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def try_lines(language):
    kind = LANGUAGES[language]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / f"clients/{language}/README.md").read_text(), re.S | re.M)
    first = next(at for at, (name, _) in enumerate(blocks) if name == kind.example)
    lines, example = blocks[:first], blocks[first][1]
    assert any("../redis-lock/" in block for _, block in lines), f"the README of {language} installs nothing"
    with tempfile.TemporaryDirectory() as place:
        checkout(Path(place) / "redis-lock")
        folder = Path(place) / "project"
        folder.mkdir()
        server = Server()
        try:
            port = str(server.port)
            here = re.sub(r"Redis\(\)", f"Redis(port={port})", example) if language == "python" else example
            here = here.replace("createClient({", f"createClient({{ url: 'redis://localhost:{port}',")
            here = here.replace("6379", port)
            assert here != example, f"the example of {language} connects in an unknown way"
            project = kind(folder)
            project.begin()
            project.write(kind.file, here)
            for name, block in lines:
                project.take(name, block)
            said = project.program()
            assert re.search(r"working, token \d+", said), said
        finally:
            server.end()


def main():
    for language in sys.argv[1:] or LANGUAGES:
        try_lines(language)
        print(f"install: the lines of clients/{language}/README.md work")


if __name__ == "__main__":
    main()
