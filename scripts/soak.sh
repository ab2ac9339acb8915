#!/bin/sh
# Lets all kinds of clients work on three servers at the same time, without faults, for SOAK_SECONDS, and checks that
# the servers' memory does not grow. From the environment:
#   SOAK_SECONDS  7200
#   SOAK_SERVERS  the servers; by default the installed one, and the newest Redis and the newest Valkey in .servers/
set -eu
cd "$(dirname "$0")/.."

newest() { find "$PWD/.servers" -path "*/$1-*/server" 2>/dev/null | sort -V | tail -n 1; }
servers=${SOAK_SERVERS:-redis-server $(newest redis) $(newest valkey)}
export SOAK_SECONDS="${SOAK_SECONDS:-7200}"
cargo test --quiet --no-run --test torture
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
pids=
for server in $servers; do
    REDIS_SERVER=$server cargo test --quiet --test torture soak:: -- --ignored --nocapture >"$logs/$(echo "$server" | tr / _)" 2>&1 &
    pids="$pids $!"
done
failed=0
for pid in $pids; do wait "$pid" || failed=1; done
for log in "$logs"/*; do
    echo "soak: ${log##*/}"
    grep ' bytes' "$log" | sed -n '1p; $p'
    [ "$failed" = 0 ] || tail -n 30 "$log"
done
exit "$failed"
