#!/bin/sh
# Checks, builds and tests the module for 64-bit ARM on another machine: `make lint`, `make package`, `make test-arm64`.
#
#   arm64.sh check             check that it compiles; needs rustup, but no compiler for ARM
#   arm64.sh build OPTIONS...  build with cargo's OPTIONS; CARGO_ENCODED_RUSTFLAGS and CFLAGS apply
#   arm64.sh tools             install Rust's standard library and binutils for it, for use with another linker
#   arm64.sh test [FILES]      run the tests of FILES (`waiting|wire`) on Debian's ARM64 redis-server, under qemu
#
# Debian's cross compiler and qemu are installed if root runs this (packages for this machine's own architecture). The
# server comes unpacked from Debian's arm64 packages, with its own package lists: the system's apt and dpkg are left
# alone. If something cannot be installed, the script says so in one line and exits with 3.
set -eu

cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
triple=aarch64-unknown-linux-gnu
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$target/arm64

say() { echo "arm64: $*" >&2; }
# cannot WHAT WHY
cannot() {
    say "skipped, ARM64 is not $1: $2"
    exit 3
}
have() { command -v "$1" >/dev/null 2>&1; }

# rust_for WHAT
rust_for() {
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ] || return 0
    have rustup || cannot "$1" "it needs rustup, or Rust's standard library for $triple"
    timeout 120 rustup --quiet target add $triple >/dev/null 2>&1 || cannot "$1" "rustup could not add $triple"
}

# packages_for WHAT PACKAGES: installs them.
packages_for() {
    have apt-get || cannot "$1" "it needs$2 (Debian's names)"
    [ "$(id -u)" = 0 ] || cannot "$1" "have root run: apt-get install$2"
    say "installing$2"
    add() {
        # shellcheck disable=SC2086 # the names are meant to be split
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 $1 \
            </dev/null >/dev/null 2>&1
    }
    add "$2" || { apt-get update -qq </dev/null >/dev/null 2>&1 && add "$2"; } || cannot "$1" "apt-get could not install$2"
}

# compiler_for WHAT
compiler_for() {
    rust_for "$1"
    missing=
    have aarch64-linux-gnu-gcc || missing="$missing gcc-aarch64-linux-gnu"
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
    [ -z "$missing" ] || packages_for "$1" "$missing"
}

# cross CARGO-ARGUMENTS...
cross() {
    env BINDGEN_EXTRA_CLANG_ARGS="${BINDGEN_EXTRA_CLANG_ARGS:-} -I/usr/aarch64-linux-gnu/include" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar \
        cargo "$@" --target $triple
}

check() {
    case $(uname -m) in aarch64 | arm64) return 0 ;; esac
    rust_for compiled
    # Nothing is linked, so this machine's compiler and headers are enough: only Rust's types matter. A define makes the
    # headers those of a 64-bit machine.
    env BINDGEN_EXTRA_CLANG_ARGS="${BINDGEN_EXTRA_CLANG_ARGS:-} -I/usr/include/$(cc -print-multiarch) -D__x86_64__" \
        CC_aarch64_unknown_linux_gnu=cc AR_aarch64_unknown_linux_gnu=ar cargo check --quiet --lib --target $triple
}

# Debian's server, and what it needs, unpacked.
fetch_server() {
    [ ! -x "$folder/server" ] || return 0
    { have apt-get && have dpkg-deb; } || cannot tested "its server comes from Debian's packages, which need apt and dpkg-deb"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/root"
    : >"$work/status"
    foreign() {
        apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$work/lists" \
            -o Dir::State::status="$work/status" -o Dir::Cache::archives="$work/archives" -o Dir::Cache::pkgcache= \
            -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
            "$@" </dev/null >"$work/log" 2>&1
    }
    # Debian's server is a link to one of the tools.
    if ! foreign update -qq || ! foreign install -qq -y --download-only --no-install-recommends redis-tools; then
        cannot tested "$(grep . "$work/log" | tail -n 1)"
    fi
    for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done
    mkdir -p "$folder"
    rm -rf "$folder/root"
    mv "$work/root" "$folder/root"
    cp "$folder/root/usr/bin/redis-check-rdb" "$folder/root/usr/bin/redis-server"
    cat >"$folder/server.new" <<'SERVER'
#!/bin/sh
# Looks for its libraries below `root` first.
here=$(cd "$(dirname "$0")" && pwd)
exec qemu-aarch64-static -L "$here/root" "$here/root/usr/bin/redis-server" "$@"
SERVER
    chmod 755 "$folder/server.new"
    "$folder/server.new" --version >/dev/null || cannot tested "the server does not start under qemu"
    mv "$folder/server.new" "$folder/server"
}

run_tests() {
    compiler_for tested
    have qemu-aarch64-static || packages_for tested " qemu-user-static"
    fetch_server
    cross build --release --lib --target-dir "$folder/build"
    say "$("$folder/server" --version)"
    cargo build --quiet --test integration
    # The runner matches words anywhere in a name, such as cluster::sessions; these are the tests of whole files.
    tests=$(cargo test --quiet --test integration -- --list 2>/dev/null | sed -n 's/: test$//p' | grep -E "^($1)::")
    # An emulated server is about ten times as slow: fewer tests run at once, so that no deadline passes.
    # shellcheck disable=SC2086 # one name is one word
    REDIS_SERVER=$folder/server LOCK_MODULE=$folder/build/$triple/release/libredis_lock.so RUST_TEST_THREADS=2 \
        cargo test --test integration -- --exact $tests
}

case ${1:-} in
check) check ;;
build)
    shift
    compiler_for built
    cross build "$@"
    ;;
tools)
    rust_for built
    have aarch64-linux-gnu-objcopy || packages_for built " binutils-aarch64-linux-gnu"
    ;;
test)
    # Files of tests/integration: commands, waiting, sessions, persistence.
    run_tests "${2:-wire|waiting|sessions|persistence}"
    ;;
*)
    say "called as 'arm64.sh check', 'arm64.sh build', 'arm64.sh tools' or 'arm64.sh test'"
    exit 2
    ;;
esac
