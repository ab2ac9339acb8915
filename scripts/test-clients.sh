#!/usr/bin/env bash
# Tests the packages in clients/: types, unit tests, every scenario of clients/suite with one of the client libraries in
# turn, and the install lines in their READMEs.
#
#   scripts/test-clients.sh            all languages
#   scripts/test-clients.sh python     one of them
#   SUITE_SHARE=3 scripts/test-clients.sh java     a third of the scenarios, as in CI; each language plays another third
#   SUITE_ALL=1 scripts/test-clients.sh java       every scenario with every client library, as at night
#   UNITS_ONLY=1 scripts/test-clients.sh python    only the unit tests: no lint, no scenarios, no install lines
#
# `make lint` also lints the packages, but skips those whose tools are missing. The tools that this script installs
# (PHP's and Ruby's) run here.
#
# The tests install what a language needs under target/clients. A language that is missing or too old is installed from
# Debian's packages if root runs this; otherwise one line says what is missing, and the script fails.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/clients
mkdir -p "$target"
failed=

say() { echo "test-clients: $*" >&2; }

# beyond_units COMMAND ...: runs what is tested besides the unit tests.
beyond_units() { [ -n "${UNITS_ONLY:-}" ] || "$@"; }

scenarios() {
    beyond_units python3 clients/suite/run.py "$1" ${SUITE_ONLY:+--only "$SUITE_ONLY"} --share "${SUITE_SHARE:-1}" \
        "$([ -n "${SUITE_ALL:-}" ] && echo --all || echo --in-turn)"
}

# debian PACKAGE ...: installs them if that can be done.
debian() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: $* (Debian's names)"
        return 1
    fi
    say "installing $*"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
        -o DPkg::Lock::Timeout=120 "$@")
    # Two languages may need packages at the same time.
    (
        flock 8
        "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && "${install[@]}" >/dev/null; }
    ) 8>"$target/.apt"
}

# complete NAME STAMP COMMAND ...: runs the command unless $target/NAME was made from the same stamp.
complete() {
    local name=$1 stamp=$2
    shift 2
    if [ "$(cat "$target/$name/.stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "${target:?}/$name"
        "$@" || return 1
        echo "$stamp" >"$target/$name/.stamp"
    fi
}

python_install() {
    python3 -m venv "$target/serverlock-python" >/dev/null 2>&1 ||
        { debian python3-venv && python3 -m venv "$target/serverlock-python"; } || return 1
    "$target/serverlock-python/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        -r clients/python/tests/requirements.txt
}

test_python() {
    command -v python3 >/dev/null || debian python3 python3-venv || return 1
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { say "missing: Python 3.11 or later"; return 1; }
    complete serverlock-python "$(cat clients/python/tests/requirements.txt)" python_install || return 1
    local python=$target/serverlock-python/bin/python
    (cd clients/python && beyond_units "$python" -m mypy --cache-dir "$target/mypy") || return 1
    PYTHONPATH=clients/python/src "$python" -m unittest discover --start-directory clients/python/tests || return 1
    beyond_units scripts/compat.sh redis-py valkey-py || return 1
    scenarios python || return 1
}

node_install() {
    mkdir -p "$target/serverlock-node"
    cp clients/node/test/package.json "$target/serverlock-node/"
    npm install --omit=dev --no-audit --no-fund --silent --prefix "$target/serverlock-node"
}

test_node() {
    if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
        say "missing: Node 20 or later, with npm"
        return 1
    fi
    complete serverlock-node "$(cat clients/node/test/package.json)" node_install || return 1
    local built=$target/serverlock-node
    node clients/node/build.mjs "$built/dist" "$built" || return 1
    # A file that hangs fails, instead of ending the whole language; Node before 20.11 has no such option.
    local limits=()
    ! node --help | grep -q -- --test-timeout || limits=(--test-timeout=900000)
    SERVERLOCK=$built node --test "${limits[@]}" --test-reporter=spec clients/node/test/*.test.mjs </dev/null || return 1
    scenarios node || return 1
}

go_is_new() {
    local version
    version=$(go env GOVERSION 2>/dev/null) && [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 24 ]
}

test_go() {
    go_is_new || { debian golang-go && hash -r && go_is_new; } ||
        { say "missing: Go 1.24 or later"; return 1; }
    local built=$target/serverlock-go
    (cd clients/go && SERVERLOCK_MODULE=$target/../release/libredis_lock.so go test -race -count=1 ./...) || return 1
    (cd clients/go/opentelemetry && go test -race -count=1 ./...) || return 1
    [ -z "${UNITS_ONLY:-}" ] || return 0
    (cd clients/go/suite && go build -race -o "$built/driver" .) || return 1
    (cd benches/clients/go && go build -o "$built/bench" .) || return 1
    python3 benches/clients/run.py --smoke --language go --rounds 1 --pairs 40 --seconds 0.2 --processes 2 --warm 0.2 --waits 20 \
        >/dev/null || return 1
    GORACE=halt_on_error=1 scenarios go || return 1
}

java_is_new() {
    command -v mvn >/dev/null && [[ $(javac -version 2>&1) =~ ^javac\ ([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 17 ]
}

test_java() {
    java_is_new || { debian default-jdk-headless maven && hash -r && java_is_new; } ||
        { say "missing: Java 17 or later, with Maven"; return 1; }
    local built=$target/serverlock-java
    # Maven's local repository is here as well: the package is installed there, and the empty projects of its test find
    # it.
    export SERVERLOCK_REPOSITORY=$target/maven SERVERLOCK_MODULE=$target/../release/libredis_lock.so
    # Programs as short as these spend more on optimizing code than it saves. At night they run as applications do.
    local quick="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    [ -z "${SUITE_ALL:-}" ] || quick=
    export MAVEN_OPTS="$quick ${MAVEN_OPTS:-}"
    local maven=(mvn --batch-mode --quiet --file clients/java/pom.xml -Dstyle.color=never
        "-Dmaven.repo.local=$SERVERLOCK_REPOSITORY" "-Dserverlock.build=$built")
    rm -rf "$built"
    "${maven[@]}" install dependency:copy-dependencies -DskipTests || return 1
    beyond_units javac -Xlint:all -Werror -cp "$built/classes:$built/dependency/*" -d "$built/bench" benches/clients/*.java ||
        return 1
    "${maven[@]}" "-DargLine=$quick" surefire:test || return 1
    beyond_units scripts/compat.sh shedlock || return 1
    scenarios java || return 1
}

test_rust() {
    command -v cargo >/dev/null || { say "missing: Rust 1.88 or later"; return 1; }
    export SERVERLOCK_MODULE=$target/../release/libredis_lock.so
    (
        cd clients/rust && export CARGO_TARGET_DIR=$target/serverlock-rust &&
            cargo test --quiet --package serverlock --features opentelemetry,tokio,sentinel,testing,tls-rustls &&
            beyond_units cargo build --quiet --package serverlock-driver
    ) || return 1
    scenarios rust || return 1
}

php_is_complete() {
    php -r 'require "clients/php/tests/autoload.php";
        exit(PHP_VERSION_ID >= 80100 && extension_loaded("redis") && extension_loaded("pcntl") && class_exists("Predis\Client")
            && class_exists("Symfony\Component\Lock\Lock") && class_exists("Illuminate\Cache\Lock") ? 0 : 1);' 2>/dev/null &&
        command -v phpunit >/dev/null && command -v composer >/dev/null && command -v phpcs >/dev/null
}

test_php() {
    php_is_complete || { debian php-cli php-redis php-nrk-predis php-symfony-lock php-illuminate-cache phpunit composer \
        php-codesniffer && hash -r && php_is_complete; } ||
        { say "missing: PHP 8.1 or later, phpredis, predis, phpunit, composer, phpcs"; return 1; }
    php_lints || return 1
    (cd clients/php && SERVERLOCK_MODULE=$target/../release/libredis_lock.so phpunit) || return 1
    scenarios php || return 1
}

php_lints() {
    [ -z "${UNITS_ONLY:-}" ] || return 0
    scripts/lint-clients.sh php || return 1
    local file
    while IFS= read -r file; do
        [ -f "$file" ] || continue # removed, but not committed
        php -l "$file" >/dev/null || return 1
        [ "$file" = examples/php/report.php ] || grep -q '^declare(strict_types=1);$' "$file" ||
            { say "no strict types: $file"; return 1; }
    done < <(git ls-files --cached --others --exclude-standard -- 'clients/php/*.php' examples/php)
    (cd clients/php && COMPOSER_ALLOW_SUPERUSER=1 composer validate --quiet --strict)
}

ruby_is_complete() {
    ruby -e 'exit(RUBY_VERSION >= "3.1" ? 0 : 1)' 2>/dev/null &&
        ruby -e 'require "redis"; require "connection_pool"; require "minitest"; require "active_job"; require "sidekiq"' 2>/dev/null &&
        command -v rubocop >/dev/null
}

# Debian 12 has redis-rb 4.8, and the next release has version 5, written in pure Ruby, which is unpacked beside the
# first.
redis_rb_5() {
    local folder=$target/redis-rb-5 work mirror package
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    mirror=$(apt-get update --print-uris 2>/dev/null </dev/null | sed -n "s,^'\([^']*/debian/\)dists/.*,\1,p" | head -n 1)
    [ -n "$mirror" ] || return 1
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$folder"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$work/sources.list"
    local apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
        -o "Dir::Cache::archives=$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none
        -o APT::Sandbox::User=root)
    (
        cd "$work" && "${apt[@]}" update && "${apt[@]}" download ruby-redis ruby-redis-client ruby-redis-clustering \
            ruby-redis-cluster-client && for package in *.deb; do dpkg-deb -x "$package" "$folder" || exit 1; done
    ) >/dev/null 2>&1 </dev/null
    local fetched=$?
    rm -rf "$work"
    [ "$fetched" = 0 ] || rm -rf "$folder"
    return "$fetched"
}

# Builds the gem, installs it from its file, and loads it from there.
# shellcheck disable=SC2016 # #{where} is Ruby's
gem_installs() {
    local home=$target/gems
    rm -rf "$home"
    (cd clients/ruby && gem build --quiet --strict --output "$target/serverlock.gem" serverlock.gemspec) &&
        GEM_HOME=$home gem install --quiet --silent --local --no-document --ignore-dependencies --install-dir "$home" \
            "$target/serverlock.gem" &&
        (cd / && GEM_HOME=$home GEM_PATH=$home:$(ruby -e 'print Gem.path.join(":")') ruby -e '
            gem "serverlock"
            require "serverlock"; require "serverlock/redlock"; require "serverlock/sidekiq"; require "serverlock/active_job"
            where = $LOADED_FEATURES.find { |path| path.end_with?("serverlock/locks.rb") }
            abort "not the installed gem: #{where}" unless where.start_with?(ENV.fetch("GEM_HOME"))')
}

test_ruby() {
    ruby_is_complete || { debian ruby ruby-redis ruby-connection-pool ruby-minitest ruby-activejob ruby-sidekiq rubocop &&
        hash -r && ruby_is_complete; } || { say "missing: Ruby 3.1 or later, redis, connection_pool, minitest, rubocop"; return 1; }
    complete redis-rb-5 "trixie" redis_rb_5 || say "skipped redis-rb 5: Debian's next release cannot be reached"
    export SERVERLOCK_MODULE=$target/../release/libredis_lock.so
    local every='Dir["test/*_test.rb"].each { |file| require "./#{file}" }'
    beyond_units scripts/lint-clients.sh ruby && beyond_units gem_installs || return 1
    # The signatures are compared with the calls of these tests.
    (cd clients/ruby && RBS_TEST_OPT="-r timeout -I sig" RBS_TEST_LOGLEVEL=error \
        RBS_TEST_TARGET="$(printf "Serverlock::%s," Locks Lock Held Once HeldOnce Redlock Testing::Server)Serverlock::Leader" \
        ruby -W:deprecated -r rbs/test/setup -e "$every") || return 1
    [ ! -d "$target/redis-rb-5" ] ||
        (cd clients/ruby && REDIS_RB_5=$target/redis-rb-5 ruby -r ./test/redis5 -e \
            'Dir["test/{locks,redlock,sessions,single_flight}_test.rb"].each { |file| require "./#{file}" }') || return 1
    scenarios ruby || return 1
}

# Tests one language in a process of its own, which can be ended when it hangs.
if [ "${1:-}" = --play ]; then
    # What CI's time goes into: the processors' time, of this script and of its children.
    trap times EXIT
    "test_$2" && beyond_units python3 clients/suite/install.py "$2"
    exit
fi

# The longest first: otherwise it runs alone in the end. suite and shell are not languages of this script.
longest_first=(java node python rust ruby php go)
languages=${*:-$(for folder in "${longest_first[@]/#/clients/}" clients/*/; do
    name=$(basename "$folder")
    ! declare -F "test_$name" >/dev/null || echo "$name"
done | awk '!seen[$0]++')}
# They mostly wait, so two run at a time. Each line says which language it comes from.
at_once=${AT_ONCE:-2}
# A verdict also says that everything that a language needs is there. The unit tests alone do not prepare that.
verdicts=${UNITS_ONLY:+units-}verdict
# Several times what one language takes on an idle machine, in seconds.
limit=${LIMIT:-2400}
play() {
    local began=$SECONDS verdict=passed
    timeout --kill-after=30 "$limit" scripts/test-clients.sh --play "$1" >"$target/$1.log" 2>&1 &
    # timeout has a process group of its own.
    trap 'kill $!' TERM INT
    wait $! || verdict=failed
    [ $((SECONDS - began)) -lt "$limit" ] || echo "it took longer than $limit s" >>"$target/$1.log"
    echo "$verdict" >"$target/$1.$verdicts"
    echo "== $1 $verdict after $((SECONDS - began)) s"
}
follow() { tail -n +1 --follow --pid="$2" --sleep-interval=0.2 "$target/$1.log" | sed -u "s/^/$1: /"; }
# failures LANGUAGE: one line for each scenario and test that failed, in the words of clients/suite/run.py and of the
# test runners of all languages. Without any, the last line of the log says why the language failed.
failures() {
    awk -v language="$1" '
        function failed(name) { if (!seen[name]++) print language ": " name }
        NF { last = $0 }
        # clients/suite/run.py
        /^failed +[^ ]+ +[a-z_]+::/ { sub(/^failed +/, ""); failed($0) }
        # unittest
        /^(FAIL|ERROR): [^ ]+ \(/ { failed($2 " " $3) }
        # node --test
        /^ *✖ .* \([0-9.]+ms\)$/ { sub(/^ *✖ /, ""); sub(/ \([0-9.]+ms\)$/, ""); failed($0) }
        # go test
        /^ *--- FAIL: / { failed($3) }
        /^FAIL\t/ { failed($2) }
        # surefire
        / -- Time.*<<< (FAILURE|ERROR)!$/ { sub(/^\[ERROR\] +/, ""); sub(/ -- .*/, ""); failed($0) }
        # cargo test
        /^---- .* stdout ----$/ { failed($2) }
        # phpunit
        /^[0-9]+\) [^ ]+::test/ { sub(/^[0-9]+\) /, ""); failed($0) }
        # minitest
        /^[A-Za-z0-9_:]+#test_[^ ]+( \[|:$)/ { sub(/:$/, ""); failed($1) }
        /^it took longer than/ { failed($0) }
        END { if (!length(seen)) print language ": " last }' "$target/$1.log"
}
for language in $languages; do
    while [ "$(jobs -rp | wc -l)" -ge $((2 * at_once)) ]; do wait -n || true; done
    rm -f "$target/$language.$verdicts"
    : >"$target/$language.log"
    play "$language" &
    follow "$language" $! &
done
wait
for language in $languages; do
    [ "$(cat "$target/$language.$verdicts" 2>/dev/null)" = passed ] || failed="$failed $language"
done
if [ -n "$failed" ]; then
    # Other languages have printed a lot since then.
    for language in $failed; do
        echo "== $language failed:"
        tail -n 150 "$target/$language.log"
    done
    say "FAILED:$failed"
    # Last of all, so that the end of a log names everything that failed.
    for language in $failed; do failures "$language"; done
    exit 1
fi
