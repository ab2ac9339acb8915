#!/bin/sh
# Installs the module into this machine's server, or removes it: `make install`, `make uninstall`.
#
# Reads PREFIX, MODULEDIR, CONF and DESTDIR from the environment. Does not start, stop or restart servers.
set -eu

# Not /usr/local: Debian's units let their servers run code from /usr/lib and /lib only.
prefix=${PREFIX:-/usr}
moduledir=${MODULEDIR:-$prefix/lib/redis/modules}
destdir=${DESTDIR:-}
here=$(cd "$(dirname "$0")/.." && pwd)
# In a release archive the module is beside the script; in the source tree it was built.
built=$here/libredis_lock.so
[ -f "$built" ] || built=${CARGO_TARGET_DIR:-$here/target}/release/libredis_lock.so
built=${MODULE:-$built}
tool=$here/packaging/redis-lock-module
module=$moduledir/libredis_lock.so

say() { echo "install: $*"; }
die() {
    say "$*" >&2
    exit 1
}
case $moduledir in
/*) ;;
*) die "MODULEDIR (or PREFIX) is a full path, not '$moduledir'" ;;
esac
if [ -n "$destdir" ]; then
    mkdir -p "$destdir"
    destdir=$(cd "$destdir" && pwd)
    # The root of the system is not a DESTDIR.
    destdir=${destdir%/}
fi
if [ -z "$destdir" ] && [ "$(id -u)" != 0 ]; then
    die "not root: 'make build', then 'sudo make $1' (or set DESTDIR to a folder of your own)"
fi
if [ -z "$destdir" ] && command -v dpkg-query >/dev/null && dpkg-query -S "$module" >/dev/null 2>&1; then
    die "$module belongs to the package $(dpkg-query -S "$module" | cut -d: -f1): apt installs and removes that"
fi

# configured enable|disable: the line in the configurations that CONF lists, or in the existing ones.
configured() {
    # shellcheck disable=SC2086 # CONF is a list
    "$tool" "$1" --module "$module" --root "$destdir" ${CONF:-}
}

case ${1:-} in
install)
    [ -f "$built" ] || die "$built is not there: 'make build' first"
    if [ -n "$(find "$here/src" "$here/Cargo.toml" "$here/Cargo.lock" -newer "$built" 2>/dev/null | head -n 1)" ]; then
        say "note: the sources are newer than what was built; 'make build' first if that is not intended"
    fi
    mkdir -p "$destdir$moduledir"
    # Replace the file instead of writing into it: a running server has the old file open, and writing into it would
    # crash the server.
    cp "$built" "$destdir$module.new"
    # Servers refuse a module that is not executable.
    chmod 755 "$destdir$module.new"
    mv -f "$destdir$module.new" "$destdir$module"
    say "$destdir$module"
    configured enable
    ;;
uninstall)
    # The line is removed first, because a server whose configuration loads a missing file does not start.
    configured disable
    rm -f "$destdir$module"
    say "$destdir$module is gone"
    # The folders are removed too, if they are empty.
    rmdir "$destdir$moduledir" 2>/dev/null || true
    case $moduledir in */redis/modules) rmdir "$destdir${moduledir%/*}" 2>/dev/null || true ;; esac
    ;;
*) die "called as 'install.sh install' or 'install.sh uninstall'" ;;
esac
