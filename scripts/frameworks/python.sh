#!/usr/bin/env bash
# Tests the Python package's modules for frameworks with the real frameworks, in virtual environments below
# target/frameworks/python.
#
#   scripts/frameworks/python.sh                    all of them
#   scripts/frameworks/python.sh celery [TEST ...]  one of them, or single tests: Beats.test_a_stopped_beat_hands_over
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$target/frameworks/python
here=tests/frameworks/python

[ -f "$target/release/libredis_lock.so" ] || { echo "frameworks/python: run 'make build' first" >&2; exit 1; }

# environment NAME FILE: has what the requirements file lists, and nothing else.
environment() {
    cmp --silent "$2" "$built/$1.installed" && return
    mkdir -p "$built"
    python3 -m venv --clear "$built/$1"
    "$built/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$2"
    cp "$2" "$built/$1.installed"
}

# tests ENVIRONMENT MODULE [TEST ...]
tests() {
    local python=$built/$1/bin/python module=test_$2
    shift 2
    if [ $# = 0 ]; then set -- "$module"; else set -- "${@/#/$module.}"; fi
    (cd "$here" && "$python" -m unittest --verbose "$@")
}

environment frameworks "$here/requirements.txt"
environment apscheduler4 "$here/apscheduler4/requirements.txt"
if [ $# = 0 ]; then
    failed=
    for module in celery fastapi apscheduler django pages; do tests frameworks "$module" || failed="$failed $module"; done
    tests apscheduler4 apscheduler4 || failed="$failed apscheduler4"
    [ -z "$failed" ] || { echo "frameworks/python: FAILED:$failed" >&2; exit 1; }
elif [ "$1" = apscheduler4 ]; then
    tests apscheduler4 "$@"
else
    tests frameworks "$@"
fi
