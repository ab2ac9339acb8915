#!/bin/sh
# Fuzzes the readers of untrusted bytes, and the queue, for SECONDS_EACH (60) per target. Arguments select the targets.
# Unpacks the corpus of each, and packs it again without inputs that reach nothing new. `make test` replays it
# (tests/corpus.rs) without cargo-fuzz.
set -eu
cd "$(dirname "$0")/.."

cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: 'cargo install cargo-fuzz' first" >&2; exit 1; }
cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: 'rustup toolchain install nightly' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
corpus() { cargo xtask corpus "$@"; }

[ $# -gt 0 ] || set -- value arguments queue
for target; do
    corpus unpack "$target" "$work/$target"
    # The code under test has no unsafe: without a sanitizer it is several times faster.
    cargo +nightly fuzz run --sanitizer none "$target" "$work/$target" -- -max_total_time="${SECONDS_EACH:-60}" \
        -max_len=1024 -print_final_stats=1
    cargo +nightly fuzz cmin --sanitizer none "$target" "$work/$target" -- -max_len=1024
    corpus pack "$target" "$work/$target"
done
