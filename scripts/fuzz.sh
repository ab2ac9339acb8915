#!/bin/sh
# Fuzzes what reads bytes of others, and the queue: SECONDS_EACH for each target (60). Arguments: only these targets.
# The corpus of each is unpacked, and packed again without the inputs that reach nothing new. `make test` replays it
# (tests/corpus.rs) without any of this.
set -eu
cd "$(dirname "$0")/.."

cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: 'cargo install cargo-fuzz' first" >&2; exit 1; }
cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: 'rustup toolchain install nightly' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
corpus() { cargo run --quiet --example corpus -- "$@"; }

[ $# -gt 0 ] || set -- value arguments queue
for target; do
    corpus unpack "$target" "$work/$target"
    # The code under test has no unsafe in it: without a sanitizer it is several times as fast.
    cargo +nightly fuzz run --sanitizer none "$target" "$work/$target" -- -max_total_time="${SECONDS_EACH:-60}" \
        -max_len=1024 -print_final_stats=1
    cargo +nightly fuzz cmin --sanitizer none "$target" "$work/$target" -- -max_len=1024
    corpus pack "$target" "$work/$target"
done
