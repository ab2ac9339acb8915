#!/bin/sh
# Starts a master, two replicas and three sentinels with the module, in the foreground: `make sentinel`.
#
# However the script ends, for example by Ctrl-C or TERM, it stops all of them and removes their data. Until then it
# restarts a server that ends, as a service manager does, and leaves a stopped one (kill -STOP) alone. Their ports are
# the first free ones from PORT on. Once all of them have found each other, it prints a line
#     ready PORT PORT PORT  PORT PORT PORT
# with the master, the replicas and the sentinels. From the environment:
#   PORT            the first port to try; 6379
#   REDIS_SERVER    the server binary; redis-server
#   REDIS_SERVER_ARGS  more arguments for the servers
#   LOCK_MODULE     the module; target/release/libredis_lock.so
#   SENTINEL_DIR    a folder for the data, which must not exist; .data/sentinel-PORT
#   GRACE_MS        lock.failover-grace-ms; 20000
#   MARGIN_MS       lock.margin-ms; 1000
#   MAX_LAG_S       min-replicas-max-lag; 2
#   MIN_REPLICAS    min-replicas-to-write; 2, the number of replicas
#   APPENDONLY      appendonly; yes
#   DOWN_AFTER_MS   how long a server is unreachable before it counts as down; 2000
#   RESTART_S       how long after a server ends it is restarted; 5
#   ANNOUNCE        three ports that lead to the servers: they and the sentinels use these to reach one another
#   QUICK           1: the sentinels check and gossip more often than in production (not on 6.2)
#   OWNER_PID       the script ends when this process has ended
set -eu

cd "$(dirname "$0")/.."
server=${REDIS_SERVER:-redis-server}
module=${LOCK_MODULE:-${CARGO_TARGET_DIR:-$PWD/target}/release/libredis_lock.so}
first=${PORT:-6379}
grace=${GRACE_MS:-20000} margin=${MARGIN_MS:-1000} max_lag=${MAX_LAG_S:-2} min_replicas=${MIN_REPLICAS:-2}
restart=${RESTART_S:-5}
name=locks

fail() {
    echo "sentinel: $*" >&2
    exit 1
}
case $first in
*[!0-9]* | "") fail "PORT must be a number, not '$first'" ;;
esac
[ -f "$module" ] || fail "there is no $module: make build"
case $module in
/*) ;;
*) module=$PWD/$module ;;
esac

# ask PORT COMMAND...: the reply; empty if no server answers on that port.
ask() {
    asked=$1
    shift
    timeout 2 redis-cli -p "$asked" "$@" 2>/dev/null </dev/null || true
}

is_free() { case $(timeout 2 redis-cli -p "$1" PING 2>&1 </dev/null) in *refused*) ;; *) return 1 ;; esac }

ports='' count=0 port=$first
while [ $count -lt 6 ]; do
    [ "$port" -le 65535 ] || fail "no six free ports from $first on"
    if is_free "$port"; then
        ports="$ports $port" count=$((count + 1))
    fi
    port=$((port + 1))
done
# shellcheck disable=SC2086 # a list of numbers
set -- $ports
master=$1 data="$1 $2 $3" sentinels="$4 $5 $6"
# shellcheck disable=SC2086
set -- ${ANNOUNCE:-$data}
announced_master=$1 announced="$1 $2 $3"

dir=${SENTINEL_DIR:-.data/sentinel-$master}
mkdir -p "$(dirname "$dir")"
mkdir "$dir" || fail "the folder for the data already exists"
dir=$(cd "$dir" && pwd)

stop_all() {
    trap - EXIT INT TERM
    for port in $data $sentinels; do
        pid=$(cat "$dir/$port/pid" 2>/dev/null) || continue
        # SIGKILL, because a stopped process would not react to anything else, and the data is removed anyway.
        kill -s KILL "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$dir"
    exit "${1:-0}"
}
trap 'stop_all $?' EXIT
trap 'stop_all 130' INT
trap 'stop_all 143' TERM

# start PORT [--sentinel]: starts the server or sentinel of that port's folder.
start() {
    started=$1
    shift
    # shellcheck disable=SC2086 # they are separate arguments
    [ $# != 0 ] || set -- ${REDIS_SERVER_ARGS:-}
    # In a process group of its own, so that Ctrl-C in a terminal reaches only the script.
    setsid "$server" "$dir/$started/server.conf" "$@" >>"$dir/$started/log" 2>&1 </dev/null &
    echo $! >"$dir/$started/pid"
}

# Redis 6.2 has no module settings: they are the module's arguments.
case $("$server" --version) in
*v=6.*)
    arguments="failover-grace-ms $grace margin-ms $margin" settings=''
    ;;
*)
    arguments=''
    settings="lock.failover-grace-ms $grace
lock.margin-ms $margin"
    ;;
esac

# The sentinels rewrite these files when they promote or demote, so all settings are in them.
for port in $data; do
    announce=${announced%% *} announced=${announced#* }
    mkdir "$dir/$port"
    cat >"$dir/$port/server.conf" <<CONF
bind 127.0.0.1
port $port
dir $dir/$port
daemonize no
save ""
appendonly ${APPENDONLY:-yes}
replica-announce-ip 127.0.0.1
replica-announce-port $announce
# Nothing is granted unless all replicas have answered lately. Without this, a replaced master keeps granting.
min-replicas-to-write $min_replicas
min-replicas-max-lag $max_lag
# After a stall the master grants once its replicas have acknowledged something newer: these PINGs.
repl-ping-replica-period 1
repl-diskless-sync-delay 0
loadmodule $module $arguments
$settings
CONF
    [ "$port" = "$master" ] || echo "replicaof 127.0.0.1 $announced_master" >>"$dir/$port/server.conf"
    start "$port"
done

# until_ready WHAT COMMAND...: waits until the command succeeds.
until_ready() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -ge 300 ]; then
            tail -n 20 "$dir"/*/log >&2
            fail "not within half a minute: $what"
        fi
        for watched in "$dir"/*/pid; do
            kill -0 "$(cat "$watched")" 2>/dev/null || {
                tail -n 20 "${watched%/pid}/log" >&2
                fail "the server of $watched has ended"
            }
        done
        sleep 0.1
    done
}
replicas_are_online() { [ "$(ask "$master" INFO replication | grep -c 'state=online')" = 2 ]; }
until_ready "the replicas are in sync" replicas_are_online

for port in $sentinels; do
    mkdir "$dir/$port"
    cat >"$dir/$port/server.conf" <<CONF
bind 127.0.0.1
port $port
dir $dir/$port
daemonize no
sentinel monitor $name 127.0.0.1 $announced_master 2
sentinel down-after-milliseconds $name ${DOWN_AFTER_MS:-2000}
sentinel failover-timeout $name 10000
sentinel parallel-syncs $name 2
CONF
    start "$port" --sentinel
done
hurry() {
    if [ "${QUICK:-0}" = 1 ]; then
        ask "$1" SENTINEL DEBUG publish-period 200 info-period 300 ask-period 300 ping-period 200 \
            min-link-reconnect-period 300 >/dev/null
    fi
}
answers() { [ "$(ask "$1" PING)" = PONG ]; }
knows_all() {
    facts=$(ask "$1" SENTINEL MASTER $name | tr '\n' ' ')
    case $facts in
    *"num-slaves 2 num-other-sentinels 2 "*) ;;
    *) return 1 ;;
    esac
}
for port in $sentinels; do
    until_ready "the sentinel on port $port answers" answers "$port"
    hurry "$port"
done
for port in $sentinels; do
    until_ready "the sentinel on port $port knows the others" knows_all "$port"
done

# shellcheck disable=SC2086
set -- $sentinels
longest=$((grace - margin - max_lag * 1000 - 2000))
cat <<TEXT
A master, two replicas and three sentinels of ${server##*/}.
  Servers:     $data
  Sentinels:   $sentinels
  The master:  redis-cli -p $1 SENTINEL GET-MASTER-ADDR-BY-NAME $name
  A lock:      redis-cli -p $master LOCK.ACQUIRE door PX 5000 WAIT $grace
  A failover:  redis-cli -p $1 SENTINEL FAILOVER $name
               kill -9 \$(cat $dir/$master/pid)     (it comes back after $restart s)
               kill -STOP \$(cat $dir/$master/pid), later -CONT
  Stop all:    Ctrl-C
TEXT
if [ "$grace" -gt 0 ]; then
    echo "  A server that has started or become master grants nothing for $grace ms; the longest lease is $longest ms."
fi
echo "ready $data  $sentinels"

# Restarts whatever has ended, until it is stopped.
while sleep 0.2; do
    [ -z "${OWNER_PID:-}" ] || kill -0 "$OWNER_PID" 2>/dev/null || exit 0
    for port in $data $sentinels; do
        ! kill -0 "$(cat "$dir/$port/pid")" 2>/dev/null || continue
        now=$(date +%s)
        # When its end was first seen.
        [ -f "$dir/$port/ended" ] || echo "$now" >"$dir/$port/ended"
        [ $((now - $(cat "$dir/$port/ended"))) -ge "$restart" ] || continue
        rm "$dir/$port/ended"
        case " $data " in
        *" $port "*) start "$port" ;;
        *)
            start "$port" --sentinel
            until_ready "the sentinel on port $port answers" answers "$port"
            hurry "$port"
            ;;
        esac
    done
done
