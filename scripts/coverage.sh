#!/bin/sh
# Measures which lines and branches of the core and the module the tests run: the core's unit tests and model, and the
# integration tests on a module that counts. Prints a table of all files, and writes the lines that no test ran to
# target/coverage/uncovered.txt. Fails if one of them is in the core and not in tests/fixtures/uncovered.txt. Takes half
# an hour on two cores; "core" runs no integration tests, and explains less.
#
# It needs LLVM's tools in rustc's version.
set -eu
cd "$(dirname "$0")/.."

target=$PWD/target/coverage
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
tools=$(rustc --print sysroot)/lib/rustlib/$host/bin
if [ ! -x "$tools/llvm-cov" ]; then
    tools=/usr/lib/llvm-$version/bin
    [ -x "$tools/llvm-cov" ] || scripts/install-deps.sh "llvm-$version" || true
    [ -x "$tools/llvm-cov" ] ||
        { echo "coverage: missing: 'rustup component add llvm-tools', or Debian's llvm-$version" >&2; exit 1; }
fi

# A stable compiler counts branches too, but does not promise to. The target is named so that build scripts and macros
# do not count.
counting() {
    command=$1
    shift
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Cinstrument-coverage -Zcoverage-options=branch ${RUSTFLAGS:-}" \
        cargo "$command" --quiet --target "$host" --target-dir "$target" "$@"
}
rm -rf "$target/profiles"
# A process adds to the file of its program: thousands of servers make one file, not thousands.
export LLVM_PROFILE_FILE="$target/profiles/%8m.profraw"

counting test --package redis-lock-core --lib --test model
objects=$(counting test --package redis-lock-core --lib --test model --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/-object \1/p')
if [ "$*" != core ]; then
    counting build --release --lib
    export LOCK_MODULE="$target/$host/release/libredis_lock.so"
    # Servers write their counts when they exit, so the tests end them with SIGTERM. Servers that a test kills
    # do not count.
    status=0
    LOCK_TERM=1 cargo test --quiet --test integration -- "$@" || status=$?
    [ "$status" = 0 ] || echo "coverage: some tests failed, because servers that count are slower" >&2
    objects="-object $LOCK_MODULE $objects"
fi

"$tools/llvm-profdata" merge --sparse -o "$target/all.profdata" "$target/profiles"/*.profraw
# shellcheck disable=SC2086 # they are separate arguments
cov() { "$tools/llvm-cov" "$@" -instr-profile "$target/all.profdata" $objects --ignore-filename-regex '/(registry|rustc|tests|fuzz)/|_tests?\.rs$'; }
cov report --show-functions=false --show-region-summary=false
cov export --format=lcov --skip-functions >"$target/lcov"
code=0
scripts/uncovered.py tests/fixtures/uncovered.txt <"$target/lcov" >"$target/uncovered.txt" || code=$?
echo "coverage: $(grep -c : "$target/uncovered.txt") lines were not run: target/coverage/uncovered.txt" >&2
exit "$code"
