#!/bin/sh
# Builds the images of packaging/container/Dockerfile with docker, podman or buildah: `make images`.
#
#   redis-with-lock:7.2, :8, valkey-with-lock:8, :9              servers with the module, on Debian
#   the same with -alpine                                        on Alpine
#   redis-lock-module:VERSION, redis-lock-module:VERSION-alpine  the module alone, for init containers
#
# Each server then has to start without root and become healthy; buildah cannot start it. Pulls the base images. If none
# of the three programs works, the script says so in one line and exits with 3.
set -eu

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
tool=
container=

say() { echo "images: $*" >&2; }

# A client of docker may be there without its daemon.
for candidate in docker podman buildah; do
    if "$candidate" info >/dev/null 2>&1; then
        tool=$candidate
        break
    fi
done
if [ -z "$tool" ]; then
    say "skipped: neither docker nor podman nor buildah works here"
    exit 3
fi

# build TAG OPTIONS...: the default format of podman and buildah has no health checks.
build() {
    tag=$1
    shift
    say "building $tag"
    if [ "$tool" != docker ]; then set -- --format docker "$@"; fi
    "$tool" build -f packaging/container/Dockerfile -t "$tag" "$@" .
}

healthy() {
    case $tool in
    docker) [ "$(docker inspect --format '{{.State.Health.Status}}' "$container")" = healthy ] ;;
    podman) podman healthcheck run "$container" >/dev/null 2>&1 ;;
    esac
}
remove() { [ -z "$container" ] || "$tool" rm -f "$container" >/dev/null; }
trap remove EXIT
trap 'exit 130' INT TERM

# check TAG
check() {
    [ "$tool" != buildah ] || return 0
    container=$("$tool" run -d "$1")
    if [ "$("$tool" exec "$container" id -u)" = 0 ]; then
        say "$1 runs as root"
        exit 1
    fi
    left=300
    until healthy; do
        left=$((left - 1))
        if [ "$left" = 0 ]; then
            "$tool" logs "$container" >&2
            say "$1 does not become healthy"
            exit 1
        fi
        sleep 1
    done
    remove
    container=
}

for base in '' -alpine; do
    for server in library/redis:7.2 library/redis:8 valkey/valkey:8 valkey/valkey:9; do
        name=${server##*/}
        tag=${name%:*}-with-lock:${name#*:}$base
        build "$tag" --build-arg "SERVER=docker.io/$server$base"
        check "$tag"
    done
    build "redis-lock-module:$version$base" --build-arg "SERVER=docker.io/$server$base" --target module
done
