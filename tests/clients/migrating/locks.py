"""Drives the locks of Python libraries, so that a test can use them on a LOCK.* key in the order that it wants.

locks.py LIBRARY PORT, then a line `verb key seconds` on standard input for each step; the lease is that many seconds.
Each step is answered with one line: `held`, `refused`, `done`, or `fails` and the library's exception.

    try      take the lock if it can be had at once
    take     wait for it
    release  release what try or take got
    extend   ask for a new lease; `none` if the library has no such call
"""

import logging
import sys
import time
import types

import redis

PATIENCE = 20


def polled(take):
    """For a library that only tries: what its users write around it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if take():
            return True
        time.sleep(0.1)
    return False


class Lock:
    """What all have in common: a lock that is created for one key and one lease."""

    def __init__(self, client, key, lease):
        self.client, self.key, self.lease = client, key, lease
        self.lock = self.make()

    def take(self, wait):
        return self.lock.acquire(blocking=wait)

    def release(self):
        self.lock.release()

    def extend(self):
        return "none"


class Tried(Lock):
    """A lock that can only be tried."""

    def take(self, wait):
        return polled(self.attempt) if wait else self.attempt()

    def attempt(self):
        return self.lock.acquire()


class RedisPy2(Lock):
    def make(self):
        return redis.client.Lock(self.client, self.key, timeout=self.lease, sleep=0.1)


class RedisPy(Lock):
    def make(self):
        return self.client.lock(self.key, timeout=self.lease, sleep=0.1)

    def take(self, wait):
        return self.lock.acquire(blocking=wait, blocking_timeout=PATIENCE if wait else None)

    def extend(self):
        self.lock.extend(self.lease, replace_ttl=True)


class Block(Lock):
    """A lock that is held by a block, and raises if it cannot be acquired in time."""

    def make(self):
        return None

    def take(self, wait):
        self.lock, refusal = self.block(wait)
        try:
            self.lock.__enter__()
        except refusal:
            return False
        return True

    def release(self):
        self.lock.__exit__(None, None, None)


class Redset(Block):
    def block(self, wait):
        from redset.exceptions import LockTimeout
        from redset.locks import Lock as RedsetLock

        timeout, interval = (PATIENCE, 0.1) if wait else (0.001, 0.01)
        lock = RedsetLock(self.client, self.key, expires=self.lease, timeout=timeout, poll_interval=interval)
        return lock, LockTimeout


class Retools(Block):
    def block(self, wait):
        from retools.lock import Lock as RetoolsLock
        from retools.lock import LockTimeout

        lock = RetoolsLock(self.key, expires=self.lease, timeout=PATIENCE if wait else 0, redis=self.client)
        return lock, LockTimeout


class RedisLock02(Tried):
    def make(self):
        from redis_lock import RedisLock

        return RedisLock(self.client, lock_key=self.key, lock_timeout=self.lease)


class CeleryOnce(Tried):
    def make(self):
        # Only the names that the lock's module imports from Celery itself are needed.
        for name in ["celery", "celery.states", "celery.result"]:
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.modules["celery"].Task = object
        sys.modules["celery"].states = sys.modules["celery.states"]
        sys.modules["celery.result"].EagerResult = object
        from celery_once.backends.redis import Redis

        port = self.client.connection_pool.connection_kwargs["port"]
        return Redis({"url": f"redis://127.0.0.1:{port}/0"})

    def attempt(self):
        from celery_once.tasks import AlreadyQueued

        try:
            self.lock.raise_or_lock(self.key, self.lease)
        except AlreadyQueued:
            return False
        return True

    def release(self):
        self.lock.clear_lock(self.key)


class PythonRedisLock(Lock):
    def make(self):
        import redis_lock

        return redis_lock.Lock(self.client, self.key, expire=self.lease or None)

    def extend(self):
        self.lock.extend()


class RedlockPy(Tried):
    def make(self):
        from redlock import Redlock

        return Redlock([self.client], retry_count=1)

    def attempt(self):
        self.held = self.lock.lock(self.key, self.lease * 1000)
        return bool(self.held)

    def release(self):
        self.lock.unlock(self.held)


class Redlock(Tried):
    def make(self):
        from redlock import RedLock

        return RedLock(self.key, connection_details=[self.client], retry_times=1, ttl=self.lease * 1000)


class Pottery(Lock):
    def make(self):
        from pottery import Redlock as PotteryRedlock

        return PotteryRedlock(key=self.key, masters={self.client}, auto_release_time=self.lease)

    def extend(self):
        self.lock.extend()


LIBRARIES = {
    "redis-py-2": RedisPy2,
    "redis-py": RedisPy,
    "redset": Redset,
    "retools": Retools,
    "redis-lock": RedisLock02,
    "celery-once": CeleryOnce,
    "python-redis-lock": PythonRedisLock,
    "redlock-py": RedlockPy,
    "redlock": Redlock,
    "pottery": Pottery,
}


def answer(client, library, locks, verb, key, seconds):
    try:
        if verb in ("try", "take"):
            locks[key] = library(client, key, int(seconds))
            return "held" if locks[key].take(verb == "take") else "refused"
        return getattr(locks[key], verb)() or "done"
    except Exception as error:  # the test wants to know what the library makes of what it finds
        return f"fails {type(error).__name__}"


def main():
    library, port = LIBRARIES[sys.argv[1]], int(sys.argv[2])
    logging.disable()
    client, locks = redis.StrictRedis(host="127.0.0.1", port=port), {}
    print("ready", flush=True)
    for line in sys.stdin:
        print(answer(client, library, locks, *line.split()), flush=True)


main()
