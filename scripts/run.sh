#!/bin/sh
# Starts a server with the module in the foreground: `make run`. PORT and REDIS_SERVER are read from the environment.
set -eu

cd "$(dirname "$0")/.."
port=${PORT:-6379}
server=${REDIS_SERVER:-redis-server}
module=${CARGO_TARGET_DIR:-$PWD/target}/release/libredis_lock.so

case $port in
*[!0-9]* | "")
    echo "run: PORT must be a number, not '$port'" >&2
    exit 2
    ;;
esac
if redis-cli -p "$port" PING >/dev/null 2>&1; then
    echo "run: port $port is in use; try another one: make run PORT=$((port + 1))" >&2
    exit 1
fi

# redis.conf names this folder. Servers on different ports must not share files.
mkdir -p ".data/$port"

cat <<EOF
Starting ${server##*/} with the module on port $port.
  Try it:   redis-cli -p $port LOCK.ACQUIRE door PX 10000     (replies with a token or nil)
            redis-cli -p $port LOCK.INFO door
            redis-cli -p $port LOCK.RELEASE door <token>
            redis-cli -p $port LOCK.HELP
  Stop it:  Ctrl-C
  Its data: .data/$port

EOF
# Redis 6.2 has no module settings: they are the module's arguments.
config=redis.conf settings=
case $("$server" --version) in
*v=6.*)
    config=.data/$port/redis.conf
    grep -v '^lock\.' redis.conf >"$config"
    settings=$(sed -n 's/^lock\.//p' redis.conf)
    ;;
esac
# shellcheck disable=SC2086 # names and values are meant to be split
exec "$server" "$config" --port "$port" --dir "$PWD/.data/$port" --loadmodule "$module" $settings
