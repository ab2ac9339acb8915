#!/bin/sh
# Builds and tests the module for musl, the C library of Alpine: `make musl`, `make test-musl`, `make package`.
#
#   musl.sh build [ARCHITECTURE [OPTIONS...]]  build the module for x86_64 or aarch64, with cargo's OPTIONS
#   musl.sh server                             build a server to test it on, and print its path
#   musl.sh test [FILES]                       run the tests of FILES (`waiting|wire`) on that server, or all tests
#
# The module needs nothing but libc.so: what unwinds its panics is linked into it, because Alpine's images come without
# libgcc_s. Zig links it (scripts/zig.sh), Rust's standard library comes from rustup.
#
# The server is Redis 7.0 from Debian's sources, compiled against Zig's musl. It runs on the libc.so of Debian's package
# musl, which is unpacked in target/musl: nothing is installed in the system. If something cannot be had, the script
# says so in one line and exits with 3.
set -eu

cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$target/musl

say() { echo "musl: $*" >&2; }
# cannot WHAT WHY
cannot() {
    say "skipped, nothing is $1 for musl: $2"
    exit 3
}
have() { command -v "$1" >/dev/null 2>&1; }

# tools WHAT
tools() {
    zig=$(scripts/zig.sh) || cannot "$1" "it needs Zig"
    export PATH="$zig:$PATH"
}

# build ARCHITECTURE OPTIONS...
build() {
    triple=$1-unknown-linux-musl
    case $1 in
    x86_64 | aarch64) shift ;;
    *) say "the architecture is x86_64 or aarch64, not '$1'" && exit 2 ;;
    esac
    tools built
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ]; then
        have rustup || cannot built "it needs rustup, or Rust's standard library for $triple"
        timeout 300 rustup --quiet target add "$triple" >/dev/null 2>&1 || cannot built "rustup could not add $triple"
    fi
    # bindgen reads the server's API with musl's headers: those that the linker's compiler searches. It runs in another
    # folder, and Zig prints what is below this one as a relative path.
    headers=$(cargo-zigbuild zig cc -- -target "${triple%%-*}-linux-musl" -E -v -x c /dev/null 2>&1 |
        sed -n '/^#include </,/^End/ s,^ \(.*/libc/include/.*\),\1,p' | xargs realpath | sed 's/^/-isystem /')
    [ $# -gt 0 ] || set -- --locked --release --lib --target-dir "$folder/build"
    # A program for musl is static by default; a module shares the server's C library.
    us=$(printf '\037')
    env CARGO_ENCODED_RUSTFLAGS="${CARGO_ENCODED_RUSTFLAGS:+$CARGO_ENCODED_RUSTFLAGS$us}-Ctarget-feature=-crt-static" \
        BINDGEN_EXTRA_CLANG_ARGS="--target=${triple%%-*}-linux-musl $(echo "$headers" | tr '\n' ' ')" \
        cargo zigbuild --target "$triple" "$@"
}

# unpack: Debian's source package of Redis, and its musl, in $work. The system's package lists stay as they are.
unpack() {
    { have apt-get && have dpkg-deb && have make; } || cannot tested "its server comes from Debian's packages, with make"
    mirror=$(apt-get update --print-uris 2>/dev/null </dev/null | sed -n "s,^'\([^']*/debian/\)dists/.*,\1,p" | head -n 1)
    [ -n "$mirror" ] || cannot tested "its server comes from Debian's packages, and this system has others"
    mkdir -p "$work/lists/partial"
    for kind in deb deb-src; do
        echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main"
    done >"$work/sources.list"
    debian() {
        apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Acquire::Languages=none \
            -o Dir::State::Lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
            -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@" </dev/null >"$work/log" 2>&1
    }
    { debian update && (cd "$work" && debian source --download-only redis && debian download musl); } ||
        cannot tested "$(grep . "$work/log" | tail -n 1)"
    tar -xzf "$work"/redis_*.orig.tar.gz -C "$work"
    dpkg-deb -x "$work"/musl_*.deb "$work/musl"
}

build_server() {
    [ "$(uname -sm)" = "Linux x86_64" ] || cannot tested "the server is for Linux on x86-64"
    server=$folder/bin/redis-server
    [ ! -x "$server" ] || return 0
    tools tested
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    unpack
    mkdir -p "$folder/bin"
    cp -L "$work/musl/lib/ld-musl-x86_64.so.1" "$folder/bin/"
    printf '#!/bin/sh\nexec cargo-zigbuild zig cc -- -target x86_64-linux-musl -dynamic "$@"\n' >"$work/cc"
    printf '#!/bin/sh\nexec cargo-zigbuild zig ar -- "$@"\n' >"$work/ar"
    chmod +x "$work/cc" "$work/ar"
    say "compiling $(basename "$work"/redis-[0-9]*) for musl"
    # As Alpine's, but the program names the unpacked loader.
    make -C "$work"/redis-[0-9]*/src CC="$work/cc" AR="$work/ar" MALLOC=libc OPTIMIZATION=-O2 \
        REDIS_LDFLAGS="-Wl,--dynamic-linker=$folder/bin/ld-musl-x86_64.so.1" redis-server >"$folder/server.log" 2>&1 ||
        cannot tested "the server does not compile: $(grep -i error "$folder/server.log" | head -n 1)"
    cp "$work"/redis-[0-9]*/src/redis-server "$server.new"
    "$server.new" --version >/dev/null || cannot tested "the server does not start"
    mv "$server.new" "$server"
}

run_tests() {
    build_server
    build x86_64
    say "$("$server" --version)"
    # What the tests preload into a server is compiled for its C library.
    printf '#!/bin/sh\nexec cargo-zigbuild zig cc -- -target x86_64-linux-musl "$@"\n' >"$folder/cc"
    chmod +x "$folder/cc"
    export REDIS_SERVER="$server" LOCK_MODULE="$folder/build/x86_64-unknown-linux-musl/release/libredis_lock.so"
    export SERVER_CC="$folder/cc"
    # The server of the first test runs with glibc. The bounds of the others are too short for musl's allocator, which
    # is slower than jemalloc.
    [ -n "$1" ] || exec cargo test --test integration -- --skip operator::an_old_server_fails_to_load_with_one_line \
        --skip keys::long::waits_for_the_longest_names_are_served_in_short_turns \
        --skip keys::many::places_for_several_keys_are_bounded_by_their_names
    # The runner matches words anywhere in a name, such as cluster::sessions; these are the tests of whole files.
    tests=$(cargo test --quiet --test integration -- --list 2>/dev/null | sed -n 's/: test$//p' | grep -E "^($1)::")
    # shellcheck disable=SC2086 # one name is one word
    exec cargo test --test integration -- --exact $tests
}

case ${1:-} in
build)
    shift
    [ $# -gt 0 ] || set -- "$(uname -m | sed s/arm64/aarch64/)"
    build "$@"
    ;;
server)
    build_server
    echo "$server"
    ;;
test) run_tests "${2:-}" ;;
*)
    say "called as 'musl.sh build', 'musl.sh server' or 'musl.sh test'"
    exit 2
    ;;
esac
