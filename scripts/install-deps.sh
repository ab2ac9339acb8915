#!/bin/sh
# Installs missing packages for building, testing and running, and the packages named as arguments, whose commands have
# the same names.
set -eu

say() { echo "install-deps: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
exists() { [ -e "$1" ]; }

# bindgen, which generates the bindings to the server's API, loads libclang; any recent version will do.
# Without its headers (stddef.h and the like) it fails later, with a worse message.
have_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    exists_any /usr/lib/llvm-*/lib/libclang.so* /usr/lib/llvm-*/lib/libclang-[0-9]*.so* \
        /usr/lib/*/libclang.so* /usr/lib/*/libclang-[0-9]*.so* /usr/lib64/libclang.so* /usr/local/lib/libclang.so* ||
        return 1
    exists_any /usr/lib/llvm-*/lib/clang/*/include/stddef.h /usr/lib/clang/*/include/stddef.h \
        /usr/local/lib/clang/*/include/stddef.h
}
exists_any() {
    for path; do
        # A pattern without a match stays unchanged, and is not a file.
        ! exists "$path" || return 0
    done
    return 1
}

missing=
have make || missing="$missing make"
if ! have "${REDIS_SERVER:=redis-server}"; then
    if [ "$REDIS_SERVER" != redis-server ]; then
        say "REDIS_SERVER=$REDIS_SERVER is not there; 'make servers' fetches some into .servers/"
        exit 1
    fi
    missing="$missing redis-server"
fi
# The compiler is also cargo's linker; without the C library's headers bindgen fails.
have cc || missing="$missing gcc"
exists_any /usr/include/stdio.h /usr/local/include/stdio.h || missing="$missing libc6-dev"
for command; do have "$command" || missing="$missing $command"; done
have_libclang || missing="$missing libclang1-14 libclang-common-14-dev"

if [ -n "$missing" ]; then
    if ! have apt-get; then
        say "missing:$missing (Debian's names); without apt, install them with the system's package manager." \
            "Instead of libclang, the one from 'pip install libclang' will do: set LIBCLANG_PATH to its folder."
        exit 1
    fi
    sudo=
    if [ "$(id -u)" != 0 ]; then
        if ! have sudo; then
            say "missing:$missing; not root, and sudo is not there: have root run 'apt-get install$missing'"
            exit 1
        fi
        sudo=sudo
    fi
    say "missing:$missing; installing"

    # Debian starts a service when its package is installed: an unwanted second server on port 6379. A temporary
    # policy-rc.d that exits with 101 ("not allowed") prevents that. An existing policy-rc.d stays: its owner has
    # decided.
    policy=/usr/sbin/policy-rc.d
    if ! exists $policy; then
        trap '$sudo rm -f $policy' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
        $sudo chmod 755 $policy
    fi

    # Debian releases after 12 have a different version of libclang.
    add() {
        # shellcheck disable=SC2086 # the names are meant to be split
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
            -o DPkg::Lock::Timeout=120 $1 </dev/null >/dev/null
    }
    newer=$(echo "$missing" | sed 's/libclang1-14 libclang-common-14-dev/libclang-dev/')
    # The package lists may be missing or old; an unreachable source does no harm.
    if ! add "$missing" 2>/dev/null; then
        $sudo apt-get update -qq </dev/null >&2 || say "apt-get update had errors; continuing"
        add "$missing" || { [ "$newer" != "$missing" ] && add "$newer"; } || {
            say "apt-get could not install:$missing"
            exit 1
        }
    fi
    case $missing in
    *redis-server*)
        # It must not start at the next boot either: the tests and 'make run' start servers of their own.
        if have systemctl; then $sudo systemctl disable redis-server >/dev/null 2>&1 || true; fi
        ;;
    esac
fi

if ! have cargo; then
    rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
    say "cargo is missing: install Rust $rust or later, as https://rustup.rs says, and open a new shell"
    exit 1
fi
