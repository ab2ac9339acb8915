#!/bin/sh
# Prints a folder with cargo-zigbuild, which links for other C libraries: an old glibc, or musl.
#
# That of the PATH if there is one, otherwise a Python environment in target/zig with the versions below. If they cannot
# be installed, the script says so in one line and exits with 3.
set -eu

cd "$(dirname "$0")/.."
zig=${CARGO_TARGET_DIR:-$PWD/target}/zig
if found=$(command -v cargo-zigbuild); then
    dirname "$found"
    exit
fi
if ! "$zig/bin/cargo-zigbuild" --version >/dev/null 2>&1; then
    echo "zig: installing ziglang and cargo-zigbuild in $zig" >&2
    if ! { python3 -m venv "$zig" &&
        timeout 900 "$zig/bin/pip" install --quiet --disable-pip-version-check --no-input \
            ziglang==0.17.1 cargo-zigbuild==0.24.1; } >/dev/null 2>&1; then
        echo "zig: skipped: 'pip install ziglang cargo-zigbuild' does not work here (Debian: python3-venv)" >&2
        exit 3
    fi
fi
echo "$zig/bin"
