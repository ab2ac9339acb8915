#!/usr/bin/env bash
# Tests the Node package with real frameworks: node-cron, NestJS, BullMQ, OpenTelemetry. Workers are killed.
#
#   scripts/frameworks/node.sh               all tests in tests/frameworks/node
#   scripts/frameworks/node.sh node-cron     the tests in node-cron.test.mjs
#
# It installs the pinned frameworks and the package in a project under target/frameworks/node, and runs the tests there.
# They need the module: `make build`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
project=$target/frameworks/node
tests=tests/frameworks/node

say() { echo "frameworks/node: $*" >&2; }

if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
    say "missing: Node 20 or later, with npm"
    exit 1
fi
[ -e "$target/release/libredis_lock.so" ] || { say "missing: the module; run 'make build' first"; exit 1; }

if ! cmp --silent "$tests/package.json" "$project/.stamp"; then
    rm -rf "$project"
    mkdir -p "$project"
    cp "$tests/package.json" "$project/"
    npm install --no-audit --no-fund --silent --prefix "$project"
    cp "$tests/package.json" "$project/.stamp"
fi

# The package is what an application installs: its built files, and no sources.
package=$project/node_modules/serverlock
mkdir -p "$package"
cp clients/node/package.json "$package/"
node clients/node/build.mjs "$package/dist" "$project"

find "$project" -maxdepth 1 -name '*.*' -type f ! -name 'package*.json' ! -name .stamp -delete
cp "$tests"/*.* examples/node/bullmq.mjs "$project/"
files=()
for name in "${@:-*}"; do
    for file in "$tests"/$name.test.mjs; do files+=("$(basename "$file")"); done
done
cd "$project"
REPOSITORY=$OLDPWD node --test --test-reporter=spec "${files[@]}" </dev/null
