#!/bin/bash
# Runs every test with a bound on time TIMES=50 times alongside busy loops, two for each core, and prints how many times
# each failed. Exits non-zero if one did. It takes a long time: PIECE=2/5 runs the second of five pieces, and arguments
# select the tests whose names contain one of them.
#
# tests/fixtures/bounds.txt lists these tests, and tests/testkit/src/bound.rs checks that it does. The last piece, or
# the argument `clients` alone, also runs the scenarios of clients/suite whose leases have to be renewed in time, and
# runs the unit tests of the packages UNIT_TIMES=5 times, in the languages that `make test-clients` has prepared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUST_BACKTRACE=0
times=${TIMES:-50}
unit_times=${UNIT_TIMES:-5}
piece=${PIECE:-1/1}
loops=${LOOPS:-$((2 * $(nproc)))}
if ! [[ $piece =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || ((BASH_REMATCH[1] > BASH_REMATCH[2])); then
    echo "busy-tests: PIECE is K/N with K from 1 to N, not '$piece'" >&2
    exit 2
fi
this=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]}
if ! [[ $times =~ ^[1-9][0-9]*$ && $unit_times =~ ^[0-9]+$ && $loops =~ ^[0-9]+$ ]]; then
    echo "busy-tests: TIMES, UNIT_TIMES and LOOPS are whole numbers, not '$times', '$unit_times' and '$loops'" >&2
    exit 2
fi

# The selected lines of the list, as "BINARY TEST".
tests=$(awk -v this="$this" -v of="$of" 'NR % of == this % of' tests/fixtures/bounds.txt)
if [ $# -gt 0 ]; then
    tests=$(printf '%s\n' "$@" | grep --fixed-strings --file=- <(echo "$tests") || true)
fi
clients=
if [[ $# = 0 && $this = "$of" || " $* " = *" clients "* ]]; then clients=1; fi
[ -n "$tests$clients" ] || { echo "busy-tests: no test of the list is selected" >&2; exit 2; }

# How cargo names a binary of the list.
cargo_of() {
    case $1 in
    program) echo --package lock-top --test program ;;
    *) echo --test "$1" ;;
    esac
}
binaries=$([ -z "$tests" ] || echo "$tests" | cut -d ' ' -f 1 | sort -u)
for binary in $binaries; do
    # shellcheck disable=SC2046 # The words are meant to be split.
    cargo test --quiet --no-run $(cargo_of "$binary")
done

output=$(mktemp)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -f "$output" "$output.failed"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# The loops also end when this script is killed.
for ((loop = 0; loop < loops; loop++)); do
    (
        trap - EXIT INT TERM HUP
        while kill -0 $$ 2>/dev/null; do for ((turn = 0; turn < 100000; turn++)); do :; done; done
    ) &
    pids+=($!)
done

: >"$output.failed"
echo "busy-tests: $(grep -c . <<<"$tests" || true) tests, $times times, alongside $loops loops"
for ((round = 1; round <= times; round++)); do
    for binary in $binaries; do
        names=$(echo "$tests" | sed -n "s/^$binary //p")
        # shellcheck disable=SC2046,SC2086 # The words are meant to be split.
        if ! cargo test --quiet $(cargo_of "$binary") -- --exact $names >"$output" 2>&1; then
            # The names come last, after the output of each.
            failed=$(awk '/^failures:$/ { names = ""; next } /^    [a-z_0-9:]+$/ { names = names $1 "\n" } END { printf "%s", names }' "$output")
            [ -n "$failed" ] || failed="(no test: the run ended)"
            echo "busy-tests: round $round: failed: $(echo "$failed" | tr '\n' ' ')"
            grep -E -A 4 '^thread .* panicked at ' "$output" || tail -n 20 "$output"
            echo "$failed" >>"$output.failed"
            kept=${CARGO_TARGET_DIR:-target}/busy-tests-$binary-$(date +%H%M%S).log
            cp "$output" "$kept"
            echo "busy-tests: the whole output is in $kept"
        fi
    done
done
if [ -n "$clients" ]; then
    for language in python node go java rust php ruby; do
        # The verdict of scripts/test-clients.sh: what the language needs is there.
        if [ ! -e "${CARGO_TARGET_DIR:-target}/clients/$language.verdict" ]; then
            echo "busy-tests: skipped the package for $language: 'scripts/test-clients.sh $language' first"
            continue
        fi
        if python3 clients/suite/run.py "$language" --bounds --times "$times" >"$output" 2>&1; then
            echo "busy-tests: $language: $(tail -n 1 "$output")"
        else
            awk '/^$/ { shown = 1 } shown' "$output" | head -n 60
            # Each failure is printed twice: when it happens, and at the end.
            failed=$(sed '/^$/,$d' "$output" | awk -v of="$language" '$1 == "failed" { print of "::" $3 " (" $2 ")" }')
            echo "${failed:-(no scenario: the run of $language ended)}" >>"$output.failed"
        fi
        for ((round = 1; round <= unit_times; round++)); do
            if ! UNITS_ONLY=1 scripts/test-clients.sh "$language" >"$output" 2>&1; then
                tail -n 150 "$output"
                # The names come last.
                sed '1,/^test-clients: FAILED:/d; s/^/unit test of /' "$output" >>"$output.failed"
            fi
        done
        echo "busy-tests: $language: unit tests, $unit_times times"
    done
fi
if [ -s "$output.failed" ]; then
    sort "$output.failed" | uniq -c | sort -rn | while read -r count name; do
        of=$times
        [[ $name != "unit test of "* ]] || of=$unit_times
        echo "busy-tests: $name failed $count of $of times"
    done
    exit 1
fi
echo "busy-tests: all passed"
