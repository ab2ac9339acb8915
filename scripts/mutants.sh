#!/bin/sh
# Sees that the tests find the faults of tests/mutants, each in a copy of the tree. Ends non-zero when one survives. Some
# minutes. Arguments: only these faults.
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet --example mutants -- run "$@"
