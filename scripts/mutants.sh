#!/bin/sh
# Applies each mutant of tests/mutants to a copy of the tree and runs the tests that must find it. Fails if one
# survives. Takes about an hour on two cores. Arguments select the mutants.
set -eu
cd "$(dirname "$0")/.."
exec cargo xtask mutants run "$@"
