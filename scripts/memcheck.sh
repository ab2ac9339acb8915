#!/bin/sh
# Runs the integration tests with the module built for AddressSanitizer: no access to freed or out-of-bounds memory, and
# no module memory left when a server exits. Takes a few minutes. Arguments select tests by name.
#
# It needs a server whose allocator is a shared library, or that has none of its own, such as Debian's, because the
# sanitizer's replaces it. First it shows that it finds a mutant of each kind (tests/mutants). Exits non-zero on any
# report.
set -eu
cd "$(dirname "$0")/.."

target=$PWD/target/asan
host=$(rustc -vV | sed -n 's/^host: //p')
asan=$(${CC:-cc} -print-file-name=libasan.so)
[ -e "$asan" ] || { echo "memcheck: the C compiler has no libasan" >&2; exit 1; }
# A stable compiler has sanitizers too, but does not promise them. The target is named so that build scripts and macros
# are not instrumented. Everything is built from the copy that gets the mutants: cargo cannot tell two trees in one
# target folder apart.
build() {
    tree=$(cargo xtask mutants plant "$@")
    (cd "$tree" && RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address ${RUSTFLAGS:-}" \
        cargo build --release --lib --quiet --target "$host" --target-dir "$target")
}
cargo build --quiet --tests

reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
# Stacks go through the server, which has no frame pointers: without the slow unwinder the stacks end there.
cat >"$reports/server" <<SERVER
#!/bin/sh
LD_PRELOAD=$asan ASAN_OPTIONS=log_path=$reports/report:detect_odr_violation=0:fast_unwind_on_malloc=0 \
    exec ${REDIS_SERVER:-redis-server} "\$@"
SERVER
chmod +x "$reports/server"
export LOCK_MODULE="$target/$host/release/libredis_lock.so" REDIS_SERVER="$reports/server"
# Servers list unfreed memory when they exit.
export LOCK_TERM=1 RUST_BACKTRACE=0

run() { cargo test --quiet --test integration -- "$@"; }
# Only reports with the module in the stack; others are about the server alone.
found() { grep -l "$1" "$reports"/report.* 2>/dev/null | xargs -r grep -l libredis_lock; }

cargo xtask mutants memory >"$reports/mutants"
# shellcheck disable=SC2086 # Tests are words.
while read -r mutant report tests; do
    build "$mutant" </dev/null
    run --exact $tests >/dev/null 2>&1 </dev/null || true
    [ -n "$(found "$report")" ] || { echo "memcheck: $mutant is not found: nothing is checked here" >&2; exit 1; }
    echo "memcheck: $mutant is found"
    rm -f "$reports"/report.*
done <"$reports/mutants"

build
# This leaves out tests that measure time or memory, set the clock, need ten thousand clients, or start no server from
# REDIS_SERVER.
status=0
if [ $# -gt 0 ]; then
    run "$@" || status=1
else
    run --skip demo:: --skip factory:: --skip fairness:: --skip fleet:: --skip metrics:: --skip migrating:: \
        --skip package:: --skip pages:: --skip recipes:: --skip redlock:: --skip sentinel::conditions:: \
        --skip sessions::many:: --skip operator::on_a_server_that_is_too_old || status=1
fi
if [ -n "$(found Sanitizer)" ]; then
    found Sanitizer | xargs cat
    echo "memcheck: FAILED, see the reports above" >&2
    exit 1
fi
others=$(find "$reports" -name 'report.*' | wc -l)
echo "memcheck: no report with the module in it; $others of the server alone"
exit $status
