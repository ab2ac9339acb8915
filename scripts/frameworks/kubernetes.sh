#!/usr/bin/env bash
# Checks packaging/kubernetes against Kubernetes' schemas, and runs the commands of leader.yaml as the processes of two
# pods, one of which is killed. With KUBERNETES_SCHEMAS, a folder of checkouts, it also checks the files for operators
# and for Valkey's chart (tests/frameworks/kubernetes/test_operators.py); without, it says in one line that it does not.
#
# Installs what it needs from PyPI under target/frameworks/kubernetes. The tests start servers of their own.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export SERVERLOCK_MODULE=${SERVERLOCK_MODULE:-$target/release/libredis_lock.so}
built=$target/frameworks/kubernetes
requirements=tests/frameworks/kubernetes/requirements.txt

[ -f "$SERVERLOCK_MODULE" ] || { echo "frameworks: missing: $SERVERLOCK_MODULE, run 'cargo build --release'" >&2; exit 1; }
if ! cmp -s "$requirements" "$built/.stamp"; then
    rm -rf "$built"
    python3 -m venv "$built"
    "$built/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements"
    cp "$requirements" "$built/.stamp"
fi
if [ -n "${KUBERNETES_SCHEMAS:-}" ]; then
    "$built/bin/python" tests/frameworks/kubernetes/test_operators.py
else
    echo "frameworks: skipped the files for operators: KUBERNETES_SCHEMAS names no folder with their CRDs" >&2
fi
"$built/bin/python" tests/frameworks/kubernetes/test_leader.py "$@"
