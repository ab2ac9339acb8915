"""The FastAPI application of test_fastapi.py. It reports to the list `events`, and waits for the list `go`."""

import contextlib
import os
from typing import Annotated, Any

import redis
import redis.asyncio
from fastapi import Depends, FastAPI
from frame import LEASE, UNLOCKED
from serverlock import Locks, aio
from serverlock.fastapi import leading, locked

PORT = int(os.environ["SERVERLOCK_TESTS_PORT"])
NAME = os.environ["SERVERLOCK_TESTS_NAME"]
IS_LOCKED = UNLOCKED not in os.environ

client = redis.asyncio.Redis(port=PORT, socket_timeout=None)
locks = aio.Locks(client)
thread_client = redis.Redis(port=PORT, socket_timeout=None)
thread_locks = Locks(thread_client)


async def lead(held):
    await client.rpush("events", f"{NAME} leads")
    try:
        await client.blpop("end", 0)
    finally:
        await client.rpush("events", f"{NAME} stops")


@contextlib.asynccontextmanager
async def alone(_):
    await client.rpush("events", f"{NAME} leads")
    yield


app = FastAPI(lifespan=leading(locks, "leader", lead, lease=LEASE) if IS_LOCKED else alone)


def dependency(made):
    return Depends(made if IS_LOCKED else lambda: None, scope="function")


async def work(order):
    await client.rpush("events", f"{NAME} begins {order}")
    await client.blpop("go", 0)
    await client.rpush("events", f"{NAME} ends {order}")
    return order


@app.post("/loop/{order}")
async def loop(order: str, held: Annotated[Any, dependency(locked(locks, "order:{order}", LEASE))]):
    return await work(order)


@app.post("/thread/{order}")
async def thread(order: str, held: Annotated[Any, dependency(locked(thread_locks, "order:{order}", LEASE))]):
    return await work(order)


@app.post("/blocking/{order}")
def blocking(order: str, held: Annotated[Any, dependency(locked(thread_locks, "order:{order}", LEASE))]):
    thread_client.rpush("events", f"{NAME} begins {order}")
    thread_client.blpop("go", 0)
    held.check()
    thread_client.rpush("events", f"{NAME} ends {order}")
    return order
