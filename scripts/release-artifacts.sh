#!/usr/bin/env bash
# Builds what a release publishes, without publishing it. `make release-dry-run` does this in a clean clone, and
# .github/workflows/release.yml with one part in each job.
#
#   release-artifacts.sh FOLDER [PART ...]    module server python node rust java ruby php go sbom; all without a part
#   release-artifacts.sh dry-run [PART ...]   the same in a clone of HEAD, into target/release-dry-run
#
# At the end it lists name, size and SHA-256 of each file, and writes SHA256SUMS. A part whose tools are missing says so
# in one line; with COMPLETE=1 it fails. Go's modules have no file: their tags publish them, so they are only compiled.
set -euo pipefail
umask 022

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
say() { echo "release: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
# lacks PART TOOL: reports that the part is left out, or fails.
lacks() {
    say "skipped $1: $2 is missing"
    [ "${COMPLETE:-}" != 1 ]
}

if [ "${1:-}" = dry-run ]; then
    shift
    out=$target/release-dry-run
    rm -rf "$out"
    mkdir -p "$out"
    clone=$(mktemp -d)
    trap 'rm -rf "$clone"' EXIT
    git clone --quiet --no-local . "$clone/redis-lock"
    say "a clone of $(git log -1 --format='%h, %s')"
    # The target folder has what was compiled and downloaded before.
    CARGO_TARGET_DIR=$target "$clone/redis-lock/scripts/release-artifacts.sh" "$out" "$@"
    exit
fi

out=$(realpath -m "${1:?the folder for the files}")
shift
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The archives, the Debian packages and the SBOM of the crates.
build_module() {
    have cargo || { lacks module cargo; return; }
    PACKAGE_DIR=$work/package scripts/package.sh
    cp "$work"/package/redis-lock[-_]* "$out/"
}

# The packages that contain the module, from the archives.
build_server() {
    have cargo || { lacks server cargo; return; }
    local archives=("$out/redis-lock-$version"-*.tar.gz)
    [ -f "${archives[0]}" ] || { lacks server "an archive of the module (part module)"; return; }
    mkdir -p "$work/server"
    cp "${archives[@]}" "$work/server/"
    touch "$work/server/SHA256SUMS"
    PACKAGE_DIR=$work/server scripts/server-packages.sh build
    cp "$work"/server/serverlock[_-]server-* "$out/"
}

build_python() {
    local python=$target/clients/release-python
    python3 -m venv --help >/dev/null 2>&1 || { lacks python "Python with venv"; return; }
    [ -x "$python/bin/python" ] || python3 -m venv "$python"
    "$python/bin/python" -m pip install --quiet --disable-pip-version-check build==1.3.0 twine==6.2.0 setuptools==80.9.0 \
        wheel==0.45.1 || { lacks python "what pip installs"; return; }
    cp -R clients/python "$work/python"
    "$python/bin/python" -m build --no-isolation --outdir "$work/dist" "$work/python" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; return 1; }
    "$python/bin/twine" --no-color check --strict "$work"/dist/* >&2
    cp "$work"/dist/* "$out/"
}

build_node() {
    have npm || { lacks node npm; return; }
    cp -R clients/node "$work/node"
    (
        cd "$work/node"
        npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts
        # This runs the script `prepare`, which compiles.
        npm pack --silent --pack-destination "$out" >/dev/null
    )
}

build_rust() {
    have cargo || { lacks rust cargo; return; }
    # It compiles what it has packed.
    CARGO_TARGET_DIR=$target/clients/serverlock-rust cargo package --quiet --locked \
        --manifest-path clients/rust/Cargo.toml --package serverlock
    cp "$target/clients/serverlock-rust/package/serverlock-$version.crate" "$out/"
}

# Maven Central takes an archive in a repository's layout. The workflow signs the files.
build_java() {
    have mvn || { lacks java Maven; return; }
    have jar || { lacks java "a JDK, with jar"; return; }
    local project plugins=org.apache.maven.plugins
    for project in clients/java clients/java/spring-boot-starter packaging/java-server; do
        # The first one makes both archives itself. These run before the lifecycle, which must run only once.
        local goals=()
        case $project in
        *starter) goals=("$plugins:maven-javadoc-plugin:3.11.2:jar") ;;
        packaging/*) goals=("$plugins:maven-source-plugin:3.3.1:jar-no-fork" "$plugins:maven-javadoc-plugin:3.11.2:jar") ;;
        esac
        mvn --batch-mode --quiet -Dstyle.color=never --file "$project/pom.xml" "-Dmaven.repo.local=$target/clients/maven" \
            "-Dserverlock.build=$work/java/$project" "-DaltDeploymentRepository=release::file:$work/maven" -DskipTests \
            "${goals[@]}" install "$plugins:maven-deploy-plugin:3.1.4:deploy" || return 1
    done
    find "$work/maven" -name 'maven-metadata*' -delete
    (cd "$work/maven" && jar --create --no-manifest --file "$out/serverlock-maven-$version.zip" dev)
}

build_ruby() {
    have gem || { lacks ruby "gem (Debian: ruby)"; return; }
    cp -R clients/ruby "$work/ruby"
    (cd "$work/ruby" && gem build --silent --strict serverlock.gemspec)
    cp "$work"/ruby/serverlock-*.gem "$out/"
}

# Packagist reads the tag of a repository that has this folder at its top; the workflow pushes it there.
build_php() {
    have composer || { lacks php composer; return; }
    cp -R clients/php "$work/php"
    (
        cd "$work/php"
        export COMPOSER_ROOT_VERSION=$version COMPOSER_ALLOW_SUPERUSER=1
        composer validate --quiet --strict --no-check-publish || composer validate --strict >&2
        composer archive --quiet --format=zip --dir="$out" --file="serverlock-php-$version"
    )
}

build_go() {
    have go || { lacks go Go; return; }
    local folder
    for folder in clients/go clients/go/opentelemetry packaging/go-server; do (cd "$folder" && go build ./...); done
}

# What each package brings along; part module has that of the module.
build_sbom() {
    local code=0
    CARGO_TARGET_DIR=$target scripts/sbom.py "$out" rust go python node java php ruby >&2 || code=$?
    # It has already said which tool is missing.
    [ "$code" != 3 ] || { lacks sbom "a list"; return; }
    return "$code"
}

if [ $# = 0 ]; then set -- module server python node rust java ruby php go sbom; fi
scripts/release.py check >&2
failed=
for part; do
    say "$part"
    # A subshell, because errexit does not apply to a function in a condition.
    (set -e; "build_$part") &
    wait $! || { say "FAILED: $part"; failed="$failed $part"; }
done
cd "$out"
rm -f SHA256SUMS
find . -maxdepth 1 -type f -printf '%P\n' | sort | xargs -r sha256sum >"$work/sums"
mv "$work/sums" SHA256SUMS
printf '%-64s %10s  %s\n' SHA-256 bytes file
while read -r sum file; do printf '%s %10s  %s\n' "$sum" "$(stat -c %s "$file")" "$file"; done <SHA256SUMS
[ -z "$failed" ] || { say "FAILED:$failed"; exit 1; }
