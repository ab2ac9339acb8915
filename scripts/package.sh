#!/bin/sh
# Builds the archives and Debian packages of a release in target/package/: `make package`.
#
#   redis-lock-VERSION-TARGET.tar.gz        the module, lock-top, documents, portable/lock.lua, scripts/install.sh
#   redis-lock-VERSION-TARGET-debug.tar.gz  its debug information
#   redis-lock_VERSION-1_ARCHITECTURE.deb   for redis-server and valkey-server; needs dpkg-deb
#   redis-lock-VERSION.cdx.json             the linked crates, for scanners; needs cargo-cyclonedx
#   redis-lock-top-VERSION.cdx.json         the same for lock-top
#   SHA256SUMS
#
# For this machine and, if it can be built, for 64-bit ARM (scripts/arm64.sh), and archives of both for musl
# (scripts/musl.sh, with cargo-zigbuild); NATIVE_ONLY=1 leaves all but this machine's out. COMPLETE=1, for a release,
# fails if anything would be left out, or would need a newer glibc than necessary.
#
# The same commit and compiler produce the same bytes, in any folder and target folder: timestamps are the commit's (or
# SOURCE_DATE_EPOCH), and they contain no path of this machine. `make reproducible` shows this. Built with
# cargo-zigbuild, they run with glibc 2.17 (2012) and later; otherwise, or with ZIG=0, they may need the glibc of this
# machine. The environment can name a MAINTAINER of the package, and a prebuilt MODULE and LOCK_TOP, as the tests do.
set -eu
umask 022
export LC_ALL=C TZ=UTC

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

say() { echo "package: $*"; }
die() {
    say "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
# lacks WHAT: reports that it is left out, or fails.
lacks() {
    [ "${COMPLETE:-}" != 1 ] || die "$*"
    say "$*"
}

target=${CARGO_TARGET_DIR:-$root/target}
out=${PACKAGE_DIR:-$target/package}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
rustc=$(rustc -vV)
host=$(echo "$rustc" | sed -n 's/^host: //p')
arm=aarch64-unknown-linux-gnu
# The oldest glibc that Rust's standard library supports.
glibc=2.17
zig=${ZIG:-1}
have cargo-zigbuild || zig=0
maintainer=${MAINTAINER:-The redis-lock authors <redis-lock@packages.invalid>}
for tool in objcopy objdump strip tar gzip sha256sum; do
    have "$tool" || die "$tool is missing (Debian: binutils, tar, gzip, coreutils)"
done
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
    if [ -n "$(git status --porcelain 2>/dev/null)" ]; then say "note: there are changes that are not committed"; fi
fi
export SOURCE_DATE_EPOCH

# Replaces paths of this machine in the output. If several match, the last one counts.
sources=${CARGO_HOME:-$HOME/.cargo}/registry
maps="$root=/redis-lock $target=/redis-lock/target $sources=/crates"
flags='' c_flags=${CFLAGS:-}
for map in $maps; do
    flags="$flags${flags:+$(printf '\037')}--remap-path-prefix=$map"
    # One of the crates compiles a C file.
    c_flags="$c_flags -ffile-prefix-map=$map"
done

# has_path FILE: whether a word in it begins with one of the paths.
has_path() {
    for map in $maps; do
        [ "${map%=*}" != "${map#*=}" ] || continue
        if tr '\0' '\n' <"$1" | awk -v path="${map%=*}/" 'index($0, path) == 1 { found = 1; exit } END { exit !found }'; then
            path=${map%=*}
            return 0
        fi
    done
    return 1
}

# compile TRIPLE OPTIONS...: apart from other builds, which have other flags and would be rebuilt each time.
compile() {
    triple=$1
    shift
    set -- --locked --target-dir "$target/package-build" "$@"
    # Zig links for ARM without a cross compiler, but not without binutils.
    [ "$zig" != 1 ] || [ "${triple%%-*}" = "${host%%-*}" ] || scripts/arm64.sh tools || return
    case $triple:$* in
    *-musl:*\ --lib) set -- scripts/musl.sh build "${triple%%-*}" "$@" ;;
    # A static program, which needs no libc.so.
    *-musl:*) set -- cargo zigbuild --target "$triple" "$@" ;;
    *)
        if [ "$zig" = 1 ]; then
            set -- cargo zigbuild --target "$triple.$glibc" "$@"
        elif [ "$triple" = "$host" ]; then
            set -- cargo build "$@"
        else
            set -- scripts/arm64.sh build "$@"
        fi
        ;;
    esac
    env CARGO_ENCODED_RUSTFLAGS="$flags" CFLAGS="$c_flags" "$@"
}

# build TRIPLE: $module and $lock_top.
build() {
    compile "$1" --release --lib || return
    compile "$1" --profile tool --package lock-top || return
    built=$target/package-build
    if [ "$1" != "$host" ] || [ "$zig" = 1 ]; then built=$built/$1; fi
    module=$built/release/libredis_lock.so lock_top=$built/tool/lock-top
    for file in "$module" "$lock_top"; do
        [ -f "$file" ] || die "$file is not there"
        if has_path "$file"; then die "$file names a path of this machine, $path: it would differ elsewhere"; fi
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# split: separates the debug information. Function names stay (perf, gdb and core dumps are readable; 0.2 MB);
# file names and lines, 11 MB, go into a separate file, which gdb and addr2line find by the build ID.
split() {
    so=$work/$triple/libredis_lock.so
    mkdir "$work/$triple"
    cp "$module" "$so"
    (
        cd "$work/$triple"
        "${tools}objcopy" --only-keep-debug --compress-debug-sections libredis_lock.so libredis_lock.so.debug
        "${tools}strip" --strip-debug libredis_lock.so
        "${tools}objcopy" --add-gnu-debuglink=libredis_lock.so.debug libredis_lock.so
        # Servers refuse a module that is not executable.
        chmod 755 libredis_lock.so
        chmod 644 libredis_lock.so.debug
    )
    [ -z "$lock_top" ] || install -m 755 "$lock_top" "$work/$triple/lock-top"
}

# The licences of the linked crates require their text to be included.
licences() {
    echo "libredis_lock.so and lock-top contain the crates below, and the standard library of Rust (MIT OR Apache-2.0)."
    # Without crates that only run at build time: macros and build scripts.
    cargo tree --locked --package redis-lock --package lock-top --edges normal,no-proc-macro --prefix none --no-dedupe \
        --format '{p}|{l}' >"$work/crates"
    sort -u "$work/crates" | while IFS='|' read -r crate licence; do
        # Our own crates have their folder after their version.
        case $crate in '' | *' ('*/*) continue ;; esac
        crate=$(echo "$crate" | sed 's/ v/-/; s/ .*//')
        printf '\n%s\n%s: %s\n' "------------------------------------------------------------" "$crate" "$licence"
        found=
        for text in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate"/*; do
            case ${text##*/} in
            LICEN[CS]E* | COPYING* | COPYRIGHT* | UNLICENSE* | license*)
                [ -f "$text" ] || continue
                # If there is a choice, the shorter licence is used.
                case $licence:${text##*/} in *MIT*:*[Aa][Pp][Aa][Cc][Hh][Ee]*) continue ;; esac
                found=1
                echo
                cat "$text"
                ;;
            esac
        done
        [ -n "$found" ] || printf '\n(the crate comes without the text)\n'
    done
}

# bill_of_materials: $out/redis-lock-$version.cdx.json and that of lock-top, without paths of this machine.
bill_of_materials() {
    if ! cargo cyclonedx --version >/dev/null 2>&1; then
        lacks "no SBOM: 'cargo install cargo-cyclonedx --locked' first"
        return
    fi
    # It writes beside the Cargo.toml of each crate, so it works on a copy of the sources.
    mkdir "$work/sources"
    tar --exclude=./target --exclude=./.git --exclude=./.servers --exclude=./.data --create . |
        tar --extract --directory="$work/sources"
    (
        cd "$work/sources"
        cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --target "$host" --override-filename sbom
    )
    sed "s|$work/sources|/redis-lock|g" "$work/sources/sbom.json" >"$out/redis-lock-$version.cdx.json"
    sed "s|$work/sources|/redis-lock|g" "$work/sources/tools/lock-top/sbom.json" >"$out/redis-lock-top-$version.cdx.json"
}

# pack NAME: packs the folder NAME as NAME.tar.gz.
pack() {
    tar --directory="$work" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --create "$1" | gzip -9n >"$out/$1.tar.gz"
}

archives() {
    name=redis-lock-$version-$triple
    mkdir -p "$work/$name/scripts" "$work/$name/packaging" "$work/$name/portable" "$work/$name-debug"
    cp "$so" "$work/THIRD-PARTY-LICENSES.txt" README.md LICENSE CHANGELOG.md SECURITY.md redis.conf "$work/$name/"
    cp -R docs "$work/$name/"
    cp scripts/install.sh "$work/$name/scripts/"
    cp portable/lock.lua "$work/$name/portable/"
    (cd packaging && cp -R redis-lock-module redis-lock-module.8 lock-top.1 grafana "$work/$name/packaging/")
    [ -z "$lock_top" ] || cp "$work/$triple/lock-top" "$work/$name/"
    pack "$name"
    cp "$so.debug" "$work/$name-debug/"
    pack "$name-debug"
}

# The libraries that the module and lock-top need, each with the newest version needed.
needs() {
    files="$so${lock_top:+ $work/$triple/lock-top}"
    newest() {
        for file in $files; do "${tools}objdump" -T "$file"; done |
            sed -n "s/.*($1_\([0-9.]*\)).*/\1/p" | sort -Vu | tail -n 1
    }
    libc='' libgcc=''
    for library in $(for file in $files; do "${tools}objdump" -p "$file"; done | sed -n 's/^ *NEEDED *//p'); do
        case $library in
        libc.so) libc=musl ;;
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux*) libc="libc6 (>= $(newest GLIBC))" ;;
        libgcc_s.so.1) libgcc=", libgcc-s1 (>= $(newest GCC))" ;;
        *) die "$library is needed, but this script does not know which package has it" ;;
        esac
    done
    echo "$libc$libgcc"
}

package() {
    # A tilde sorts before the release: 0.2.0-rc.1 is 0.2.0~rc.1.
    deb_version=$(echo "$version" | sed 's/-/~/')-1
    tree=$work/$triple/deb
    doc=$tree/usr/share/doc/redis-lock
    mkdir -p "$tree/DEBIAN" "$tree/usr/lib/redis/modules" "$tree/usr/sbin" "$tree/usr/share/man/man8" \
        "$tree/usr/share/redis-lock" "$tree/usr/share/lintian/overrides" "$doc/examples" "$doc/pictures"
    cp "$so" "$tree/usr/lib/redis/modules/"
    cp packaging/redis-lock-module "$tree/usr/sbin/"
    cp portable/lock.lua "$tree/usr/share/redis-lock/"
    gzip -9nc packaging/redis-lock-module.8 >"$tree/usr/share/man/man8/redis-lock-module.8.gz"
    if [ -n "$lock_top" ]; then
        install -D -m 755 "$work/$triple/lock-top" "$tree/usr/bin/lock-top"
        mkdir -p "$tree/usr/share/man/man1"
        gzip -9nc packaging/lock-top.1 >"$tree/usr/share/man/man1/lock-top.1.gz"
    fi
    cp README.md SECURITY.md docs/*.md "$work/THIRD-PARTY-LICENSES.txt" "$doc/"
    cp docs/pictures/*.svg "$doc/pictures/"
    cp -R redis.conf packaging/grafana "$doc/examples/"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    printf 'redis-lock (%s) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' \
        "$deb_version" "$version" "$maintainer" "$(date -R -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$doc/changelog.Debian.gz"
    cp packaging/deb/copyright "$doc/copyright"
    cp packaging/deb/lintian-overrides "$tree/usr/share/lintian/overrides/redis-lock"
    cp packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$tree/DEBIAN/"
    (cd "$tree" && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums)
    sed -e "s/@VERSION@/$deb_version/; s/@ARCHITECTURE@/$architecture/; s/@MAINTAINER@/$maintainer/" \
        -e "s/@NEEDS@/$depends/; s/@SIZE@/$(du -sk --apparent-size "$tree/usr" | cut -f1)/" \
        packaging/deb/control >"$tree/DEBIAN/control"
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/redis-lock_${deb_version}_$architecture.deb" >/dev/null
}

# make_for TRIPLE ARCHITECTURE [TOOLS]: everything for one kind of machine, for which $module was built.
make_for() {
    triple=$1 architecture=$2 tools=${3:-}
    split
    depends=$(needs)
    say "$triple needs $depends"
    if [ "$zig" = 1 ] && [ -z "${MODULE:-}" ] && [ "$depends" != musl ]; then
        newest=${depends#*>= }
        newest=${newest%%)*}
        [ "$(printf '%s\n' "$glibc" "$newest" | sort -V | tail -n 1)" = "$glibc" ] ||
            die "$triple needs glibc $newest: it should run with $glibc"
    fi
    archives
    if [ -n "$architecture" ]; then package; fi
}

architecture=''
if have dpkg-deb && have dpkg; then
    architecture=$(dpkg --print-architecture)
else
    lacks "no dpkg-deb here: archives only, no Debian package"
fi
module=${MODULE:-} lock_top=${LOCK_TOP:-}
if [ -z "$module" ]; then
    [ "$zig" = 1 ] || lacks "note: without cargo-zigbuild, what is built needs the glibc of this machine or a later one"
    build "$host"
fi
[ -f "$module" ] || die "$module is not there"
licences >"$work/THIRD-PARTY-LICENSES.txt"
grep -q Permission "$work/THIRD-PARTY-LICENSES.txt" || die "the sources of the crates, with their licences, are missing"
mkdir -p "$out"
rm -f "$out"/redis-lock[-_]* "$out/SHA256SUMS"
bill_of_materials
make_for "$host" "$architecture"
# also WHAT TRIPLE ARCHITECTURE [TOOLS]: everything for another kind of machine, if it can be built.
also() {
    what=$1
    shift
    code=0
    build "$1" || code=$?
    case $code in
    0) make_for "$@" ;;
    # It has already printed why.
    3) lacks "nothing for $what" ;;
    *) exit "$code" ;;
    esac
}
if [ -z "${MODULE:-}" ] && [ "${NATIVE_ONLY:-0}" != 1 ]; then
    [ "$host" = $arm ] || also ARM64 $arm "${architecture:+arm64}" aarch64-linux-gnu-
    if [ "$zig" = 1 ]; then
        also musl "${host%%-*}-unknown-linux-musl" ''
        [ "$host" = $arm ] || also "musl on ARM64" aarch64-unknown-linux-musl '' aarch64-linux-gnu-
    else
        lacks "nothing for musl: it needs cargo-zigbuild"
    fi
fi

(cd "$out" && sha256sum redis-lock[-_]* >SHA256SUMS)
say "in $out:"
(cd "$out" && wc -c redis-lock[-_]* SHA256SUMS | grep -v ' total$')
