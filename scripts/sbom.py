#!/usr/bin/env python3
"""Lists what each package brings along, as CycloneDX 1.5: `make sbom`.

    scripts/sbom.py FOLDER [LANGUAGE ...]    write FOLDER/serverlock-LANGUAGE.cdx.json for rust go python node java php
                                             ruby, and redis-lock.cdx.json for module
    scripts/sbom.py --osv FILE ...           ask the OSV database about the components of these files

A list has what is linked or installed in production, not what only tests use. Each language's own tool resolves it; a
language whose tool is missing, or cannot reach its registry, is named in one line. The exit code is then 3. It is 1 if
OSV knows an advisory, and 0 if everything was listed or asked.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
OSV = os.environ.get("OSV_ADDRESS", "https://api.osv.dev/v1/querybatch")

Json = dict
Component = tuple[str, str, str]  # the kind of package URL, the name, the version


class Missing(Exception):
    """A tool is missing, or failed: its name, and its last words."""


def run(*command: str, folder: pathlib.Path = ROOT) -> str:
    if not shutil.which(command[0]):
        raise Missing(f"{command[0]} is missing")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{' '.join(command[:3])} failed: {words[-1] if words else done.returncode}")
    return done.stdout


def bill(name: str, version: str, components: set[Component]) -> Json:
    """A list in CycloneDX."""
    listed = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:{kind}/{name}@{version}"}
        for kind, name, version in sorted(components)
    ]
    for component in listed:
        component["bom-ref"] = component["purl"]
    about = {"type": "library", "name": name, "version": version, "bom-ref": name}
    about["licenses"] = [{"license": {"id": "MIT"}}]
    kind = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    return {**kind, "metadata": {"component": about}, "components": listed}


def linked(tree: str) -> set[Component]:
    """The crates of `cargo tree`, without our own, which have their folder after the version."""
    lines = (re.match(r"(\S+) v(\S+)(.*)$", line) for line in tree.splitlines())
    return {("cargo", line[1], line[2]) for line in lines if line and "/" not in line[3]}


def cargo(folder: pathlib.Path, crate: str, *features: str) -> set[Component]:
    """The crates that a crate links on any system: no macros, no build scripts, nothing of its tests."""
    edges = ("--edges", "normal,no-proc-macro", "--target", "all")
    arguments = ("--locked", "--package", crate, "--prefix", "none", "--no-dedupe")
    return linked(run("cargo", "tree", *arguments, *edges, *features, folder=folder))


def modules(listing: str) -> set[Component]:
    """The modules that `go list -deps -json=Module` names, without our own."""
    decoder, at, found = json.JSONDecoder(), 0, set()
    while match := re.compile(r"\s*\{").match(listing, at):
        package, at = decoder.raw_decode(listing, match.end() - 1)
        module = package.get("Module", {})
        if module.get("Version") and not module.get("Main") and "Replace" not in module:
            found.add(("golang", module["Path"], module["Version"]))
    return found


def distributions(report: Json) -> set[Component]:
    """What pip would install, without the package itself."""
    found = (item["metadata"] for item in report["install"])
    return {("pypi", it["name"].lower(), it["version"]) for it in found if it["name"] != "serverlock"}


def gems(lock: str) -> set[Component]:
    """The gems of a Gemfile.lock that come from a registry."""
    block = lock.split("\nGEM\n" if not lock.startswith("GEM\n") else "GEM\n", 1)[-1].split("\n\n", 1)[0]
    return {("gem", name, version) for name, version in re.findall(r"^    (\S+) \(([^)]+)\)$", block, re.MULTILINE)}


def of_module() -> Json:
    return bill("redis-lock", version(), cargo(ROOT, "redis-lock"))


def of_rust() -> Json:
    return bill("serverlock", version(), cargo(ROOT / "clients/rust", "serverlock", "--all-features"))


def of_go() -> Json:
    found: set[Component] = set()
    for folder in ("clients/go", "clients/go/opentelemetry"):
        found |= modules(run("go", "list", "-deps", "-json=Module", "./...", folder=ROOT / folder))
    return bill("serverlock", version(), found)


def of_python() -> Json:
    with tempfile.TemporaryDirectory() as work:
        # pip builds in the folder.
        shutil.copytree(ROOT / "clients/python", f"{work}/python")
        # The package itself needs nothing; an application has one of these two.
        package = f"{work}/python[redis,valkey]"
        arguments = ("--quiet", "--dry-run", "--ignore-installed", "--disable-pip-version-check", "--report")
        run(sys.executable, "-m", "pip", "install", *arguments, f"{work}/report", package)
        return bill("serverlock", version(), distributions(json.loads(pathlib.Path(work, "report").read_text())))


def of_node() -> Json:
    with tempfile.TemporaryDirectory() as work:
        # npm takes the name from the folder.
        folder = pathlib.Path(work, "serverlock")
        folder.mkdir()
        shutil.copy(ROOT / "clients/node/package.json", folder)
        run("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
        return json.loads(
            run("npm", "sbom", "--sbom-format", "cyclonedx", "--package-lock-only", "--omit", "dev", folder=folder)
        )


def of_java() -> Json:
    with tempfile.TemporaryDirectory() as work:
        repository = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "clients/maven").resolve()
        plugin = "org.cyclonedx:cyclonedx-maven-plugin:2.9.1:makeBom"
        settings = (f"-Dmaven.repo.local={repository}", "-DoutputFormat=json", f"-DoutputDirectory={work}")
        pom = ("--file", str(ROOT / "clients/java/pom.xml"), f"-Dserverlock.build={work}")
        scope = ("-DincludeTestScope=false", "-DschemaVersion=1.5")
        run("mvn", "--batch-mode", "--quiet", *pom, *settings, *scope, plugin)
        return json.loads(pathlib.Path(work, "bom.json").read_text())


def of_php() -> Json:
    required = json.loads((ROOT / "clients/php/composer.json").read_text())["require"]
    if set(required) != {"php"}:
        raise Missing("composer.json requires packages, and there is no composer.lock")
    return bill("serverlock/serverlock", version(), set())


def of_ruby() -> Json:
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(ROOT / "clients/ruby", f"{work}/ruby")
        folder = pathlib.Path(work, "ruby")
        (folder / "Gemfile").write_text('source "https://rubygems.org"\ngemspec\n')
        run("bundle", "lock", folder=folder)
        return bill("serverlock", version(), gems((folder / "Gemfile.lock").read_text()))


LANGUAGES = {
    "module": of_module, "rust": of_rust, "go": of_go, "python": of_python, "node": of_node, "java": of_java,
    "php": of_php, "ruby": of_ruby,
}  # fmt: skip


@functools.cache
def version() -> str:
    return re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def write(folder: pathlib.Path, languages: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    code = 0
    for language in languages or LANGUAGES:
        file = folder / ("redis-lock.cdx.json" if language == "module" else f"serverlock-{language}.cdx.json")
        try:
            listed = LANGUAGES[language]()
        except Missing as missing:
            print(f"sbom: skipped {language}: {missing}", file=sys.stderr)
            code = 3
            continue
        file.write_text(json.dumps(listed, indent=2) + "\n")
        print(f"{file}: {len(listed.get('components', []))} components")
    return code


def ask(files: list[str]) -> int:
    """Prints the advisories that OSV knows for the components of the files."""
    purls = sorted({it["purl"] for file in files for it in json.loads(pathlib.Path(file).read_text())["components"]})
    found = 0
    # The API takes at most 1000 at once.
    for at in range(0, len(purls), 1000):
        some = purls[at : at + 1000]
        body = json.dumps({"queries": [{"package": {"purl": purl}} for purl in some]}).encode()
        request = urllib.request.Request(OSV, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                results = json.load(reply)["results"]
        except (OSError, ValueError, KeyError) as error:
            print(f"advisories: NOT CHECKED: {len(purls)} components: cannot reach OSV: {error}", file=sys.stderr)
            return 3
        for purl, result in zip(some, results, strict=True):
            for advisory in result.get("vulns", []):
                print(f"advisories: {purl}: {advisory['id']}", file=sys.stderr)
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(2)
    sys.exit(ask(sys.argv[2:]) if sys.argv[1] == "--osv" else write(pathlib.Path(sys.argv[1]), sys.argv[2:]))
