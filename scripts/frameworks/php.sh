#!/usr/bin/env bash
# Tests the drop-ins for Laravel and Symfony with Debian's packages of these frameworks, in processes that are killed.
#
# Installs missing packages with apt. The tests start servers of their own.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export SERVERLOCK_MODULE=${SERVERLOCK_MODULE:-$target/release/libredis_lock.so}

is_complete() {
    command -v phpunit >/dev/null && php -r 'require "tests/frameworks/php/autoload.php";
        exit(extension_loaded("redis") && extension_loaded("posix") && class_exists("Predis\Client")
            && class_exists("Illuminate\Foundation\Application") && class_exists("Symfony\Component\Semaphore\Semaphore")
            && class_exists("Symfony\Bundle\FrameworkBundle\FrameworkBundle")
            && class_exists("Symfony\Component\Yaml\Yaml") ? 0 : 1);' 2>/dev/null
}

if ! is_complete; then
    # Few of these packages have a command of the same name, so install-deps.sh installs the others.
    scripts/install-deps.sh php-cli php-redis php-nrk-predis phpunit php-laravel-framework php-symfony-lock \
        php-symfony-semaphore php-symfony-framework-bundle php-symfony-yaml
    is_complete || { echo "frameworks: missing: PHP 8.1 with phpredis and predis, phpunit, Laravel, Symfony" >&2; exit 1; }
fi
[ -f "$SERVERLOCK_MODULE" ] || { echo "frameworks: missing: $SERVERLOCK_MODULE, run 'cargo build --release'" >&2; exit 1; }
(cd tests/frameworks/php && phpunit "$@")
