#!/bin/sh
# Runs a command in a network of its own that loses packets and is slow, as root: everything that the command starts
# talks over that network's loopback. Ends with 3 if this machine cannot have such a network.
#
#   LOSS=2 RATE=20mbit scripts/lossy.sh COMMAND...
#
#   LOSS   how many of a hundred packets are lost, chosen at random; 2
#   RATE   the bandwidth of all connections together, in tc's units; 20mbit
set -eu

loss=${LOSS:-2}
rate=${RATE:-20mbit}
say() { echo "lossy: $*" >&2; }

if [ "${1:-}" = --inside ]; then
    shift
    # A usual MTU, because a packet must fit into the burst.
    ip link set lo up mtu 1500
    nft add table inet lossy
    nft 'add chain inet lossy input { type filter hook input priority 0 ; }'
    nft add rule inet lossy input numgen random mod 100 '<' "$loss" counter drop
    tc qdisc add dev lo root tbf rate "$rate" burst 32kb latency 400ms
    code=0
    "$@" || code=$?
    say "lost $(nft list chain inet lossy input | sed -n 's/.* packets \([0-9]*\) .*/\1/p') packets; $(
        tc -s qdisc show dev lo | sed -n 's/^ *//; s/ *(dropped \([0-9]*\).*/, \1 more were dropped because of the rate/p')"
    exit "$code"
fi

[ "$#" -gt 0 ] || { say "a command is missing" && exit 2; }
if [ "$(id -u)" != 0 ]; then
    say "a network of its own needs root"
    exit 3
fi
if ! { command -v nft && command -v tc && command -v ip; } >/dev/null; then
    "$(dirname "$0")/install-deps.sh" nftables iproute2
fi
if ! unshare --net true 2>/dev/null; then
    say "this machine allows no network of its own"
    exit 3
fi
exec unshare --net "$0" --inside "$@"
