#!/bin/sh
# Has Porcupine (tests/porcupine) judge the histories in a folder, after the tests of its model. Exits non-zero if a
# history has no order. Without Go it says so and succeeds.
#
#   scripts/porcupine.sh target/histories
set -eu
histories=$(realpath -- "$1")
cd "$(dirname "$0")/../tests/porcupine"

skip() { echo "porcupine: skipped: $1"; exit 0; }
version=$(go env GOVERSION 2>/dev/null) || skip "Go is missing"
minor=${version#go1.}
[ "${minor%%.*}" -ge 24 ] || skip "$version is older than Go 1.24"
go mod download 2>/dev/null || skip "the module proxy cannot be reached"

go test ./...
go run . "$histories"
