#!/usr/bin/env bash
# Installs what the comparison measures: the peers' servers, their libraries and the workers, under target/peers.
#
# PostgreSQL comes from Debian's packages, etcd from the Go proxy, ZooKeeper, Hazelcast and the libraries in Java from
# Maven. The libraries of Python and Node are those of scripts/test-clients.sh, under target/clients. run.py skips the
# contenders whose files are missing at the end, and names them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
peers=$target/peers
mkdir -p "$peers"

say() { echo "install: $*" >&2; }

# debian PACKAGE ...: installs them if that can be done.
debian() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: $* (Debian's names)"
        return 1
    fi
    say "installing $*"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
        -o DPkg::Lock::Timeout=120 "$@")
    # Debian would start the server that it installs.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        # shellcheck disable=SC2064 # the path is known now
        trap "rm -f $policy" RETURN
    fi
    "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && "${install[@]}" >/dev/null; }
}

postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || debian postgresql
}

go_programs() {
    command -v go >/dev/null || debian golang-go || return 1
    # The newest etcd needs a newer Go than the package does.
    (cd benches/peers/etcd && go build -o "$peers/etcd" go.etcd.io/etcd/server/v3) || return 1
    (cd benches/peers/go && go build -o "$peers/worker-go" .)
}

java_programs() {
    { command -v mvn && command -v javac; } >/dev/null || debian default-jdk-headless maven || return 1
    local stamp
    stamp=$(cat benches/peers/java/pom.xml)
    if [ "$(cat "$peers/jars/.stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$peers/jars"
        mvn --batch-mode --quiet -Dstyle.color=never "-Dmaven.repo.local=$target/clients/maven" \
            --file benches/peers/java/pom.xml dependency:copy-dependencies "-DoutputDirectory=$peers/jars" || return 1
        echo "$stamp" >"$peers/jars/.stamp"
    fi
    local sources
    mapfile -t sources < <(find clients/java/src/main/java -name '*.java' ! -name module-info.java ! -path '*/opentelemetry/*')
    rm -rf "$peers/java"
    javac -nowarn -cp "$peers/jars/*" -d "$peers/java" "${sources[@]}" benches/peers/java/*.java || return 1
    cp -r clients/java/src/main/resources/. "$peers/java"
}

# The same folders as in scripts/test-clients.sh, which replaces them if its pins have changed.
python_library() {
    local folder=$target/clients/serverlock-python
    [ -x "$folder/bin/python" ] || python3 -m venv "$folder" || return 1
    "$folder/bin/python" -c 'import redis' 2>/dev/null ||
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
            "$(grep '^redis==' clients/python/tests/requirements.txt)"
}

node_package() {
    local folder=$target/clients/serverlock-node
    command -v npm >/dev/null || { say "missing: Node 20 or later, with npm"; return 1; }
    if [ ! -d "$folder/node_modules/redlock-5" ]; then
        mkdir -p "$folder"
        cp clients/node/test/package.json "$folder/"
        npm install --omit=dev --no-audit --no-fund --silent --prefix "$folder" || return 1
    fi
    node clients/node/build.mjs "$folder/dist" "$folder"
}

failed=
for part in postgres go_programs java_programs python_library node_package; do
    "$part" || failed="$failed $part"
done
[ -z "$failed" ] || say "not installed:$failed"
