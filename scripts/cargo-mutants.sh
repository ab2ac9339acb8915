#!/bin/sh
# Applies the small changes of cargo-mutants to the core, one at a time, and runs the tests. Fails unless at least LEAST
# percent (95) of the changes that compile are caught. FOLDERS names the folders to change. Arguments go to
# cargo-mutants: `--shard 0/20` takes every twentieth change.
set -eu
cd "$(dirname "$0")/.."

cargo mutants --version >/dev/null 2>&1 || { echo "mutants: 'cargo install cargo-mutants --locked' first" >&2; exit 1; }

# Each change runs all unit tests and the quick ones of the models, with fewer random steps. The slow models visit
# millions of states and find hardly any change that the others miss.
export SEVERAL_STEPS="${SEVERAL_STEPS:-40000}" PROPTEST_CASES="${PROPTEST_CASES:-64}"
slow="simulator::fresh mutants:: failover:: scopes::a_lock_ends scopes::a_call_that scopes::a_queue scopes::leases scopes::clients_of"

out=target/cargo-mutants
mkdir -p "$out"
for folder in ${FOLDERS:-lock engine driver}; do set -- "$@" --file "core/src/$folder/**"; done
set -- "$@" -- --lib --test model --
for test in $slow; do set -- "$@" --skip "$test"; done
status=0
cargo mutants --package redis-lock-core --output "$out" "$@" || status=$?
# 2: some were missed; 3: some ran out of time.
case $status in 0 | 2 | 3) ;; *) exit "$status" ;; esac

count() { wc -l <"$out/mutants.out/$1.txt"; }
missed=$(count missed) timeout=$(count timeout) caught=$(count caught)
viable=$((missed + timeout + caught))
echo "$viable changes that compile: $caught caught, $timeout timed out, $missed missed; $(count unviable) do not compile"
[ $((missed * 100)) -le $((viable * (100 - ${LEAST:-95}))) ]
