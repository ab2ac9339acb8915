"""Client processes of the hot lock, like worker.rs, with what people use in Python.

workers.py WAY PORT KEY DIRECTORY COUNT
"""

import os
import sys
import time

import redis
import redis_lock
from redis.lock import Lock

LEASE_MS = 30000


def ours(client, key):
    token = None

    def acquire():
        nonlocal token
        token = client.execute_command("LOCK.ACQUIRE", key, "PX", LEASE_MS, "WAIT", 60000)

    def release():
        assert client.execute_command("LOCK.RELEASE", key, token) == 1

    return acquire, release


def both(lock):
    return lock.acquire, lock.release


WAYS = {
    "lock": ours,
    "redis-py": lambda client, key: both(Lock(client, key, timeout=LEASE_MS / 1000)),
    "redis-py-1ms": lambda client, key: both(Lock(client, key, timeout=LEASE_MS / 1000, sleep=0.001)),
    "python-redis-lock": lambda client, key: both(redis_lock.Lock(client, key, expire=LEASE_MS // 1000)),
}


def now_us():
    return time.time_ns() // 1000


def work(way, port, key, directory, number):
    # No client time-out: with one, the client would give up in the middle of a wait.
    client = redis.Redis(port=port, socket_timeout=None)
    # Scripts are loaded on first use.
    acquire, release = WAYS[way](client, f"{key}:{number}")
    acquire()
    release()
    acquire, release = WAYS[way](client, key)
    client.incr(f"{key}:ready")
    start, end = map(int, client.blpop(f"{key}:start", 60)[1].split())
    grants = []
    time.sleep(max(0, start - now_us()) / 1e6)
    while (asked := now_us()) < end:
        acquire()
        granted = now_us()
        grants.append(f"{granted} {granted - asked}\n")
        release()
    with open(os.path.join(directory, str(number)), "w") as file:
        file.writelines(grants)


def main():
    way, port, key, directory, count = sys.argv[1:]
    children = []
    # Forked, not started one by one: importing takes longer than a round.
    for number in range(int(count)):
        child = os.fork()
        if child == 0:
            try:
                work(way, int(port), key, directory, number)
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(1 if failed else 0)


main()
