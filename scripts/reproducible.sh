#!/bin/sh
# Packs the same sources twice, in two folders and with two target folders, and compares the bytes: `make reproducible`.
# NATIVE_ONLY=1 leaves ARM out.
set -eu

cd "$(dirname "$0")/.."
say() { echo "reproducible: $*"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# pack FOLDER TARGET-FOLDER
pack() {
    mkdir -p "$work/$1"
    git ls-files -z | tar --create --null --files-from=- | tar --extract --directory="$work/$1"
    env -u MODULE CARGO_TARGET_DIR="$work/$2" PACKAGE_DIR="$work/$1.packed" "$work/$1/scripts/package.sh"
}
pack one one/target
pack some/where/else elsewhere
if ! diff "$work/one.packed/SHA256SUMS" "$work/some/where/else.packed/SHA256SUMS"; then
    say "the bytes differ" >&2
    exit 1
fi
say "the same bytes both times"
