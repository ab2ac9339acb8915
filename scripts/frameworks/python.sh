#!/usr/bin/env bash
# Tests the Python package's modules for frameworks with the real frameworks, in a virtual environment below
# target/frameworks/python.
#
#   scripts/frameworks/python.sh                    all of them
#   scripts/frameworks/python.sh celery [TEST ...]  one of them, or single tests: Beats.test_a_stopped_beat_hands_over
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$target/frameworks/python
python=$built/venv/bin/python
here=tests/frameworks/python

[ -f "$target/release/libredis_lock.so" ] || { echo "frameworks/python: run 'make build' first" >&2; exit 1; }
if ! cmp --silent "$here/requirements.txt" "$built/installed"; then
    mkdir -p "$built"
    python3 -m venv --clear "$built/venv"
    "$python" -m pip install --quiet --disable-pip-version-check --no-input -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$built/installed"
fi

cd "$here"
if [ $# = 0 ]; then
    exec "$python" -m unittest discover --verbose
fi
name=test_$1
shift
if [ $# = 0 ]; then
    exec "$python" -m unittest --verbose "$name"
fi
exec "$python" -m unittest --verbose "${@/#/$name.}"
