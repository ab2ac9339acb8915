#!/usr/bin/env bash
# Lints the packages in clients/ with each language's own tools.
#
#   scripts/lint-clients.sh            all languages
#   scripts/lint-clients.sh go         one of them
#
# Each language has one function, lint_NAME. If its tools are missing, it says so in one line and returns 0.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/clients
mkdir -p "$target"

skip() { echo "lint-clients: skipped $1: $2" >&2; }

lint_go() {
    local built=$target/serverlock-go folder unformatted
    if ! [[ $(go env GOVERSION 2>/dev/null) =~ ^go1\.([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 24 ]; then
        skip go "Go 1.24 or later is missing"
        return 0
    fi
    unformatted=$(gofmt -l clients/go packaging/go-server benches/clients/go benches/peers/go examples/go tests/porcupine) || return 1
    [ -z "$unformatted" ] || { echo "lint-clients: run gofmt -w on:" "$unformatted" >&2; return 1; }
    # The driver's go.mod pins the version of staticcheck. Without a network its first build fails.
    (cd clients/go/suite && go build -o "$built/staticcheck" honnef.co/go/tools/cmd/staticcheck) ||
        { skip go "staticcheck cannot be built"; return 0; }
    local folders=(clients/go clients/go/opentelemetry clients/go/suite benches/clients/go tests/porcupine)
    # The peers' libraries need a newer Go than the package does.
    if [[ $(go env GOVERSION) =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 26 ]; then
        folders+=(benches/peers/go)
    else
        skip benches/peers/go "Go 1.26 or later is missing"
    fi
    for folder in "${folders[@]}"; do
        (cd "$folder" && go vet ./... && "$built/staticcheck" -checks all ./...) || return 1
    done
}

lint_python() {
    local built=$target/lint-python pinned
    pinned=$(grep '^ruff==' clients/python/tests/requirements.txt)
    if [ "$("$built/bin/ruff" --version 2>/dev/null)" != "${pinned/==/ }" ]; then
        if ! { python3 -m venv "$built" &&
            "$built/bin/python" -m pip install --disable-pip-version-check --no-input "$pinned"; } >/dev/null 2>&1; then
            skip python "$pinned cannot be installed"
            return 0
        fi
    fi
    (cd clients/python && "$built/bin/ruff" format --quiet --diff . && "$built/bin/ruff" check --quiet .) ||
        { echo "lint-clients: run target/clients/lint-python/bin/ruff format clients/python" >&2; return 1; }
    "$built/bin/ruff" format --quiet --diff packaging/python-server && "$built/bin/ruff" check --quiet packaging/python-server &&
        "$built/bin/ruff" format --quiet --diff --config clients/python/pyproject.toml tests/jepsen &&
        "$built/bin/ruff" check --quiet --config clients/python/pyproject.toml tests/jepsen
}

lint_rust() {
    local features all=opentelemetry,tokio,sentinel,testing,tls-rustls
    cargo clippy --version >/dev/null 2>&1 || { skip rust "cargo or clippy is missing"; return 0; }
    (
        cd clients/rust || exit 1
        # The tests build there too, so that their run of this function finds everything compiled.
        export CARGO_TARGET_DIR=$target/serverlock-rust
        cargo fetch --quiet --locked || { skip rust "crates cannot be fetched"; exit 0; }
        cargo fmt --all --check || exit 1
        for features in blocking tokio "blocking,$all"; do
            cargo clippy --quiet --package serverlock --all-targets --no-default-features --features "$features" -- \
                --deny warnings || exit 1
        done
        cargo clippy --quiet --package serverlock-driver --all-targets -- --deny warnings &&
            RUSTDOCFLAGS="--deny warnings" cargo doc --quiet --package serverlock --no-deps --features "$all"
    )
}

lint_php() {
    command -v phpcs >/dev/null || { skip php "phpcs is missing (Debian's php-codesniffer)"; return 0; }
    (cd clients/php && phpcs) || { echo "lint-clients: run phpcbf in clients/php" >&2; return 1; }
}

lint_node() {
    local built=$target/lint-node biome version
    biome=$built/node_modules/.bin/biome
    version=$(sed -n 's/.*"@biomejs\/biome": "\(.*\)".*/\1/p' clients/node/test/package.json)
    command -v npm >/dev/null || { skip node "npm is missing"; return 0; }
    if [ "$("$biome" --version 2>/dev/null)" != "Version: $version" ]; then
        mkdir -p "$built"
        npm install --no-save --no-audit --no-fund --silent --prefix "$built" "@biomejs/biome@$version" >/dev/null 2>&1 ||
            { skip node "biome $version cannot be installed"; return 0; }
    fi
    (cd clients/node && "$biome" ci --colors=off --error-on-warnings --config-path=. \
        src test build.mjs ../../tests/frameworks/node ../../examples/node) ||
        { echo "lint-clients: run target/clients/lint-node/node_modules/.bin/biome check --write in clients/node" >&2; return 1; }
    (cd packaging/node-server && "$biome" ci --colors=off --error-on-warnings src test bin)
}

lint_ruby() {
    if ! command -v rubocop >/dev/null; then
        skip ruby "rubocop is missing (Debian: rubocop)"
        return 0
    fi
    rubocop --format simple --config clients/ruby/.rubocop.yml clients/ruby benches/clients/worker.rb >"$target/rubocop" ||
        { cat "$target/rubocop" >&2; return 1; }
    # It comes with Ruby.
    ruby -e 'gem "rbs"; load Gem.bin_path("rbs", "rbs")' -- -r timeout -I clients/ruby/sig validate --silent
}

lint_java() {
    local built=$target/lint-java output
    if ! command -v mvn >/dev/null || ! [[ $(javac -version 2>&1) =~ ^javac\ ([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 17 ]; then
        skip java "Maven or Java 17 is missing"
        return 0
    fi
    # Spotless formats only files below its pom.xml, so it gets copies of the others.
    rm -rf "$built"
    mkdir -p "$built/others/src"
    cp clients/java/pom.xml "$built/others/"
    # Only formatted: what the others are compiled with does not contain the peers' libraries.
    mkdir -p "$built/others/src/peers"
    cp benches/clients/*.java examples/java/*.java scripts/compat/*/*.java \
        tests/frameworks/java/src/*/java/app/*.java "$built/others/src/"
    cp benches/peers/java/*.java "$built/others/src/peers/"
    mkdir -p "$built/others/src/jepsen"
    cp tests/jepsen/java/*.java "$built/others/src/jepsen/"
    # Programs as short as these spend more on optimizing compilation than it saves.
    export MAVEN_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${MAVEN_OPTS:-}"
    # What test-clients.sh has fetched is reused, so no network is needed.
    local maven=(mvn --batch-mode --quiet -Dstyle.color=never "-Dmaven.repo.local=$target/maven")
    if ! output=$("${maven[@]}" --file clients/java/pom.xml "-Dserverlock.build=$built" \
        spotless:check test-compile dependency:copy-dependencies 2>&1 &&
        "${maven[@]}" --file clients/java/spring-boot-starter/pom.xml spotless:check 2>&1 &&
        "${maven[@]}" --file "$built/others/pom.xml" spotless:check 2>&1); then
        if grep -qE 'Could not (transfer|resolve)|could not be resolved|UnresolvableException' <<<"$output"; then
            skip java "what Maven needs cannot be fetched"
            return 0
        fi
        echo "$output" >&2
        echo "lint-clients: mvn --file clients/java/pom.xml spotless:apply formats what is below clients/java" >&2
        return 1
    fi
    javac -Xlint:all -Werror -cp "$built/classes:$built/dependency/*" -d "$built/others/classes" \
        benches/clients/*.java examples/java/*.java
}

if [ $# = 0 ]; then
    mapfile -t languages < <(declare -F | sed -n 's/^declare -f lint_//p')
    set -- "${languages[@]}"
fi
failed=
for language; do
    "lint_$language" || failed="$failed $language"
done
[ -z "$failed" ] || { echo "lint-clients: FAILED:$failed" >&2; exit 1; }
