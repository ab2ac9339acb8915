"""Leaves the block of the asyncio lock at each turn of the loop that a renewal takes. The port is the argument.

A cancellation that arrives just when what is waited for is done can get lost on its way: in asyncio.wait_for, which
redis-py uses, up to Python 3.11.
"""

import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../examples/python"))

import redis.asyncio
from redis_lock.aio import Lock

TURNS = 40


class Watched(Lock):
    """Tells when it begins to renew."""

    async def _exchange(self, name, *args):
        if name == "EXTEND":
            self.renews.set()
        return await super()._exchange(name, *args)


async def leave_after(turns, client):
    lock = Watched(client, f"report:{turns}", 6)
    lock.renews = asyncio.Event()
    async with lock:
        await lock.renews.wait()
        for _ in range(turns):
            await asyncio.sleep(0)


async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    tasks = {turns: asyncio.create_task(leave_after(turns, client)) for turns in range(TURNS)}
    _, stuck = await asyncio.wait(tasks.values(), timeout=20)
    print("stuck:", [turns for turns, task in tasks.items() if task in stuck])
    for task in tasks.values():
        if task not in stuck:
            task.result()
    os._exit(len(stuck))


asyncio.run(main())
