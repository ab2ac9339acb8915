"""A scheduler of test_apscheduler4.py, in one process of two. It calls a job that waits for the list `go`."""

import asyncio
import os

import redis
import redis.asyncio
from apscheduler import AsyncScheduler
from apscheduler.triggers.interval import IntervalTrigger
from frame import LEASE
from serverlock import aio
from serverlock.apscheduler import once_per_tick

PORT = int(os.environ["SERVERLOCK_TESTS_PORT"])
NAME = os.environ["SERVERLOCK_TESTS_NAME"]

client = redis.Redis(port=PORT, socket_timeout=None)


async def main():
    async with aio.Locks(redis.asyncio.Redis(port=PORT)) as locks, AsyncScheduler() as scheduler:

        @once_per_tick(locks, "job", 86_400, lease=LEASE)
        async def job():
            client.rpush("events", f"{NAME} begins")
            await asyncio.to_thread(client.blpop, "go", 0)
            client.rpush("events", f"{NAME} ends")

        await scheduler.configure_task("job", func=job)
        await scheduler.add_schedule("job", IntervalTrigger(seconds=1), id="job")
        await scheduler.run_until_stopped()


asyncio.run(main())
