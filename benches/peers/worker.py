"""One process of the comparison, in Python: worker.py CONTENDER PORT. run.py describes its input."""

import json
import math
import os
import socket
import sys
import threading
import time
import uuid

LEASE = int(os.environ.get("LEASE_MS", "30000")) / 1000
WAIT = 120


class Package:
    """The package, through redis-py."""

    def __init__(self, port):
        import redis
        from serverlock import Locks

        self.locks = Locks(redis.Redis(port=port))

    def lock(self, key):
        return self._described(self.locks.lock(key, LEASE, wait=WAIT))

    def slots(self, key, permits):
        return self._described(self.locks.limit(key, permits, LEASE, wait=WAIT))

    @staticmethod
    def _described(lock):
        return lock.acquire, lambda held: held.release(), lambda held: held.token


class Usual:
    """redis.lock.Lock."""

    def __init__(self, port):
        import redis
        from redis.lock import Lock

        self.client, self.kind = redis.Redis(port=port), Lock

    def lock(self, key):
        lock = self.kind(self.client, key, timeout=LEASE, blocking_timeout=WAIT)

        def acquire():
            if not lock.acquire():
                raise TimeoutError(key)

        return acquire, lambda _: lock.release(), lambda _: 0


class SetAndDel:
    """The least that a lock in Redis can cost a client: two commands, for a free lock. It is not safe, because DEL
    deletes any holder's lock."""

    def __init__(self, port):
        import redis

        self.client = redis.Redis(port=port)

    def lock(self, key):
        def acquire():
            if not self.client.set(key, uuid.uuid4().hex, nx=True, px=round(LEASE * 1000)):
                raise TimeoutError(key)

        return acquire, lambda _: self.client.delete(key), lambda _: 0


CONTENDERS = {
    "redis-py package": Package,
    "redis-py package, script": Package,
    "redis-py Lock": Usual,
    "redis-py SET and DEL": SetAndDel,
}


class Measured:
    """What one client has measured: nanoseconds of each wait, and how many of its grants were in time."""

    def __init__(self):
        self.waits, self.in_time, self.errors = [], 0, 0


def pairs(lock, end, measured):
    """The time of acquire and release."""
    acquire, release, _ = lock
    asked = time.monotonic_ns()
    while asked < end:
        release(acquire())
        now = time.monotonic_ns()
        measured.waits.append(now - asked)
        measured.in_time += 1
        asked = now


def grants(lock, end, measured):
    """The time until each grant."""
    acquire, release, _ = lock
    while (asked := time.monotonic_ns()) < end:
        held = acquire()
        now = time.monotonic_ns()
        measured.waits.append(now - asked)
        measured.in_time += now < end
        release(held)


class Gaps:
    """The longest time without a grant."""

    def __init__(self):
        self.mutex, self.last, self.longest = threading.Lock(), time.monotonic_ns(), 0

    def stubborn(self, lock, end, measured):
        """Goes on after errors."""
        acquire, release, _ = lock
        while (asked := time.monotonic_ns()) < end:
            try:
                held = acquire()
                now = time.monotonic_ns()
                with self.mutex:
                    self.longest, self.last = max(self.longest, now - self.last), now
                measured.waits.append(now - asked)
                measured.in_time += now < end
                release(held)
            except Exception:  # noqa: BLE001 - each library has its own
                measured.errors += 1
                time.sleep(0.01)


def increments(port, is_fenced):
    """Adds to the counter that the lock guards, and counts the accepted writes."""

    def body(lock, end, measured):
        acquire, release, token = lock
        with socket.create_connection(("127.0.0.1", port)) as conn, conn.makefile("rw") as lines:

            def ask(*words):
                print(*words, file=lines, flush=True)
                return lines.readline().strip()

            while time.monotonic_ns() < end:
                try:
                    held = acquire()
                    value = int(ask("get", os.getpid()))
                    time.sleep(0.005)
                    measured.in_time += ask("put", value + 1, token(held) if is_fenced else 0) == "ok"
                    release(held)
                except Exception:  # noqa: BLE001 - each library has its own
                    measured.errors += 1
                    time.sleep(0.01)

    return body


def together(clients, seconds, locks, body):
    own = [(locks(number), Measured()) for number in range(clients)]
    end = time.monotonic_ns() + int(seconds * 1e9)
    threads = [threading.Thread(target=body, args=(lock, end, measured)) for lock, measured in own]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waits = {}
    for _, measured in own:
        for wait in measured.waits:
            bucket = round(math.log(max(1, wait)) / math.log(1.02))
            waits[bucket] = waits.get(bucket, 0) + 1
    return {
        "counts": [measured.in_time for _, measured in own],
        "waits": waits,
        "errors": sum(measured.errors for _, measured in own),
    }


def answer(contender, order, key, clients="1", seconds="0", *rest):
    clients, seconds = int(clients), float(seconds)
    if order == "hold":
        contender.lock(key)[0]()
        return {}
    if order == "free":
        return together(clients, seconds, lambda n: contender.lock(f"{key}:{os.getpid()}:{n}"), pairs)
    if order == "hot":
        return together(clients, seconds, lambda _: contender.lock(key), grants)
    if order == "slots":
        return together(clients, seconds, lambda _: contender.slots(key, int(rest[0])), grants)
    if order == "outage":
        gaps = Gaps()
        said = together(clients, seconds, lambda _: contender.lock(key), gaps.stubborn)
        return {**said, "gap_ms": gaps.longest / 1e6}
    assert order == "count", order
    return together(clients, seconds, lambda _: contender.lock(key), increments(int(rest[0]), rest[1] == "fenced"))


def main():
    contender = CONTENDERS[sys.argv[1]](int(sys.argv[2]))
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(contender, *line.split())), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
