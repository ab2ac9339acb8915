#!/bin/sh
# Makes each fault of tests/mutants in a copy of the tree and runs the tests that have to find it. Fails when one
# survives. Takes some ten minutes. Arguments: only these faults.
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet --example mutants -- run "$@"
