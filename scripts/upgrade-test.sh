#!/bin/sh
# Upgrades a Sentinel group and a cluster under load from an earlier build of the module to this one, and back:
# `make upgrade-test FROM=v1.0.0`. Without FROM the last release's tag is the earlier build. docs/UPGRADING.md has the
# steps.
#
# Builds the earlier commit in a folder under target/upgrade, and keeps it, so that a second run is quick.
set -eu

cd "$(dirname "$0")/.."
from=${FROM:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
fail() {
    echo "upgrade-test: $*" >&2
    exit 1
}
[ -n "$from" ] || fail "there is no tag yet: name a commit to start from, as in make upgrade-test FROM=HEAD~10"
commit=$(git rev-parse --verify --quiet "$from^{commit}") || fail "there is no commit $from"
target=${CARGO_TARGET_DIR:-$PWD/target}
sources=$target/upgrade/$commit
if [ ! -d "$sources" ]; then
    mkdir -p "$sources.new"
    git archive "$commit" | tar -xf - -C "$sources.new"
    mv "$sources.new" "$sources"
fi
echo "upgrade-test: building $from"
cargo build --release --lib --quiet --manifest-path "$sources/Cargo.toml" --target-dir "$target/upgrade/build"
LOCK_UPGRADE_FROM=$target/upgrade/build/release/libredis_lock.so
export LOCK_UPGRADE_FROM
exec cargo test --test integration upgrade:: -- --nocapture
