#!/usr/bin/env bash
# Asks each language's database about known vulnerabilities in what the project uses: `make advisories`.
#
#   advisories.sh [LANGUAGE ...]    rust python node go java php ruby; all without one
#
# Ends with 1 if there is a finding or a tool is missing. Ends with 3 if there is none, but a database or a registry
# could not be reached: one line says which. In CI that is a failure (the Makefile).
#
# | language | tool | database |
# | rust | cargo-deny, cargo-audit: linked crates; each Cargo.lock | RustSec |
# | python | pip-audit: each requirements.txt | PyPI |
# | node | npm audit: each package.json | npm |
# | go | govulncheck: what the packages call | vuln.go.dev |
# | java, php, ruby | scripts/sbom.py: what the packages bring along | OSV |
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { echo "advisories: $*" >&2; }
# unchecked WHAT WHY: nothing is known about it.
unchecked() {
    say "NOT CHECKED: $1: $2"
    return 3
}
# worst CODE: remembers it. A finding counts for more than what could not be checked.
code=0
worst() {
    case $1 in 0) ;; 3) [ "$code" != 0 ] || code=3 ;; *) code=1 ;; esac
}

check_rust() {
    local tool lock files
    for tool in deny audit; do
        cargo "$tool" --version >/dev/null 2>&1 || { say "'cargo install cargo-$tool --locked' first"; return 1; }
    done
    echo "cargo deny check advisories"
    cargo deny check advisories || return 1
    mapfile -t files < <(git ls-files '*Cargo.lock')
    for lock in "${files[@]}"; do
        echo "cargo audit --file $lock"
        cargo audit --file "$lock" || return 1
    done
}

check_python() {
    local audit=("$target/advisories/bin/pip-audit") file files result=0
    if ! [ -x "${audit[0]}" ]; then
        command -v python3 >/dev/null || { say "python3 is missing"; return 1; }
        { python3 -m venv "$target/advisories" && "$target/advisories/bin/pip" install --quiet pip-audit==2.10.1; } >&2 ||
            { unchecked python "pip-audit cannot be installed from PyPI"; return; }
    fi
    audit+=(--progress-spinner off --strict --disable-pip --no-deps --requirement)
    # A mirror of PyPI may have the packages without their advisories. This release of jinja2 has some.
    echo "jinja2==2.10" >"$work/known"
    if "${audit[@]}" "$work/known" >"$work/log" 2>&1 || ! grep -q '^Found [0-9]* known vulnerabilit' "$work/log"; then
        unchecked python "PyPI does not list the vulnerabilities of jinja2 2.10: $(tail -n 1 "$work/log")"
        return
    fi
    mapfile -t files < <(git ls-files '*requirements.txt')
    for file in "${files[@]}"; do
        echo "pip-audit --requirement $file"
        "${audit[@]}" "$file" >"$work/log" 2>&1 && continue
        # With findings it prints a table, otherwise the reason.
        if grep -q '^Found [0-9]* known vulnerabilit' "$work/log"; then
            cat "$work/log" >&2
            result=1
        else
            unchecked "$file" "PyPI: $(tail -n 1 "$work/log")" || [ "$result" = 1 ] || result=3
        fi
    done
    return "$result"
}

check_node() {
    local file files folder result=0
    command -v npm >/dev/null || { say "npm is missing"; return 1; }
    mapfile -t files < <(git ls-files '*package.json')
    for file in "${files[@]}"; do
        echo "npm audit: $file"
        folder=$work/node/$file
        mkdir -p "$folder"
        cp "$file" "$folder/package.json"
        (cd "$folder" && npm install --package-lock-only --ignore-scripts --no-audit --no-fund --silent) >"$work/log" 2>&1 ||
            { unchecked "$file" "npm: its packages cannot be resolved" || [ "$result" = 1 ] || result=3; continue; }
        (cd "$folder" && npm audit --json) >"$work/audit" 2>/dev/null && continue
        # Only a report of the database has this.
        if grep -q '"vulnerabilities"' "$work/audit"; then
            (cd "$folder" && npm audit) >&2 || true
            result=1
        else
            unchecked "$file" "npm: $(sed -n 's/^ *"message": "\(.*\)",*/\1/p' "$work/audit" | head -n 1)" ||
                [ "$result" = 1 ] || result=3
        fi
    done
    return "$result"
}

check_go() {
    local folder result=0 status
    command -v go >/dev/null || { say "Go is missing"; return 1; }
    GOBIN=$target/advisories/bin go install golang.org/x/vuln/cmd/govulncheck@v1.1.4 >&2 ||
        { unchecked go "govulncheck cannot be installed"; return; }
    for folder in clients/go clients/go/opentelemetry packaging/go-server; do
        echo "govulncheck: $folder"
        status=0
        (cd "$folder" && "$target/advisories/bin/govulncheck" ./...) >"$work/log" 2>&1 || status=$?
        # 3: something that the packages call is vulnerable.
        case $status in
        0) ;;
        3) cat "$work/log" >&2 && result=1 ;;
        *) unchecked "$folder" "vuln.go.dev: $(tail -n 1 "$work/log")" || [ "$result" = 1 ] || result=3 ;;
        esac
    done
    return "$result"
}

# by_sbom LANGUAGE
by_sbom() {
    echo "sbom.py --osv: $1"
    scripts/sbom.py "$work" "$1" >&2 || { unchecked "$1" "what it brings along is not known"; return; }
    scripts/sbom.py --osv "$work/serverlock-$1.cdx.json"
}
check_java() { by_sbom java; }
check_php() { by_sbom php; }
check_ruby() { by_sbom ruby; }

if [ $# = 0 ]; then set -- rust python node go java php ruby; fi
for language; do
    status=0
    "check_$language" || status=$?
    worst "$status"
done
case $code in 1) say "FAILED" ;; 3) say "no finding, but not everything was checked" ;; esac
[ "$code" = 0 ] || exit "$code"
