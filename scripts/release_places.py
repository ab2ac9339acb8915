"""The files that repeat the version or the repository's address of Cargo.toml. scripts/release.py checks and writes
them, and tests/repository/release.rs finds a file that is missing here.
"""

import typing


class Place(typing.NamedTuple):
    """A text in a file. @ in the template stands for the value, which appears `count` times."""

    file: str
    template: str
    count: int = 1
    spelling: str = "version"


def lock(file: str, *crates: str) -> list[Place]:
    return [Place(file, f'name = "{crate}"\nversion = "@"') for crate in crates]


def maven(file: str, artifact: str, indent: str, count: int = 1) -> Place:
    return Place(file, f"<artifactId>{artifact}</artifactId>\n{indent}<version>@</version>", count)


JAVA = "clients/java"
PACKAGE_TEST = f"{JAVA}/src/test/java/dev/serverlock/PackageTest.java"

PLACES = [
    # The module, its tools and its images.
    Place("Cargo.toml", 'name = "redis-lock"\nversion = "@"'),
    Place("core/Cargo.toml", 'name = "redis-lock-core"\nversion = "@"'),
    Place("tools/lock-top/Cargo.toml", 'name = "lock-top"\nversion = "@"'),
    *lock("Cargo.lock", "redis-lock", "redis-lock-core", "lock-top"),
    *lock("fuzz/Cargo.lock", "redis-lock", "redis-lock-core"),
    Place("packaging/container/Dockerfile", "-t redis-lock-module:@ "),
    Place("packaging/kubernetes/ot-operator.yaml", "image: redis-lock-module:@-alpine\n"),
    Place("packaging/kubernetes/spotahome-operator.yaml", "image: redis-lock-module:@\n"),
    Place("packaging/kubernetes/statefulset.yaml", "image: redis-lock-module:@\n"),
    Place("packaging/kubernetes/values.yaml", "image: redis-lock-module:@\n"),
    # The packages with a server.
    Place("packaging/python-server/pyproject.toml", '\nversion = "@"', spelling="python"),
    Place("packaging/node-server/package.json", '  "version": "@"'),
    Place("packaging/node-server/README.md", "serverlock-server-@.tgz"),
    maven("packaging/java-server/pom.xml", "serverlock-server", "  "),
    # The clients.
    Place("clients/python/pyproject.toml", '\nversion = "@"', spelling="python"),
    Place("clients/python/src/serverlock/__init__.py", '__version__ = "@"', spelling="python"),
    Place("clients/node/package.json", '  "version": "@"'),
    Place("clients/node/src/opentelemetry.ts", "const VERSION = '@'"),
    maven(f"{JAVA}/pom.xml", "serverlock", "  "),
    maven(f"{JAVA}/README.md", "serverlock", "  "),
    maven(f"{JAVA}/spring-boot-starter/pom.xml", "serverlock-spring-boot-starter", "  "),
    maven(f"{JAVA}/spring-boot-starter/README.md", "serverlock-spring-boot-starter", "  "),
    maven("tests/frameworks/java/pom.xml", "serverlock-spring-boot-starter", "      "),
    Place(f"{JAVA}/src/main/java/dev/serverlock/opentelemetry/OpenTelemetryHooks.java", 'VERSION = "@"'),
    Place(PACKAGE_TEST, '"serverlock", "@"'),
    Place(PACKAGE_TEST, "serverlock/serverlock/@"),
    Place(PACKAGE_TEST, "serverlock-@.jar"),
    Place(PACKAGE_TEST, "serverlock-@-sources.jar"),
    Place(PACKAGE_TEST, "serverlock-@-javadoc.jar"),
    Place("clients/rust/Cargo.toml", 'name = "serverlock"\nversion = "@"'),
    Place("clients/rust/driver/Cargo.toml", 'name = "serverlock-driver"\nversion = "@"'),
    *lock("clients/rust/Cargo.lock", "serverlock", "serverlock-driver"),
    *lock("benches/clients/rust/Cargo.lock", "serverlock"),
    # Packagist and Go read the version from the tag.
    Place("clients/go/opentelemetry/version.go", 'Version = "@"'),
    Place("clients/php/src/OpenTelemetry/Telemetry.php", "VERSION = '@'"),
    Place("clients/php/tests/PackageTest.php", "'serverlock/serverlock' => '@'"),
    Place("clients/php/tests/PackageTest.php", "serverlock/serverlock:@"),
    Place("clients/ruby/lib/serverlock/version.rb", 'VERSION = "@"', spelling="gem"),
    Place("clients/ruby/README.md", "serverlock-@.gem", spelling="gem"),
    # The pages.
    Place("README.md", "**Status:** version @, "),
    Place("SECURITY.md", "\n| @.x", spelling="series"),
    Place("docs/INSTALL.md", "ver @ (", spelling="number"),
    Place("docs/INSTALL.md", " (for @)"),
]

# The newest section of each: ## [VERSION] - DATE, or unreleased.
CHANGELOGS = ["CHANGELOG.md", "clients/CHANGELOG.md"]

# A page's sentence before the release, and the one afterwards, in which @ stands for the date.
STATUS = [
    ("README.md", "not yet released", "released on @"),
    ("SECURITY.md", ".x, not yet released: fixes go to the main branch | yes |", ".x, the latest release | yes |"),
]

PLACEHOLDER = "https://example.com/redis-lock"

ADDRESS = [
    Place("Cargo.toml", '\nrepository = "@"', spelling="address"),
    Place("clients/rust/Cargo.toml", '\nrepository = "@"', spelling="address"),
    Place("clients/python/pyproject.toml", 'Repository = "@"', spelling="address"),
    Place("packaging/python-server/pyproject.toml", 'Repository = "@"', spelling="address"),
    # The address without git+ and .git is that of the project's page.
    Place("clients/node/package.json", '"url": "git+@.git"', spelling="address"),
    Place("packaging/node-server/package.json", '"url": "git+@.git"', spelling="address"),
    *(
        Place(f"{folder}/pom.xml", template, spelling="address")
        for folder in (JAVA, f"{JAVA}/spring-boot-starter", "packaging/java-server")
        for template in ("\n  <url>@</url>", "\n    <url>@</url>", "<connection>scm:git:@.git</connection>")
    ),
    Place("clients/php/composer.json", '"source": "@"', spelling="address"),
    Place("clients/ruby/serverlock.gemspec", 'homepage = "@"', spelling="address"),
    Place("clients/ruby/serverlock.gemspec", 'metadata["source_code_uri"] = "@"', spelling="address"),
]

# Go's import paths while the address is the placeholder, and the folders that they will name.
GO_MODULES = {
    "example.com/serverlock": "clients/go",
    "example.com/serverlock/opentelemetry": "clients/go/opentelemetry",
    "example.com/serverlock-server": "packaging/go-server",
}

# A module that requires another one. Users get the version that it names: Go ignores the `replace` of a dependency.
GO_REQUIRES = {"example.com/serverlock/opentelemetry": "example.com/serverlock"}
