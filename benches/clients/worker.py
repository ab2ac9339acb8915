"""One process of the client benchmark, in Python: worker.py CONTENDER PORT. run.py describes its input."""

import asyncio
import json
import os
import secrets
import sys
import threading
import time

LEASE = 30
KEY = f"bench:{os.getpid()}"


class Package:
    """The package, through redis-py."""

    def __init__(self, port):
        import redis
        from serverlock import Locks

        self.locks = Locks(redis.Redis(port=port))

    def lock(self, key, wait):
        lock = self.locks.lock(key, LEASE, wait=wait)
        return lock.acquire, lambda held: held.release()


class Raw:
    """The two commands, through redis-py."""

    def __init__(self, port):
        import redis

        # No time-out for waits: with one, the client would give up in the middle of a wait.
        self.client, self.patient = redis.Redis(port=port), redis.Redis(port=port, socket_timeout=None)

    def lock(self, key, wait):
        call = (self.patient if wait else self.client).execute_command
        waits = ("WAIT", round(wait * 1000)) if wait else ()

        def acquire():
            return call("LOCK.ACQUIRE", key, "PX", LEASE * 1000, *waits)

        return acquire, lambda token: call("LOCK.RELEASE", key, token)


class WithID(Raw):
    """The two commands, with an ID for each attempt."""

    def lock(self, key, wait):
        call = (self.patient if wait else self.client).execute_command
        waits = ("WAIT", round(wait * 1000)) if wait else ()

        def acquire():
            return call("LOCK.ACQUIRE", key, "PX", LEASE * 1000, *waits, "ID", secrets.randbits(59))

        return acquire, lambda token: call("LOCK.RELEASE", key, token)


class Usual:
    """redis.lock.Lock."""

    def __init__(self, port):
        import redis
        from redis.lock import Lock

        self.client, self.kind = redis.Redis(port=port), Lock

    def lock(self, key, wait):
        kept = self.kind(self.client, key, timeout=LEASE, blocking=wait > 0, blocking_timeout=wait or None)

        def acquire():
            if not kept.acquire():
                raise TimeoutError(key)

        return acquire, lambda _: kept.release()


class Tasks:
    """Shared by the asyncio contenders: one task at a time, except for waits."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def run(self, work):
        return self.loop.run_until_complete(work)


class PackageAsyncio(Tasks):
    """The package, through redis.asyncio."""

    def __init__(self, port):
        super().__init__()
        import redis.asyncio
        from serverlock.aio import Locks

        self.locks = Locks(redis.asyncio.Redis(port=port))

    def lock(self, key, wait):
        lock = self.locks.lock(key, LEASE, wait=wait)
        return lock.acquire, lambda held: held.release()


class RawAsyncio(Tasks):
    """The two commands, through redis.asyncio."""

    def __init__(self, port):
        super().__init__()
        import redis.asyncio

        self.client, self.patient = redis.asyncio.Redis(port=port), redis.asyncio.Redis(port=port, socket_timeout=None)

    lock = Raw.lock


class UsualAsyncio(Tasks):
    """redis.asyncio.lock.Lock."""

    def __init__(self, port):
        super().__init__()
        import redis.asyncio
        from redis.asyncio.lock import Lock

        self.client, self.kind = redis.asyncio.Redis(port=port), Lock

    def lock(self, key, wait):
        kept = self.kind(self.client, key, timeout=LEASE, blocking=wait > 0, blocking_timeout=wait or None)

        async def acquire():
            if not await kept.acquire():
                raise TimeoutError(key)

        return acquire, lambda _: kept.release()


CONTENDERS = {
    "redis-py package": Package,
    "redis-py raw": Raw,
    "redis-py raw with ID": WithID,
    "redis-py Lock": Usual,
    "redis.asyncio package": PackageAsyncio,
    "redis.asyncio raw": RawAsyncio,
    "redis.asyncio Lock": UsualAsyncio,
}


def pairs(acquire, release, count):
    began = time.perf_counter()
    for _ in range(count):
        release(acquire())
    return time.perf_counter() - began


async def pairs_of_tasks(acquire, release, count):
    began = time.perf_counter()
    for _ in range(count):
        await release(await acquire())
    return time.perf_counter() - began


def hot(acquire, release, seconds):
    waits, end = [], time.perf_counter() + seconds
    while (asked := time.perf_counter()) < end:
        token = acquire()
        waits.append(round((time.perf_counter() - asked) * 1e6))
        release(token)
    return waits


async def hot_of_tasks(acquire, release, seconds):
    waits, end = [], time.perf_counter() + seconds
    while (asked := time.perf_counter()) < end:
        token = await acquire()
        waits.append(round((time.perf_counter() - asked) * 1e6))
        await release(token)
    return waits


def crowd(acquire, release, seconds, clients):
    counted = []
    threads = [threading.Thread(target=lambda: counted.append(hot(acquire, release, seconds))) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted


async def crowd_of_tasks(acquire, release, seconds, clients):
    return await asyncio.gather(*(hot_of_tasks(acquire, release, seconds) for _ in range(clients)))


def rss_kb():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def start_waits(contender, count):
    """This many waiting attempts, each for a different lock that somebody else holds."""
    acquires = [contender.lock(f"waits:{number}", 600)[0] for number in range(count)]
    if isinstance(contender, Tasks):
        threading.Thread(target=contender.run, args=[_gather(acquires)], daemon=True).start()
        return
    threading.stack_size(256 * 1024)
    for acquire in acquires:
        threading.Thread(target=acquire, daemon=True).start()


async def _gather(acquires):
    await asyncio.gather(*(acquire() for acquire in acquires))


def main():
    contender = CONTENDERS[sys.argv[1]](int(sys.argv[2]))
    is_async = isinstance(contender, Tasks)
    run = contender.run if is_async else lambda result: result
    kept = {}

    def lock(key, wait):
        if (key, wait) not in kept:
            kept[key, wait] = contender.lock(key, wait)
        return kept[key, wait]

    run((pairs_of_tasks if is_async else pairs)(*lock(KEY, 0), 3))  # connects, loads scripts
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        began = time.process_time()
        if order == "pair":
            seconds = run((pairs_of_tasks if is_async else pairs)(*lock(KEY, 0), int(words[0])))
            answer = seconds, time.process_time() - began
        elif order == "hot":
            waits = run((hot_of_tasks if is_async else hot)(*lock(words[0], 60), float(words[1])))
            answer = waits, time.process_time() - began
        elif order == "crowd":
            every = run((crowd_of_tasks if is_async else crowd)(*lock(words[0], 60), float(words[1]), int(words[2])))
            answer = every, time.process_time() - began
        elif order == "waits":
            answer = start_waits(contender, int(words[0]))
        else:
            answer = rss_kb()
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
