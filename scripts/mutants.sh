#!/bin/sh
# Applies each mutant of tests/mutants to a copy of the tree and runs the tests that must find it. Fails if one
# survives. Takes about an hour on two cores. Arguments: only these mutants.
set -eu
cd "$(dirname "$0")/.."
exec cargo xtask mutants run "$@"
