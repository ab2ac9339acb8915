#!/bin/sh
# Starts a cluster with the module on this machine, three masters and three replicas, in the foreground: `make cluster`.
# `make cluster PORT=7100` sets the first of its ports. The line "cluster ready: PORT ..." says that it is ready.
# However it ends, by Ctrl-C or otherwise, it stops its servers and removes their data.
#
# From the environment:
#   CLUSTER_PORT         the first of six ports in a row, 7000 if not given; the cluster's traffic takes them plus 10000
#   CLUSTER_DIR          the folder for its data, which must not exist yet; a new temporary one if not given
#   CLUSTER_SETTINGS     settings of the servers that differ from redis.conf, one per line
#   CLUSTER_MODULE_ARGS  settings of the module instead of those in redis.conf: name value ...
#   CLUSTER_UNTIL_EOF=1  it also ends when its standard input ends, for example when a test dies
#   LOCK_MODULE, REDIS_SERVER, REDIS_CLI   files other than the usual ones
#   REDIS_SERVER_ARGS    more arguments for the servers
set -eu

cd "$(dirname "$0")/.."
port=${CLUSTER_PORT:-7000}
server=${REDIS_SERVER:-redis-server}
cli=${REDIS_CLI:-redis-cli}
module=${LOCK_MODULE:-${CARGO_TARGET_DIR:-$PWD/target}/release/libredis_lock.so}
# Redis 6.2 has no module settings in its configuration: they are the module's arguments.
module_args=${CLUSTER_MODULE_ARGS-$(sed -n 's/^lock\.//p' redis.conf | tr '\n' ' ')}

fail() {
    echo "cluster: $*" >&2
    exit 1
}
case $port in
*[!0-9]* | "") fail "PORT must be a number, not '$port'" ;;
esac
if [ "$port" -lt 1024 ] || [ "$port" -gt 55530 ]; then fail "PORT must be between 1024 and 55530, not $port"; fi
[ -e "$module" ] || fail "$module is not there: make build"
ports=$(seq "$port" $((port + 5)))

if [ -n "${CLUSTER_DIR:-}" ]; then
    mkdir "$CLUSTER_DIR" || fail "CLUSTER_DIR has to be a folder that does not exist yet"
    dir=$(cd "$CLUSTER_DIR" && pwd -P)
else
    dir=$(cd "$(mktemp -d)" && pwd -P)
fi

# is_ours PORT PID: true for a server that died and was restarted by hand, false for another process with its old PID.
is_ours() {
    [ "$(readlink "/proc/$2/cwd" 2>/dev/null)" = "$dir/$1" ] ||
        grep -q -x "PPid:[[:space:]]*$$" "/proc/$2/status" 2>/dev/null
}
stop() {
    trap '' INT TERM HUP
    for node in $ports; do
        pid=$(cat "$dir/$node/pid" 2>/dev/null) || continue
        # Their data is removed too, so they need not save it.
        if is_ours "$node" "$pid"; then kill -KILL "$pid" 2>/dev/null || true; fi
    done
    rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for node in $ports; do
    mkdir "$dir/$node"
    {
        grep -v -e '^lock\.' -e '^port ' -e '^dir ' redis.conf
        printf 'port %s\ndir %s\nlogfile %s\npidfile %s\n' "$node" "$dir/$node" "$dir/$node/log" "$dir/$node/pid"
        printf 'loadmodule %s %s\n' "$module" "$module_args"
        printf 'cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 5000\n'
        # A replica need not wait for others to join before it gets its data.
        printf 'repl-diskless-sync-delay 0\n%s\n' "${CLUSTER_SETTINGS:-}"
    } >"$dir/$node/redis.conf"
    # shellcheck disable=SC2086 # they are separate arguments
    "$server" "$dir/$node/redis.conf" ${REDIS_SERVER_ARGS:-} </dev/null >"$dir/$node/out" 2>&1 &
    echo $! >"$dir/$node/pid"
done

# ask PORT COMMAND...: the reply.
ask() {
    to=$1
    shift
    "$cli" -h 127.0.0.1 -p "$to" "$@" 2>/dev/null </dev/null
}
# Another server may already use the port.
is_up() { ask "$1" INFO server | tr -d '\r' | grep -q -x "process_id:$(cat "$dir/$1/pid")"; }
is_in_cluster() {
    ask "$1" CLUSTER INFO | grep -q '^cluster_state:ok' && [ "$(ask "$1" CLUSTER NODES | grep -c ' connected')" = 6 ]
}
is_in_sync() {
    info=$(ask "$1" INFO replication)
    case $info in
    *role:slave*) echo "$info" | grep -q '^master_link_status:up' ;;
    *) echo "$info" | grep -q '^slave0:.*state=online' ;;
    esac
}
# until_all CHECK: waits until it is true for all servers.
until_all() {
    for node in $ports; do
        tries=0
        until "$1" "$node"; do
            kill -0 "$(cat "$dir/$node/pid")" 2>/dev/null ||
                fail "the server on port $node exited: $(tail -n 20 "$dir/$node/out" "$dir/$node/log" 2>&1)"
            tries=$((tries + 1))
            [ $tries -lt 600 ] || fail "$1: not within a minute on port $node: $(tail -n 20 "$dir/$node/log")"
            sleep 0.1
        done
    done
}

echo "Starting ${server##*/} six times with the module, in $dir"
until_all is_up
addresses=$(for node in $ports; do echo "127.0.0.1:$node"; done)
# shellcheck disable=SC2086 # the addresses are meant to be split
# redis-cli waits forever for servers that were too busy to meet.
timeout --foreground 30 "$cli" --cluster create $addresses --cluster-replicas 1 --cluster-yes \
    </dev/null >"$dir/create" 2>&1 || fail "the cluster was not created: $(tail -n 5 "$dir/create")"
until_all is_in_cluster
until_all is_in_sync

# shellcheck disable=SC2086 # one line
echo "cluster ready:" $ports
cat <<TEXT
  Try it:       $cli -c -p $port LOCK.ACQUIRE door PX 10000     (replies with a token or nil)
                $cli -c -p $port LOCK.INFO door
                $cli -p $port CLUSTER NODES
                $cli -p $((port + 3)) CLUSTER FAILOVER
  Kill one:     kill -9 \$(cat $dir/$port/pid)
  Start again:  $server $dir/$port/redis.conf
  Stop it:      Ctrl-C
TEXT
# In the background, because the shell handles a signal only after a foreground command has ended.
if [ "${CLUSTER_UNTIL_EOF:-0}" = 1 ]; then
    exec 3<&0
    cat <&3 >/dev/null &
    wait $! || true
else
    wait
fi
