#!/usr/bin/env bash
# Runs Jepsen's lock workloads (tests/jepsen) on the module, Redisson and etcd, and has Porcupine judge the histories.
#
#   scripts/jepsen.sh [OPTION ...]   the options of tests/jepsen/run.py
#
# Needs root (or a user namespace), iproute2, redis-server, a C compiler, Java 17, Maven and Go 1.26. Libraries and etcd
# are fetched into target/jepsen. Ends with 3 if something cannot be had.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/jepsen
mkdir -p "$out"

skip() { echo "jepsen: skipped: $1" >&2; exit 3; }

for tool in python3 java javac mvn go cc ip nsenter unshare redis-cli "${REDIS_SERVER:-redis-server}"; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
done
user=()
[ "$(id -u)" = 0 ] || user=(--user --map-root-user)
unshare --net --pid --fork --kill-child --mount-proc "${user[@]}" true 2>/dev/null || skip "no namespaces can be made"
[ -f "$target/release/libredis_lock.so" ] || skip "there is no $target/release/libredis_lock.so: make build"

# Without a network the modules of Go and Maven are missing; the tests' own failures are not skipped.
(cd tests/porcupine && go mod download && go test ./... && go build -o "$out/porcupine" .) ||
    { (cd tests/porcupine && go mod download 2>/dev/null) || skip "the Go proxy cannot be reached"; exit 1; }
(cd benches/peers/etcd && go build -o "$out/etcd" go.etcd.io/etcd/server/v3) || skip "etcd cannot be built (Go 1.26)"

"${SERVER_CC:-cc}" -std=gnu11 -shared -fPIC -O2 -o "$out/clock_shim.so" tests/testkit/src/clock_shim.c

stamp=$(cat tests/jepsen/pom.xml)
if [ "$(cat "$out/jars/.stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$out/jars"
    mvn --batch-mode --quiet -Dstyle.color=never "-Dmaven.repo.local=$target/clients/maven" \
        --file tests/jepsen/pom.xml dependency:copy-dependencies "-DoutputDirectory=$out/jars" ||
        skip "the libraries cannot be fetched"
    echo "$stamp" >"$out/jars/.stamp"
fi
mapfile -t sources < <(find clients/java/src/main/java -name '*.java' ! -name module-info.java \
    ! -path '*/opentelemetry/*' ! -path '*/shedlock/*' ! -path '*/lettuce/*')
rm -rf "$out/classes"
javac -nowarn -cp "$out/jars/*" -d "$out/classes" "${sources[@]}" tests/jepsen/java/*.java
cp -r clients/java/src/main/resources/. "$out/classes"

python3 tests/jepsen/test_judge.py --quiet
exec python3 tests/jepsen/run.py "$@"
