#!/usr/bin/env bash
# Builds and tests the packages that start a server with the module, for tests and laptops: `make server-packages`.
#
#   server-packages.sh build         build them from the archives of `make package`, in target/package
#   server-packages.sh test [NAME]   build them, and test python, node, go or java; all of them without NAME
#
# Each archive's module goes into a Python wheel of its own, and all of them into the npm package:
#   serverlock_server-VERSION-py3-none-PLATFORM.whl
#   serverlock-server-VERSION.tgz
# SHA256SUMS lists them too. Without archives, `test` builds the one for this machine. A language whose tools are
# missing is skipped with a message.
set -euo pipefail
umask 022

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
packages=$(realpath -m "${PACKAGE_DIR:-$target/package}")
built=$target/server-packages
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

say() { echo "server-packages: $*" >&2; }
skip() { say "skipped $1: $2"; }
have() { command -v "$1" >/dev/null; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# platform TRIPLE MODULE: its platform in a wheel's name. For glibc, that is the newest version that the module needs.
platform() {
    local glibc
    case $1 in
    *-musl) echo "musllinux_1_2_${1%%-*}" ;;
    *)
        glibc=$(strings -a "$2" | sed -n 's/^GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1)
        # The oldest that pip knows is 2.17 (manylinux2014).
        glibc=$(printf '2.17\n%s\n' "$glibc" | sort -V | tail -n 1)
        echo "manylinux_${glibc/./_}_${1%%-*}"
        ;;
    esac
}

unpack() {
    local archive triple folder
    for archive in "$packages/redis-lock-$version"-*.tar.gz; do
        triple=${archive##*"redis-lock-$version-"}
        triple=${triple%.tar.gz}
        if [[ $triple == *-debug ]] || [ ! -f "$archive" ]; then continue; fi
        folder=$work/modules/$triple
        mkdir -p "$folder"
        tar -xzf "$archive" -C "$folder" --strip-components=1 "redis-lock-$version-$triple/libredis_lock.so" \
            "redis-lock-$version-$triple/THIRD-PARTY-LICENSES.txt"
    done
    [ -d "$work/modules" ] || { say "there are no archives in $packages: 'make package' first"; exit 1; }
}

build_python() {
    local python=$built/python/bin/python folder triple tree
    python3 -m venv --help >/dev/null 2>&1 || { skip python "Python with venv is missing"; return 0; }
    [ -x "$python" ] || python3 -m venv "$built/python"
    "$python" -m pip install --quiet --disable-pip-version-check setuptools==80.9.0 wheel==0.45.1 2>"$work/log" ||
        { skip python "$(tail -n 1 "$work/log")"; return 0; }
    for folder in "$work"/modules/*; do
        triple=${folder##*/}
        tree=$work/python-$triple
        cp -R packaging/python-server "$tree"
        cp "$folder/libredis_lock.so" "$tree/src/serverlock_server/"
        cp LICENSE "$folder/THIRD-PARTY-LICENSES.txt" "$tree/"
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
            --config-settings="--build-option=--plat-name=$(platform "$triple" "$folder/libredis_lock.so")" \
            --wheel-dir "$packages" "$tree"
    done
}

build_node() {
    local folder tree=$work/node
    have npm || { skip node "npm is missing"; return 0; }
    cp -R packaging/node-server "$tree"
    for folder in "$work"/modules/*; do
        mkdir -p "$tree/modules/${folder##*/}"
        cp "$folder/libredis_lock.so" "$tree/modules/${folder##*/}/"
        cp "$folder/THIRD-PARTY-LICENSES.txt" "$tree/"
    done
    cp LICENSE "$tree/"
    (cd "$packages" && npm pack --silent "$tree" >/dev/null)
}

build() {
    unpack
    rm -f "$packages"/serverlock[_-]server-*
    build_python
    build_node
    sed -i '/serverlock[_-]server-/d' "$packages/SHA256SUMS"
    (cd "$packages" && sha256sum serverlock[_-]server-* >>SHA256SUMS)
    (cd "$packages" && wc -c serverlock[_-]server-*) | sed 's/^/server-packages: /' >&2
}

test_python() {
    local wheel venv=$built/python-test
    wheel=$(find "$packages" -name "serverlock_server-*manylinux*_$(uname -m).whl")
    [ -n "$wheel" ] || return 0
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel" pytest==9.2.0
    # From another folder: only the installed package counts.
    (cd "$work" && "$venv/bin/python" -m pytest -q -p no:cacheprovider "$root/packaging/python-server/tests")
}

test_node() {
    local tree=$built/node-test
    [ -f "$packages/serverlock-server-$version.tgz" ] || return 0
    # What npm installed before stays: the test runners are large.
    mkdir -p "$tree"
    cp -R packaging/node-server/test/. "$tree/"
    rm -rf "$tree/node_modules/serverlock-server" "$tree/package-lock.json"
    (cd "$tree" && npm install --silent --no-audit --no-fund --no-save "$packages/serverlock-server-$version.tgz" &&
        npm test --silent)
}

# These two read the module from the archive.
test_go() {
    have go || { skip go "Go is missing"; return 0; }
    (cd packaging/go-server && go vet ./... &&
        REDIS_LOCK_MODULE=$packages/redis-lock-$version-$(uname -m)-unknown-linux-gnu.tar.gz go test ./...)
}

test_java() {
    have mvn || { skip java "Maven is missing"; return 0; }
    REDIS_LOCK_MODULE=$packages/redis-lock-$version-$(uname -m)-unknown-linux-gnu.tar.gz mvn --batch-mode --quiet \
        -Dstyle.color=never --file packaging/java-server/pom.xml "-Dmaven.repo.local=$target/clients/maven" \
        "-Dserverlock.build=$built/java" test
}

case ${1:-} in
build) build ;;
test)
    compgen -G "$packages/redis-lock-$version-*.tar.gz" >/dev/null || NATIVE_ONLY=1 scripts/package.sh
    build
    for name in ${2:-python node go java}; do
        "test_$name"
    done
    ;;
*)
    say "called as 'server-packages.sh build' or 'server-packages.sh test [NAME]'"
    exit 2
    ;;
esac
