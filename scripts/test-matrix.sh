#!/bin/sh
# Runs the integration tests on every server in .servers/ and on the installed one, and writes a table to
# docs/SERVERS.md. Fails when a test failed or a server took too long.
#
# A single build of the module and the tests is used for all. From the environment:
#   MATRIX_SERVERS  names under .servers/ (and redis-server, the one in the PATH); by default all of them. The table
#                   keeps the last results of the others, from .servers/results or else from docs/SERVERS.md
#   MATRIX_TESTS    only tests whose name contains this; the table is then printed, not written
#   MATRIX_MODES    also runs them in these modes, each on the newest Redis and the newest Valkey that has it:
#                   io-threads (sockets are read and written by threads), defrag (active defragmentation), dual-channel
#                   (a replica gets the snapshot and the changes on two connections). io-threads:valkey is that mode on
#                   the newest Valkey alone. With MATRIX_SERVERS=" " only these
#   MATRIX_LIMIT    how many seconds the tests may take on one server; 900. Valkey with io-threads takes 1,500
#   MATRIX_FETCH=0  fetches nothing
#   MATRIX_BUILD=1  also compiles the server for which there is no binary
set -eu

cd "$(dirname "$0")/.."
limit=${MATRIX_LIMIT:-900}
filter=${MATRIX_TESTS:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
say() { echo "test-matrix: $*" >&2; }

[ "${MATRIX_FETCH:-1}" = 0 ] || scripts/fetch-servers.sh >&2

# A copy, so that edits during the run do not change what is tested.
say "building"
cargo build --release --lib --quiet
cp "${CARGO_TARGET_DIR:-target}/release/libredis_lock.so" "$work/"
tests=$(cargo test --no-run --quiet --test integration --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
cp "$tests" "$work/integration"
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
export LOCK_MODULE="$work/libredis_lock.so"

failed_any=0
# Tests spend more time waiting than computing.
at_once=${RUST_TEST_THREADS:-$((2 * $(nproc) + 1))}
threads=$at_once
results=.servers/results
[ -z "$filter" ] || results=$work/results
[ -n "${MATRIX_SERVERS:-}" ] || rm -rf "$results"
if [ ! -d "$results" ]; then
    mkdir -p "$results"
    # On a new machine the last results are only in the document.
    [ -z "${MATRIX_SERVERS:-}" ] || awk -v results="$results" '
        function file(title, extension) {
            name = title ~ /\(installed\)$/ ? "redis-server" : title
            sub(/ \(.*/, "", name)
            sub(/, /, "+", name)
            return results "/" name "." extension
        }
        /^\| (redis|valkey)[^|]* \|/ { split($0, cells, " \\| "); print >>file(substr(cells[1], 3), "rows") }
        /^(redis|valkey).*:$/ { details = file(substr($0, 1, length($0) - 1), "details"); print "" >>details }
        details { if ($0 != "") { print >>details; if (/:$/) print "" >>details } }
    ' docs/SERVERS.md
fi

# row TITLE PASSED FAILED NOTE: adds a row to the results of the server with this $name.
row() { echo "| $1 | $2 | $3 | $commit | $4 |" >>"$results/$name.rows"; }

# run TITLE BINARY FILTER [ARGUMENTS]: runs the tests on a server, with these arguments for it, and adds its row.
# `threads` is how many tests run at once.
run() {
    title=$1 binary=$2 log=$work/log
    say "$title"
    start=$(date +%s)
    code=0
    REDIS_SERVER=$binary REDIS_SERVER_ARGS=${4:-} RUST_TEST_THREADS=$threads timeout --kill-after=10 "$limit" \
        "$work/integration" --show-output ${3:+"$3"} >"$log" 2>&1 </dev/null || code=$?
    took=$(($(date +%s) - start))
    # With one test at a time, what a test prints follows its name, and its result comes on a later line.
    sed -i 's/^test [^ ]* \.\.\. skipped: /skipped: /' "$log"
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed;.*/\1/p' "$log" | tail -n 1)
    failed=$(sed -n 's/^test result: .* \([0-9]*\) failed;.*/\1/p' "$log" | tail -n 1)
    if [ -z "$passed" ]; then
        passed=$(grep -c '^test .* \.\.\. ok' "$log" || true)
        failed=$(grep -c '^test .* \.\.\. FAILED' "$log" || true)
    fi
    skipped=$(grep -c '^skipped: ' "$log" || true)
    note="${took} s"
    [ "$skipped" = 0 ] || note="$note; $skipped checks need what it lacks"
    # A filter that fits no test would look like success.
    [ "$code" != 0 ] || [ "$passed" != 0 ] || code=1
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then
        note="not finished within $limit s"
    elif [ "$code" != 0 ] && [ "$failed" = 0 ]; then
        note="the tests ended with code $code: $(tail -n 1 "$log")"
    fi
    [ "$code" = 0 ] || failed_any=1
    row "$title" "$passed" "$failed" "$note"
    if [ "$failed" != 0 ] || [ "$skipped" != 0 ]; then
        {
            printf '\n%s:\n\n' "$title"
            # shellcheck disable=SC2016 # the backticks are Markdown
            awk '/^(failures|successes):$/ { lists = $1 == "failures:" }
                lists && /^    [a-z0-9_]+::[a-z0-9_:]+$/ { print "- failed: `" $1 "`" }' "$log" | sort -u
            sed -n 's/^skipped: /- /p' "$log" | sort -u
        } >>"$results/$name.details"
    fi
    if [ "$code" != 0 ]; then
        mkdir -p .servers/logs
        cp "$log" ".servers/logs/$name.log"
        say "$title failed: see .servers/logs/$name.log"
    fi
}

# arguments_of MODE FAMILY: the server's arguments in a mode.
arguments_of() {
    case $1-$2 in
    io-threads-*) echo "--io-threads 2" ;;
    defrag-*) echo "--activedefrag yes --active-defrag-ignore-bytes 1 --active-defrag-threshold-lower 1" ;;
    dual-channel-redis) echo "--repl-rdb-channel yes" ;;
    dual-channel-valkey) echo "--dual-channel-replication-enabled yes" ;;
    esac
}

# starts BINARY ARGUMENT...: whether a server starts with these arguments. It is then still running after 2 s.
starts() {
    started=$1 ended=0
    shift
    timeout 2 "$started" --port 0 --unixsocket "$work/socket" --dir "$work" --save "" "$@" >/dev/null 2>&1 </dev/null || ended=$?
    [ "$ended" = 124 ]
}

# run_mode MODE FAMILY: runs the tests in a mode on the newest server of this family that has it.
run_mode() {
    arguments=$(arguments_of "$1" "$2")
    threads=$at_once
    # Two threads of each busy Valkey spin, and each test then takes what two processors have.
    [ "$1-$2" != io-threads-valkey ] || threads=$((($(nproc) + 1) / 2))
    for newest in $(cd .servers && for server in "$2"-*/server; do dirname "$server"; done | sort -rV); do
        # shellcheck disable=SC2086 # they are separate arguments
        starts "$PWD/.servers/$newest/server" $arguments || continue
        name=$newest+$1
        rm -f "$results/$name".*
        run "$newest, $1" "$PWD/.servers/$newest/server" "$filter" "$arguments"
        return
    done
    name=$2+$1
    rm -f "$results/$name".*
    row "$2, $1" "-" "-" "not run: no server has it"
}

# The version of a server without a version in its name.
version() { "$1" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p'; }

default=
if command -v redis-server >/dev/null 2>&1; then
    default=redis-server
fi
for mode in ${MATRIX_MODES:-}; do
    [ -n "$(arguments_of "${mode%:*}" redis)" ] || { say "MATRIX_MODES: unknown mode $mode" && exit 2; }
done
all="$default $(cd .servers && for server in */server; do [ ! -x "$server" ] || dirname "$server"; done | sort -V)"
for name in ${MATRIX_SERVERS:-$all}; do
    rm -f "$results/$name".*
    case $name in
    redis-server) run "redis-$(version redis-server) (installed)" redis-server "$filter" ;;
    redis-6.0.*)
        run "$name (too old: refuses to load)" redis-server an_old_server_fails_to_load
        run "$name (portable/lock.lua, no module)" "$PWD/.servers/$name/server" portable::alone
        ;;
    *) run "$name" "$PWD/.servers/$name/server" "$filter" ;;
    esac
done
for mode in ${MATRIX_MODES:-}; do
    case $mode in
    *:*) run_mode "${mode%:*}" "${mode#*:}" ;;
    *) for family in redis valkey; do run_mode "$mode" "$family"; done ;;
    esac
done
for rows in "$results"/*+*.rows; do
    [ ! -f "$rows" ] || all="$all $(basename "$rows" .rows)"
done
if [ -z "${MATRIX_SERVERS:-}" ] && [ -s .servers/skipped ]; then
    while read -r name reason; do
        row "$name" "-" "-" "not run: $reason"
        all="$all $name"
    done <.servers/skipped
fi

# of EXTENSION: the results of all servers, in order.
of() { for name in $all; do [ ! -f "$results/$name.$1" ] || cat "$results/$name.$1"; done; }
details=$(of details)
{
    echo "# Servers"
    echo
    echo "The integration tests on every server that \`make test-matrix\` could fetch, with a module built at that commit."
    echo "Last run: $(date -u +%Y-%m-%d), $(uname -sm)."
    echo
    echo "| server | passed | failed | commit | |"
    echo "|---|---:|---:|---|---|"
    of rows
    if [ -n "$details" ]; then
        echo
        echo "## What failed, and what a server lacks"
        echo
        echo "A test that needs something that a server does not have leaves that part out and says so:"
        echo "$details"
    fi
} >"$work/SERVERS.md"
cat "$work/SERVERS.md"
if [ -z "$filter" ]; then
    cp "$work/SERVERS.md" docs/SERVERS.md
    say "written to docs/SERVERS.md"
fi
exit "$failed_any"
