#!/usr/bin/env bash
# Tests the drop-ins for frameworks (docs/FRAMEWORKS.md) with the real frameworks, on real servers, with workers that
# are killed. Needs the built module and the network: each language installs its frameworks under target/frameworks.
#
#   scripts/test-frameworks.sh               all
#   scripts/test-frameworks.sh python php    some of them
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
known=$(cd scripts/frameworks && printf '%s\n' *.sh | sed 's/\.sh$//')
[ $# -gt 0 ] || mapfile -t all <<<"$known"
failed=
for name in "$@" "${all[@]:-}"; do
    [ -n "$name" ] || continue
    if ! grep -qx "$name" <<<"$known"; then
        echo "test-frameworks: '$name' is not one of: ${known//$'\n'/ }" >&2
        exit 2
    fi
    echo "test-frameworks: $name" >&2
    "scripts/frameworks/$name.sh" || failed="$failed $name"
done
if [ -n "$failed" ]; then
    echo "test-frameworks: FAILED:$failed" >&2
    exit 1
fi
