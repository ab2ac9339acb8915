#!/usr/bin/env bash
# Tests the Spring Boot starter: its own tests on real servers, then two instances of an application, one of which is
# killed. The packages are installed in target/clients/maven, as the tests of the Java package do.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$target/frameworks/java
export SERVERLOCK_MODULE=$target/release/libredis_lock.so

if ! command -v mvn >/dev/null || ! [[ $(javac -version 2>&1) =~ ^javac\ ([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 17 ]; then
    echo "frameworks/java: missing: Java 17 or later, with Maven" >&2
    exit 1
fi
[ -f "$SERVERLOCK_MODULE" ] || cargo build --release --quiet

maven=(mvn --batch-mode --quiet -Dstyle.color=never "-Dmaven.repo.local=$target/clients/maven")
"${maven[@]}" --file clients/java/pom.xml "-Dserverlock.build=$built/serverlock" -Dmaven.test.skip=true \
    -Dmaven.javadoc.skip=true install
"${maven[@]}" --file clients/java/spring-boot-starter/pom.xml "-Dserverlock.build=$built/starter" install
"${maven[@]}" --file tests/frameworks/java/pom.xml "-Dserverlock.build=$built/application" test
